// Regular expressions of ECMA-262 as whole texts and as JSON Schema's `pattern`.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "text/grammar/grammar.hpp"
#include "text/grammar/pattern.hpp"

namespace quipu::text::grammar {
namespace {

void expect_whole(std::string_view source, std::initializer_list<std::string_view> accepted,
                  std::initializer_list<std::string_view> refused) {
  const Grammar grammar = Grammar::from_regex(source);
  for (const std::string_view text : accepted) EXPECT_TRUE(matches(grammar, text)) << source << " : " << text;
  for (const std::string_view text : refused) EXPECT_FALSE(matches(grammar, text)) << source << " : " << text;
}

void expect_found(std::string_view source, std::initializer_list<std::string_view> accepted,
                  std::initializer_list<std::string_view> refused) {
  const Grammar grammar = Grammar::from([&](Store& store) {
    Encoder encoder(store, Encoding::utf8);
    return store.lexeme(pattern(encoder, source, Anchoring::anywhere));
  });
  for (const std::string_view text : accepted) EXPECT_TRUE(matches(grammar, text)) << source << " : " << text;
  for (const std::string_view text : refused) EXPECT_FALSE(matches(grammar, text)) << source << " : " << text;
}

std::string regex_error_of(std::string_view source) {
  try {
    Grammar::from_regex(source);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Pattern, Language) {
  expect_whole("a|bc*|", {"a", "b", "bcc", ""}, {"ab", "c"});
  expect_whole("(?:ab){2,3}", {"abab", "ababab"}, {"ab", "abababab", "aba"});
  expect_whole("(?<year>\\d{4})-(?<month>\\d\\d)", {"2024-05"}, {"24-05", "2024-5"});
  expect_whole("[^\\d\\s]+", {"ab\xc3\xa9"}, {"a1", "a b", ""});
  expect_whole("x{,3}", {"x{,3}"}, {"xx"});  // not a count
  expect_whole("a.b",
               {"a\xf0\x9f\xa6\x99"
                "b",
                "a\tb"},
               {"a\nb", "ab",
                "a\xc3"
                "b"});
  expect_whole("\\u{1F999}\\ud83e\\udd99\\x41\\cJ",
               {"\xf0\x9f\xa6\x99\xf0\x9f\xa6\x99"
                "A\n"},
               {"A"});
  expect_whole("[\\w-]+", {"a-b"}, {"a b"});
  expect_whole("(a*)*b", {"b", "aaab"}, {"a"});
  expect_whole("\\p{Lu}\\p{L}*", {"\xc3\x89t\xc3\xa9"}, {"\xc3\xa9", "E1"});
  expect_whole("[-a]|[a-]", {"-", "a"}, {"b"});
}

TEST(Pattern, Anchors) {
  expect_found("foo", {"foo", "xfoo", "foofoo", "a foo b"}, {"fo", "f oo", ""});
  expect_found("^ab", {"ab", "abc"}, {"xab", "a"});
  expect_found("ab$", {"ab", "xab"}, {"abx", "ab\n"});
  expect_found("^a$|^bb$", {"a", "bb"}, {"ab", "b", "aa"});
  expect_found("(^|,)x(,|$)", {"x", "a,x", "x,a", "a,x,b"}, {"ax", "xa"});
  expect_found("^$", {""}, {"a"});
  expect_found("", {"", "anything"}, {});
}

TEST(Pattern, Lookahead) {
  expect_whole("(?=.*\\d)(?=.*[a-z])[a-z0-9]{2,4}", {"a1", "1abc"}, {"ab", "12", "a1234", "A1"});
  expect_whole("(?!admin$|root$)[a-z]+", {"user", "administrator", "rooty"}, {"admin", "root"});
  expect_whole("a(?!b).", {"ac", "aa"}, {"ab", "a"});
}

TEST(Pattern, RefusalsQuoteTheOffset) {
  EXPECT_EQ(regex_error_of("(a"), "the pattern \"(a\" has a group without an end at offset 2");
  EXPECT_NE(regex_error_of("a)").find("at offset 1"), std::string::npos);
  EXPECT_NE(regex_error_of("[z-a]").find("range out of order"), std::string::npos);
  EXPECT_NE(regex_error_of("*a").find("nothing to repeat at offset 0"), std::string::npos);
  EXPECT_NE(regex_error_of("a**").find("nothing to repeat"), std::string::npos);
  EXPECT_NE(regex_error_of("a{3,2}").find("counts out of order"), std::string::npos);
  EXPECT_NE(regex_error_of("\\q").find("escape that does not exist"), std::string::npos);
  EXPECT_NE(regex_error_of("a\\c").find("its end where a character is due at offset 3"), std::string::npos);
  EXPECT_NE(regex_error_of("(?<=a)b").find("lookbehind"), std::string::npos);
  EXPECT_NE(regex_error_of("(a)\\1").find("backreference"), std::string::npos);
  EXPECT_NE(regex_error_of("a\\b").find("word boundary"), std::string::npos);
  EXPECT_NE(regex_error_of("(?i)a").find("group of this kind"), std::string::npos);
  EXPECT_NE(regex_error_of("a$b").find("matches no text"), std::string::npos);
  EXPECT_NE(regex_error_of("\\p{Script=Greek}").find("property"), std::string::npos);
}

TEST(Pattern, CountsAreNotUnrolled) {
  EXPECT_LT(Grammar::from_regex("(a{1000}){1000}").store().size(), 100u);
  const Grammar grammar = Grammar::from_regex("(a{100}){100}");
  EXPECT_FALSE(matches(grammar, std::string(9999, 'a')));
  EXPECT_TRUE(matches(grammar, std::string(10000, 'a')));
}

}  // namespace
}  // namespace quipu::text::grammar

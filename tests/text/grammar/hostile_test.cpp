// Grammars that mean harm: an error or a small automaton, never a crash, a hang or much memory.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support.hpp"
#include "text/grammar/finish.hpp"
#include "text/grammar/grammar.hpp"
#include "text/grammar/pattern.hpp"
#include "text/grammar/small_tables.hpp"

namespace quipu::text::grammar {
namespace {

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

/// Compiles; reads `text` and makes masks on the way, as far as it is allowed. Errors are fine.
void survive(const std::function<Grammar()>& make, std::string_view text) {
  try {
    const auto constraint = std::make_shared<Constraint>(make(), test::byte_table({"aa", "aaaa"}));
    EXPECT_LT(constraint->max_memory, std::size_t{1} << 30);
    Matcher matcher(constraint);
    for (const char c : text) {
      matcher.allowed();
      if (!matcher.accept(static_cast<unsigned char>(c))) break;
    }
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::unsupported || error.code() == ErrorCode::invalid_argument)
        << error.message();
  }
}
void survive_gbnf(const std::string& source, std::string_view text = "") {
  survive([&] { return Grammar::from_gbnf(source); }, text);
}

TEST(Hostile, DeepGroups) {
  survive_gbnf("root ::= " + std::string(60000, '(') + "\"a\"" + std::string(60000, ')'));
  survive_gbnf("root ::= " + std::string(60000, '('));
  survive([] { return Grammar::from_regex(std::string(60000, '(') + "a" + std::string(60000, ')')); }, "a");
}

TEST(Hostile, ChainsOfRules) {
  std::string source = "root ::= r0\n";
  for (int i = 0; i < 20000; ++i)
    source += "r" + std::to_string(i) + " ::= \"a\"? r" + std::to_string(i + 1) + "\n";
  source += "r20000 ::= \"b\"\n";
  survive_gbnf(source, "aaab");
}

TEST(Hostile, AmbiguousRecursion) {
  survive_gbnf("root ::= \"a\" root root | \"a\"", std::string(60, 'a'));
  survive_gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"", std::string(2000, 'a'));
  survive_gbnf("root ::= (\"a\" | \"aa\" | \"aaa\")* \"b\"", std::string(500, 'a'));
  survive_gbnf("root ::= ((\"a\"{0,50}){0,50}){0,50}", std::string(200, 'a'));
}

TEST(Hostile, ManyOptionalParts) {
  // Their time grows with the square.
  constexpr int kShare = test::kSanitizerShare > 1 ? 2 * test::kSanitizerShare : 1;
  survive_gbnf("root ::= " + repeated("\"a\"? ", 2500 / kShare) + "\"b\"", std::string(20, 'a'));
  survive_gbnf("root ::= " + repeated("(\"a\"* \"b\"*)* ", 300 / kShare), "ababab");
}

TEST(Hostile, CountsAreNotUnrolled) {
  const Grammar grammar = Grammar::from_gbnf("root ::= ([a-z]{1000000} | \"0\"{4294967294}){1000000}");
  EXPECT_LT(grammar.store().size(), 100u);
  const Grammar schema = Grammar::from_json_schema(
      R"({"type":"object","properties":{"s":{"type":"string","maxLength":65536},
          "a":{"type":"array","minItems":1,"maxItems":100000}}})");
  EXPECT_LT(schema.store().size(), 3000u);
}

TEST(Hostile, ExponentialExpressions) {
  survive([] { return Grammar::from_regex("(a|b)*a(a|b){500}"); }, repeated("ab", 300));
  survive([] { return Grammar::from_regex("(a*)*(a*)*(a*)*(b|a*)*c"); }, std::string(200, 'a'));
  std::string looks;
  for (int i = 2; i < 40; ++i) looks += "(?=(a{" + std::to_string(i) + "})*$)";
  survive([&] { return Grammar::from_regex(looks + "a+"); }, std::string(50, 'a'));
}

TEST(Hostile, PatternsThatAreTooMuchTogetherAreNamed) {
  try {
    Grammar::from_json_schema(
        R"({"type":"object","properties":{"s":{"type":"string","minLength":100,"allOf":[
            {"pattern":"^([a-z][0-9])+$"},{"pattern":"((b2d4f4).{4,8}){6,6}"},{"pattern":"(u|7){10,10}$"},
            {"not":{"pattern":"^([a-z][0-9])*$"}}]}},"required":["s"]})");
    ADD_FAILURE() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("#/properties/s/allOf/0/pattern"), std::string::npos) << error.message();
  }
}

TEST(Hostile, SchemasThatMultiply) {
  // 2^n combinations of alternatives.
  std::string all;
  for (int i = 0; i < 30; ++i) {
    const std::string name = std::to_string(i);
    all += std::string(i > 0 ? "," : "") + R"({"anyOf":[{"required":["a)" + name + R"("]},{"required":["b)" +
           name + R"("]}]})";
  }
  survive([&] { return Grammar::from_json_schema("{\"allOf\":[" + all + "]}"); }, "{}");
  std::string depends;
  for (int i = 0; i < 40; ++i)
    depends +=
        std::string(i > 0 ? "," : "") + "\"p" + std::to_string(i) + "\":[\"q" + std::to_string(i) + "\"]";
  survive([&] { return Grammar::from_json_schema("{\"dependentRequired\":{" + depends + "}}"); }, "{}");
}

TEST(Hostile, SchemasThatAreLarge) {
  std::string properties;
  for (int i = 0; i < 3000; ++i)
    properties +=
        std::string(i > 0 ? "," : "") + "\"property" + std::to_string(i) + "\":{\"type\":\"string\"}";
  survive(
      [&] { return Grammar::from_json_schema("{\"properties\":{" + properties + "},\"type\":\"object\"}"); },
      R"({"property7":"x","property2999":")");
  std::string values;
  for (int i = 0; i < 20000; ++i)
    values += std::string(i > 0 ? "," : "") + "\"value" + std::to_string(i) + "\"";
  survive([&] { return Grammar::from_json_schema("{\"enum\":[" + values + "]}"); }, "\"value19999\"");
  survive(
      [&] {
        return Grammar::from_json_schema("{\"enum\":[\"" + std::string(100000, 'x') + "1\",\"" +
                                         std::string(100000, 'x') + "2\"]}");
      },
      "\"xxxx");
}

TEST(Hostile, RequiredMoreThanThereIs) {
  for (const char* schema :
       {R"({"type":"string","minLength":1000000000})", R"({"type":"array","minItems":1000000000})",
        R"({"type":"object","minProperties":1000000000})"})
    EXPECT_THROW(Grammar::from_json_schema(schema), Error) << schema;
}

TEST(Hostile, ANegationThatLeadsToItselfComesToAnEnd) {
  // Lists of lists with an item that is none of these, to any depth.
  const Grammar grammar = Grammar::from_json_schema(
      R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"array","not":{"items":{"$ref":"#/$defs/t"}}}}})");
  EXPECT_TRUE(matches(grammar, "[1]"));
  EXPECT_TRUE(matches(grammar, "[[]]"));
  EXPECT_FALSE(matches(grammar, "[]"));
  EXPECT_FALSE(matches(grammar, "[[1]]"));
}

// x{a,b}·y | x{c,d}·y is x{min,max}·y where the counts meet, and not where they do not.
TEST(Hostile, WaysThatDifferInACountAloneAreOne) {
  Store store;
  const Id x = store.literal("xz"), y = store.literal("y");
  const auto counted = [&](std::uint32_t low, std::uint32_t high) {
    return store.concat(store.repeat(x, low, high), y);
  };
  EXPECT_EQ(store.choice(counted(1, 4), counted(3, 9)), counted(1, 9));
  EXPECT_EQ(store.choice(counted(5, 9), counted(1, 4)), counted(1, 9));
  EXPECT_EQ(store.choice(counted(2, kUnbounded), counted(0, 2)), counted(0, kUnbounded));
  EXPECT_NE(store.choice(counted(6, 9), counted(1, 4)), counted(1, 9));
  const Grammar apart = Grammar::from_gbnf("root ::= (\"ab\"{1,2} | \"ab\"{4} | \"ab\"{5,6}) \"c\"");
  for (const std::size_t count : {1u, 2u, 4u, 5u, 6u})
    EXPECT_TRUE(matches(apart, repeated("ab", count) + "c"));
  for (const std::size_t count : {0u, 3u, 7u}) EXPECT_FALSE(matches(apart, repeated("ab", count) + "c"));
}

// Whether a text can still end is found without going through all the white space that may come.
TEST(Hostile, CountedWordsOfCountedCharacters) {
  Store draft;
  Encoder encoder(draft, Encoding::utf8);
  const Id both = draft.both(pattern(encoder, R"((?:\S+\s+){0,99}\S+)", Anchoring::whole),
                             pattern(encoder, R"([^]{1,5000})", Anchoring::whole));
  Store store;
  Id state = finish(draft, draft.lexeme(both), store);
  for (const char c : repeated("word ", 90)) {
    store.begin_work();
    state = store.derive(state, store.symbol(static_cast<unsigned char>(c)));
    ASSERT_NE(state, kNever);
  }
  EXPECT_LT(store.size(), 30'000u);
  EXPECT_EQ(store.derive(state, store.symbol(' ')) == kNever, false);
  for (const char c : repeated("a ", 9) + "a")
    state = store.derive(state, store.symbol(static_cast<unsigned char>(c)));
  EXPECT_TRUE(store.nullable(state));  // 100 words
  state = store.derive(state, store.symbol(' '));
  EXPECT_EQ(state, kNever);
}

// Domain names as a well-known schema has them: lookahead over counts in counts.
TEST(Hostile, LookaheadOverCountsInCounts) {
  const auto constraint = std::make_shared<Constraint>(
      Grammar::from_regex(R"(^(?!.*://)(?=.{1,255}$)((.{1,63}\.){1,127}(?![0-9]*$)[a-z0-9-]+\.?)$)"),
      test::byte_table({"......", "................................", "com", "://"}));
  Matcher matcher(constraint);
  for (const char c : std::string_view("a.b.example.com")) {
    EXPECT_TRUE(has_bit(*matcher.allowed(), static_cast<unsigned char>(c)));
    ASSERT_TRUE(matcher.accept(static_cast<unsigned char>(c)));
  }
  EXPECT_TRUE(matcher.is_accepting());
  EXPECT_FALSE(has_bit(*matcher.allowed(), 259));
  matcher.rollback(3);
  for (const char c : std::string_view("123")) ASSERT_TRUE(matcher.accept(static_cast<unsigned char>(c)));
  EXPECT_FALSE(matcher.is_accepting());
}

}  // namespace
}  // namespace quipu::text::grammar

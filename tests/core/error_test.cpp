#include "core/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace quipu {
namespace {

using namespace std::string_literals;

TEST(Printable, LeavesPlainTextAsItIs) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
  EXPECT_EQ(printable("naïve 日本語 🙂 it's"), "naïve 日本語 🙂 it's");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable("\x1b[31mred\x7f\0!"s), "\\x1B[31mred\\x7F\\x00!");
}

TEST(Printable, EscapesQuotesAndBackslashes) { EXPECT_EQ(printable(R"(a"b\c)"), R"(a\"b\\c)"); }

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xFF\xFE"), "\\xFF\\xFE");
  EXPECT_EQ(printable("\xC3"), "\\xC3");                             // cut short
  EXPECT_EQ(printable("\xE2\x82x"), "\\xE2\\x82x");                  // cut short, then a letter
  EXPECT_EQ(printable("\xC0\xAF"), "\\xC0\\xAF");                    // overlong slash
  EXPECT_EQ(printable("\xE0\x80\xAF"), "\\xE0\\x80\\xAF");           // overlong slash
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xED\\xA0\\x80");           // surrogate
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(printable("\x80"), "\\x80");                             // lone continuation
}

TEST(Printable, EscapesCharactersThatDeceiveTheEye) {
  EXPECT_EQ(printable("\u009b31m"), "\\u{9B}31m");    // C1 control sequence introducer
  EXPECT_EQ(printable("a\u200bb"), "a\\u{200B}b");    // zero-width space
  EXPECT_EQ(printable("a\u200db"), "a\\u{200D}b");    // zero-width joiner
  EXPECT_EQ(printable("a\u202eb"), "a\\u{202E}b");    // right-to-left override
  EXPECT_EQ(printable("a\u2066b"), "a\\u{2066}b");    // left-to-right isolate
  EXPECT_EQ(printable("\ufeffa"), "\\u{FEFF}a");      // byte order mark
  EXPECT_EQ(printable("a\u2028b"), "a\\u{2028}b");    // line separator
  EXPECT_EQ(printable("\U000e0041"), "\\u{E0041}");   // tag letter
  EXPECT_EQ(printable("\U0010ffff"), "\\u{10FFFF}");  // noncharacter
}

TEST(Printable, CutsOnACharacterBorderAndSaysSo) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef…");
  EXPECT_EQ(printable("aé", 2), "a…");
  EXPECT_EQ(printable("ab\n", 3), "ab…");  // half of an escape would say something else
  EXPECT_EQ(printable("abc", 0), "…");
  EXPECT_EQ(printable("", 0), "");
  const std::string shown = printable(std::string(1'000'000, 'x'));
  EXPECT_EQ(shown, std::string(200, 'x') + "…");
}

TEST(Fail, ThrowsTheCodeAndTheFormattedSentence) {
  try {
    fail(ErrorCode::bad_file, "offset {} of \"{}\"", 12, "x.gguf");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    EXPECT_STREQ(error.what(), "offset 12 of \"x.gguf\"");
    EXPECT_EQ(error.message(), error.what());
  }
}

TEST(ErrorCode, HasTheNameOfItsEnumerator) {
  EXPECT_EQ(to_string(ErrorCode::invalid_argument), "invalid_argument");
  EXPECT_EQ(to_string(ErrorCode::context_overflow), "context_overflow");
  EXPECT_EQ(to_string(ErrorCode::internal), "internal");
}

}  // namespace
}  // namespace quipu

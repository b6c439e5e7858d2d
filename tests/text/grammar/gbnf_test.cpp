// GBNF: grammars in the manner of llama.cpp's examples, with texts judged by hand.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "text/grammar/grammar.hpp"

namespace quipu::text::grammar {
namespace {

void expect_texts(std::string_view source, std::initializer_list<std::string_view> accepted,
                  std::initializer_list<std::string_view> refused) {
  const Grammar grammar = Grammar::from_gbnf(source);
  for (const std::string_view text : accepted) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const std::string_view text : refused) EXPECT_FALSE(matches(grammar, text)) << text;
}

std::string error_of(std::string_view source) {
  try {
    Grammar::from_gbnf(source);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Gbnf, Json) {
  expect_texts(R"(
    root   ::= object
    value  ::= object | array | string | number | ("true" | "false" | "null") ws

    object ::=
      "{" ws (
                string ":" ws value
        ("," ws string ":" ws value)*
      )? "}" ws

    array  ::=
      "[" ws (
                value
        ("," ws value)*
      )? "]" ws

    string ::=
      "\"" (
        [^"\\\x7F\x00-\x1F] |
        "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
      )* "\"" ws

    number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

    # Bounded, so that a model does not write spaces for ever
    ws ::= | " " | "\n" [ \t]{0,20}
  )",
               {"{}", "{ }", R"({"a": [1, -2.5e3, "x\n\u00e9", {"b":null}], "c":true})", "{\n  \"a\": 1}"},
               {"[]", "{", R"({"a"})", R"({"a":1,})", R"({"a":"\x"})", R"({"a":01})", "{   }", "{}}"});
}

TEST(Gbnf, Arithmetic) {
  expect_texts(R"_(root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)_",
               {"1+2=3\n", "(a_1 *(b -2))/7 = x\n", "x=1\ny=2\n"},
               {"1+2=3", "1+=3\n", "(1=2\n", "A=1\n", "\n"});
}

TEST(Gbnf, List) {
  expect_texts(R"(root ::= item+

# Excludes various line break characters
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
)",
               {"- a\n", "- one thing\n- další 🦙\n"},
               {"", "- \n", "- a", "- a\xe2\x80\xa8\n", "- a\xc2\x85\n"});
}

TEST(Gbnf, Chess) {
  expect_texts(R"(
root    ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move    ::= (pawn | nonpawn | castle) [+#]?
# piece type, optional file/rank, optional capture, dest file & rank
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
# optional file & capture, dest file & rank, optional promotion
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?
)",
               {"1. e4 e5\n2. Nf3 Nc6\n", "1. d4 Nf6\n2. Bxe5+ O-O-O\n3. exd8=Q# Rae1\n"},
               {"1. e4 e5\n", "1. e9 e5\n2. a3 a6\n", "1. e4 e5\n2. O-O-O-O a6\n", "2. e4 e5\n3. a3 a6\n"});
}

TEST(Gbnf, Repeats) {
  expect_texts(R"(root ::= "a"{2} "b"{1,3} [cd]{2,} "xy"{0,1} .{1})",
               {"aabccz", "aabbbcdcdcdxy\xc3\xa9", "aabccx", "aabccxyq"},
               {"abccz", "aabbbbccz", "aabcz", "aabccxyxyz", "aabcc"});
  expect_texts(R"(root ::= ("a" | "b"?)* "c")", {"c", "abac"}, {"", "abd"});
  expect_texts("root ::= \"a\"{3}{2} | \"b\"+?", {"aaaaaa", "", "b", "bbb"}, {"aaa", "aaaaaaa"});
}

TEST(Gbnf, ClassesAndEscapes) {
  expect_texts(R"(root ::= [\x41-\x43\u00e9\U0001F999\]\\-] "\x42\u00e9\t\"\\\[\]")",
               {"AB\xc3\xa9\t\"\\[]",
                "\xf0\x9f\xa6\x99"
                "B\xc3\xa9\t\"\\[]",
                "-B\xc3\xa9\t\"\\[]"},
               {"DB\xc3\xa9\t\"\\[]", "AB\xe9\t\"\\[]"});
  expect_texts("root ::= [^a-y]", {"z", "A", "\n", "\xc3\xa9", "\xf0\x9f\xa6\x99"}, {"a", "", "zz", "\xc3"});
}

TEST(Gbnf, LayoutOfAlternatives) {
  expect_texts("root ::= \"a\" | # one\n  \"b\"\n  | \"c\" # last\n\n# end\nother ::= \"d\"", {"a", "b", "c"},
               {"d", "ab"});
  expect_texts("root ::= | \"a\"\r\n", {"", "a"}, {"aa"});
}

TEST(Gbnf, RecursionIsContextFree) {
  const Grammar grammar = Grammar::from_gbnf(R"_(root ::= "(" root ")" | "")_");
  const std::string open(2000, '('), close(2000, ')');
  EXPECT_TRUE(matches(grammar, open + close));
  EXPECT_FALSE(matches(grammar, open + close + ")"));
  EXPECT_FALSE(matches(grammar, "(" + open + close));
}

TEST(Gbnf, ErrorsNameThePlace) {
  EXPECT_EQ(error_of("root ::= \"a\"\nx ::= y"),
            "the grammar has the rule \"y\", which is not defined at 2:7");
  EXPECT_NE(error_of("root ::= \"a").find("at 1:12"), std::string::npos) << error_of("root ::= \"a");
  EXPECT_NE(error_of("root ::= [z-a]").find("range out of order at 1:14"), std::string::npos);
  EXPECT_NE(error_of("root ::= (\"a\"\n").find("')' is expected at 2:1"), std::string::npos);
  EXPECT_NE(error_of("root = \"a\"").find("'::=' is expected at 1:6"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"\\q\"").find("escape that does not exist at 1:12"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"a\"{3,2}").find("counts out of order"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"a\"\nroot ::= \"b\"").find("defined already at 2:1"), std::string::npos);
  EXPECT_NE(error_of("start ::= \"a\"").find("no rule \"root\""), std::string::npos);
  EXPECT_NE(error_of("").find("no rule \"root\""), std::string::npos);
}

TEST(Gbnf, LeftRecursionIsNamed) {
  for (const char* source :
       {"root ::= root \"a\" | \"b\"", "root ::= x\nx ::= y \"a\" | \"b\"\ny ::= \"c\"? x \"d\"",
        "root ::= (\"\" root)+ \"a\" | \"b\""}) {
    const std::string message = error_of(source);
    EXPECT_NE(message.find("left recursion"), std::string::npos) << source << ": " << message;
    EXPECT_NE(message.find("the rule \""), std::string::npos) << message;
  }
}

TEST(Gbnf, NothingFiniteIsRefused) {
  for (const char* source : {"root ::= \"a\" root", "root ::= x\nx ::= \"(\" x \")\"", "root ::= []"})
    EXPECT_NE(error_of(source).find("no text"), std::string::npos) << source << ": " << error_of(source);
  // A branch without end is left out.
  expect_texts("root ::= \"a\" x | \"b\"\nx ::= \"c\" x", {"b"}, {"a", "ac"});
}

}  // namespace
}  // namespace quipu::text::grammar

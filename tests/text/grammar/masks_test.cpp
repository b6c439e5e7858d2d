// Masks against the automaton itself: a token's bit says exactly whether it is accepted.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "text/grammar/free_text.hpp"
#include "text/grammar/grammar.hpp"
#include "text/grammar/small_tables.hpp"

namespace quipu::text::grammar {
namespace {

std::vector<std::string> many_tokens() {
  std::vector<std::string> tokens{"{\"",
                                  "\":",
                                  "\": \"",
                                  "\",",
                                  "\", \"",
                                  "\"}",
                                  "\"]",
                                  "}}",
                                  "],",
                                  ", ",
                                  "  ",
                                  "\n  ",
                                  "true",
                                  "null",
                                  "name",
                                  "na",
                                  "ame\"",
                                  "\\n",
                                  "\\\"",
                                  "\\u00",
                                  "12",
                                  "0.5",
                                  "e1",
                                  "caf\xc3",
                                  "\xc3\xa9",
                                  "\xa9x",
                                  "\xf0\x9f",
                                  "\xa6\x99",
                                  "\xe6\x97\xa5\xe6\x9c\xac",
                                  "</",
                                  "</think>",
                                  "<tool",
                                  "_call>",
                                  "ab",
                                  "abc",
                                  "abcd",
                                  "aaaaaaaa",
                                  "a\"",
                                  "a\": 1"};
  const std::string letters = "abn\"\\{}[]:, 01.-etu<>";
  for (std::uint64_t i = 0; i < 300; ++i) {
    std::string token;
    const auto length = 2 + static_cast<std::size_t>(philox_uniform(7, i) * 4);
    for (std::size_t j = 0; j < length; ++j)
      token += letters[static_cast<std::size_t>(philox_uniform(8, i * 8 + j) *
                                                static_cast<double>(letters.size()))];
    tokens.push_back(token);
  }
  return tokens;
}

/// Walks at random, and at every place asks each token.
void expect_exact(const Grammar& grammar, std::uint64_t seed, std::size_t steps = 40) {
  static const auto table = test::byte_table(many_tokens(), {"<|call|>", "<|other|>"});
  const auto constraint = std::make_shared<Constraint>(grammar, table);
  for (std::uint64_t run = 0; run < 3; ++run) {
    Matcher matcher(constraint);
    for (std::size_t step = 0; step < steps; ++step) {
      const auto allowed = matcher.allowed();
      std::vector<Token> choices;
      for (std::size_t t = 0; t < table->size(); ++t) {
        Matcher copy = matcher;
        const bool accepted = copy.accept(static_cast<Token>(t));
        ASSERT_EQ(has_bit(*allowed, t), accepted)
            << "token " << table->entry(static_cast<Token>(t)).text << " after " << step;
        if (accepted) choices.push_back(static_cast<Token>(t));
      }
      ASSERT_FALSE(choices.empty()) << "a dead end after " << step << " tokens";
      // Long tokens more often: they cross borders.
      const double u = philox_uniform(seed, run * 1000 + step);
      const auto pick = static_cast<std::size_t>(std::sqrt(u) * static_cast<double>(choices.size()));
      ASSERT_TRUE(matcher.accept(choices[std::min(pick, choices.size() - 1)]));
      if (matcher.is_finished()) break;
    }
  }
}

TEST(Masks, AgreeWithTheAutomaton) {
  const char* schemas[] = {
      R"({})",
      R"({"type":"string","maxLength":5})",
      R"({"type":"string","minLength":3,"maxLength":9})",
      R"({"type":"string","pattern":"^[a-n]{2,6}$"})",
      R"({"type":"string","pattern":"a.b","maxLength":12})",
      R"({"type":"object","properties":{"name":{"type":"string"},"na":{"type":"integer"}}})",
      R"({"type":"object","properties":{"a":{"type":"string","maxLength":3}},"required":["a"],
          "additionalProperties":{"type":"array","items":{"type":"number"}}})",
      R"({"type":"object","patternProperties":{"^a":{"type":"boolean"},"b$":{"type":["null","boolean"]}},
          "additionalProperties":false})",
      R"({"anyOf":[{"type":"string","maxLength":2},{"type":"string","pattern":"^a+$"},{"type":"array"}]})",
      R"({"type":"array","items":{"enum":["ab","abc","a\"b",0.5,null]},"minItems":1,"maxItems":3})",
      R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}}})"};
  std::uint64_t seed = 1;
  for (const char* schema : schemas) {
    SCOPED_TRACE(schema);
    expect_exact(Grammar::from_json_schema(schema), seed++);
  }
}

TEST(Masks, AgreeForGrammarsAndPatterns) {
  expect_exact(
      Grammar::from_gbnf("root ::= (\"ab\" | \"abc\" [0-9]*)* \"{\" root \"}\" | [^\\n\"]* \"\\\"\""), 21);
  expect_exact(Grammar::from_gbnf("root ::= [a-z]* \"ab\" .{0,3} | \"<|\" root <|call|>"), 22);
  expect_exact(
      Grammar::from_gbnf("root ::= (!<|call|> | \"{\" [a-e]* \"\\\"\" | </think> root)+ <|other|> \"x\""),
      25);
  expect_exact(Grammar::from_gbnf("root ::= [^\"]* <[300]> (!<[301]> \"a\")* | \"a\" !</think> root"), 26);
  expect_exact(Grammar::from_regex("(a|b|\"){1,4}[^a]*na?"), 23);
  expect_exact(Grammar::from([](Store& store) {
                 FreeText text;
                 text.tags = {{"</think>", store.literal("ab")}, {"<|call|>", store.literal("{\"")}};
                 text.may_end = true;
                 text.controls = {"<|call|>"};
                 return free_text(store, text);
               }),
               24);
}

// A text could otherwise come to a place from which no token leads on.
TEST(Masks, ExactlyOneOfManyPatternsIsHeld) {
  const std::vector<std::string> words{"OPEN",    "ON_HOLD", "ON_LINE", "ON_LAND",
                                       "EXPIRED", "DROPPED", "REOPENS"};
  std::string schema;
  for (const std::string& word : words)
    schema += (schema.empty() ? R"({"pattern":")" : R"(,{"pattern":")") + word + "\"}";
  const auto constraint =
      std::make_shared<Constraint>(Grammar::from_json_schema(R"({"type":"string","oneOf":[)" + schema + "]}"),
                                   test::byte_table(many_tokens()));
  const auto reads = [&](const std::string& text) {
    Matcher matcher(constraint);
    for (const char c : text) {
      matcher.allowed();
      if (!matcher.accept(static_cast<unsigned char>(c))) return false;
    }
    return matcher.is_accepting();
  };
  for (const std::string& word : words)
    EXPECT_EQ(reads("\"" + word + "\""), word != "REOPENS") << word;  // it has OPEN inside
  EXPECT_TRUE(reads("\"so it is ON_LAND, caf\xc3\xa9\""));
  EXPECT_FALSE(reads("\"ON_LAND or ON_LINE\""));
  EXPECT_FALSE(reads("\"ON\""));
}

TEST(Masks, AControlTokenThatTheVocabularyLacksIsRefusedByName) {
  const Grammar grammar = Grammar::from_gbnf("root ::= . <|call|>");
  EXPECT_NO_THROW(Constraint(grammar, test::byte_table({}, {"<|call|>"})));
  try {
    Constraint(grammar, test::byte_table({}, {"<|other|>"}));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find("<|call|>"), std::string::npos) << error.message();
  }
}

TEST(Masks, DoNotDependOnWhatWasAskedBefore) {
  const auto table = test::byte_table(many_tokens());
  const Grammar grammar = Grammar::from_json_schema(R"({"type":"object"})");
  const auto constraint = std::make_shared<Constraint>(grammar, table);
  const std::string text = R"({"name": ["caf)";
  Matcher walked(constraint);
  for (const char c : text) {
    walked.allowed();
    ASSERT_TRUE(walked.accept(static_cast<unsigned char>(c)));
  }
  Matcher fresh(std::make_shared<Constraint>(grammar, test::byte_table(many_tokens())));
  for (const char c : text) ASSERT_TRUE(fresh.accept(static_cast<unsigned char>(c)));
  EXPECT_EQ(*walked.allowed(), *fresh.allowed());
}

TEST(Matcher, RollsBackAndCopies) {
  const auto table = test::byte_table();
  const auto constraint = std::make_shared<Constraint>(Grammar::from_regex("ab|acd"), table);
  Matcher matcher(constraint);
  ASSERT_TRUE(matcher.accept('a'));
  Matcher other = matcher;
  ASSERT_TRUE(matcher.accept('b'));
  EXPECT_TRUE(matcher.is_accepting());
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(other.is_accepting());
  ASSERT_TRUE(other.accept('c'));
  EXPECT_FALSE(other.accept('b'));
  EXPECT_EQ(other.accepted(), 2u);
  matcher.rollback(1);
  EXPECT_FALSE(matcher.is_accepting());
  ASSERT_TRUE(matcher.accept('c'));
  ASSERT_TRUE(matcher.accept('d'));
  const Token end = table->ends().front();
  ASSERT_TRUE(matcher.accept(end));
  EXPECT_TRUE(matcher.is_finished());
  EXPECT_FALSE(matcher.accept('d'));
  matcher.rollback(4);
  EXPECT_EQ(matcher.accepted(), 0u);
  EXPECT_FALSE(matcher.accept(end));
  EXPECT_THROW(matcher.rollback(1), Error);
}

/// A token that the mask has, or, now and then, any.
Token drawn(std::mt19937& random, const Bits& mask, std::size_t size) {
  std::vector<Token> allowed;
  for (std::size_t i = 0; i < size; ++i)
    if (mask[i / 64] >> (i % 64) & 1) allowed.push_back(static_cast<Token>(i));
  if (random() % 8 == 0) return static_cast<Token>(random() % size);
  return allowed[random() % allowed.size()];
}

TEST(Matcher, MasksAlongADraftAreThoseOfOneTokenAfterTheOther) {
  const auto table = test::byte_table(many_tokens());
  const Grammar schema = Grammar::from_json_schema(
      R"({"type":"object","properties":{"s":{"type":"string","maxLength":60},"n":{"type":"array","items":
          {"type":"integer"},"maxItems":4}},"required":["s","n"],"additionalProperties":false})");
  const Grammar thoughts = Grammar::from([&](Store& store) {
    std::vector<Id> map(schema.store().size(), Store::kUnknown);
    return free_text(store, {.tags = {{"</t>", store.import_grammar(schema.store(), schema.start(), map)}},
                             .may_end = false,
                             .budget = 6,
                             .controls = {}});
  });
  for (const Grammar& grammar : {schema, thoughts}) {
    const auto constraint = std::make_shared<Constraint>(grammar, table);
    std::mt19937 random(7);
    // Two sequences in turn, each with its twin that never looks ahead.
    std::vector<Matcher> ahead(2, Matcher(constraint));
    std::vector<Matcher> plain(2, Matcher(std::make_shared<Constraint>(grammar, table)));
    std::size_t kept = 0;
    for (int turn = 0; turn < 120; ++turn) {
      const int which = turn % 2;
      if (plain[which].is_finished()) break;
      Matcher writer = plain[which];
      std::vector<Token> draft;
      for (int i = 0; i < 5 && !writer.is_finished(); ++i) {
        draft.push_back(drawn(random, *writer.allowed(), table->size()));
        if (!writer.accept(draft.back())) break;
      }
      const auto masks = ahead[which].allowed_along(draft);
      ASSERT_LE(masks.size(), draft.size() + 1);
      // The target takes some of the draft, or all that may come.
      const std::size_t most = 1 + random() % draft.size();
      std::size_t taken = 0;
      for (std::size_t i = 0; i < draft.size(); ++i) {
        ASSERT_LT(i, masks.size());
        EXPECT_EQ(*masks[i], *plain[which].allowed());
        if (i == most || !plain[which].accept(draft[i])) break;
        ++taken;
      }
      const std::span<const Token> part(draft.data(), std::min(most, draft.size()));
      EXPECT_EQ(ahead[which].accept_prefix(part), taken);
      EXPECT_EQ(ahead[which].accepted(), plain[which].accepted());
      kept += taken;
    }
    EXPECT_GT(kept, 30u);
  }
}

TEST(Matcher, MovesOnWhenStatesTakeTooMuchMemory) {
  const auto table = test::byte_table();
  const auto constraint = std::make_shared<Constraint>(
      Grammar::from_json_schema(R"({"type":"array","items":{"type":"integer"},"maxItems":100000})"), table);
  constraint->max_memory = 1 << 20;
  Matcher matcher(constraint);
  Matcher early = matcher;
  ASSERT_TRUE(matcher.accept('['));
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(matcher.accept('7'));
    ASSERT_TRUE(matcher.accept(','));
  }
  ASSERT_TRUE(matcher.accept('7'));
  ASSERT_TRUE(matcher.accept(']'));
  EXPECT_TRUE(matcher.is_accepting());
  ASSERT_TRUE(early.accept('['));
  matcher.rollback(2);
  ASSERT_TRUE(matcher.accept('8'));
  EXPECT_FALSE(matcher.is_accepting());
}

TEST(Matcher, AFreeTextWithABudgetIsEndedByForce) {
  const auto table = test::byte_table({"hello "});
  const Grammar grammar = Grammar::from([](Store& store) {
    return free_text(
        store, {.tags = {{"</t>", store.literal("42")}}, .may_end = false, .budget = 5, .controls = {}});
  });
  const auto constraint = std::make_shared<Constraint>(grammar, table);
  Matcher matcher(constraint);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(matcher.accept(256));
  ASSERT_TRUE(matcher.accept('<'));  // the fifth: half of the tag is there
  EXPECT_FALSE(matcher.accept('x'));
  for (const char c : std::string("/t>42")) ASSERT_TRUE(matcher.accept(static_cast<unsigned char>(c))) << c;
  EXPECT_TRUE(matcher.is_complete());
  Matcher early(constraint);
  for (const char c : std::string("</t>42")) ASSERT_TRUE(early.accept(static_cast<unsigned char>(c))) << c;
  EXPECT_TRUE(early.is_complete());
}

TEST(TokenTable, EqualTextsAndEmptyOnes) {
  using Use = TokenTable::Use;
  const auto table = std::make_shared<const TokenTable>(std::vector<TokenTable::Entry>{{"a", Use::text},
                                                                                       {"a", Use::text},
                                                                                       {"", Use::text},
                                                                                       {"ab", Use::text},
                                                                                       {"<e>", Use::end},
                                                                                       {"a", Use::never}});
  Matcher matcher(std::make_shared<Constraint>(Grammar::from_regex("ab?"), table));
  EXPECT_EQ(*matcher.allowed(), Bits{0b001011});
  EXPECT_FALSE(matcher.accept(2));
  EXPECT_FALSE(matcher.accept(5));
  EXPECT_FALSE(matcher.accept(-1));
  EXPECT_FALSE(matcher.accept(6));
  ASSERT_TRUE(matcher.accept(1));
  EXPECT_EQ(*matcher.allowed(), Bits{0b010000});
}

}  // namespace
}  // namespace quipu::text::grammar

// Tokens named in GBNF: <text>, <[id]>, !<text>, !<[id]>. What llama.cpp lets through, and places by hand.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>
#include <random>

#include "core/error.hpp"
#include "support.hpp"
#include "text/grammar/free_text.hpp"
#include "text/grammar/grammar.hpp"
#include "text/grammar/lazy.hpp"
#include "text/grammar/small_tables.hpp"

namespace quipu::text::grammar {
namespace {

using Tokens = std::vector<Token>;

constexpr Token kThe = 256, kToolCall = 257, kTh = 258, kHalf = 259, kCall = 260, kOther = 261, kEnd = 262;

std::shared_ptr<const TokenTable> small_table() {
  return test::byte_table({" the", "<tool_call>", " th", "\xf0\x9f"}, {"<|call|>", "<|other|>"});
}

Tokens allowed_tokens(Matcher& matcher, std::size_t size) {
  const auto bits = matcher.allowed();
  Tokens tokens;
  for (std::size_t t = 0; t < size; ++t)
    if (has_bit(*bits, t)) tokens.push_back(static_cast<Token>(t));
  return tokens;
}

Tokens allowed_after(std::string_view source, const Tokens& after) {
  const auto table = small_table();
  Matcher matcher(std::make_shared<Constraint>(Grammar::from_gbnf(source), table));
  for (const Token token : after) EXPECT_TRUE(matcher.accept(token)) << source << ": " << token;
  return allowed_tokens(matcher, table->size());
}

std::string refusal(std::string_view source, const std::shared_ptr<const TokenTable>& table) {
  try {
    const Constraint constraint(Grammar::from_gbnf(source), table);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported);
    return error.message();
  }
  return "";
}

/// Every token but some.
Tokens all_but(Tokens excluded) {
  excluded.push_back(kEnd);
  Tokens tokens;
  for (Token t = 0; t <= kEnd; ++t)
    if (std::find(excluded.begin(), excluded.end(), t) == excluded.end()) tokens.push_back(t);
  return tokens;
}

// tools/goldens/make_gbnf_token_goldens.py; a vocabulary of which the other tokens are never generated.
TEST(GbnfTokens, LetThroughWhatLlamaCppLetsThrough) {
  std::ifstream in(test::source_path("tests/goldens/text/gbnf_tokens.json"));
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const boost::json::object golden = boost::json::parse(text).as_object();
  std::vector<TokenTable::Entry> entries(golden.at("vocabulary").to_number<std::size_t>(),
                                         {"", TokenTable::Use::never});
  for (const auto& item : golden.at("tokens").as_array()) {
    const auto& token = item.as_array();
    const std::string use = token[1].as_string().c_str();
    entries[token[0].to_number<std::size_t>()] = {std::string(token[2].as_string()),
                                                  use == "end"       ? TokenTable::Use::end
                                                  : use == "control" ? TokenTable::Use::control
                                                                     : TokenTable::Use::text};
  }
  const auto table = std::make_shared<const TokenTable>(std::move(entries));
  std::size_t places = 0;
  for (const auto& item : golden.at("cases").as_array()) {
    const std::string source(item.at("grammar").as_string());
    SCOPED_TRACE(source);
    const auto constraint = std::make_shared<Constraint>(Grammar::from_gbnf(source), table);
    for (const auto& place : item.at("places").as_array()) {
      const auto after = boost::json::value_to<Tokens>(place.at("after"));
      Matcher matcher(constraint);
      for (const Token token : after) ASSERT_TRUE(matcher.accept(token)) << source << ": " << token;
      EXPECT_EQ(allowed_tokens(matcher, table->size()), boost::json::value_to<Tokens>(place.at("allowed")))
          << source << " after " << boost::json::serialize(place.at("after"));
      ++places;
    }
  }
  EXPECT_EQ(places, 46u);
  for (const auto& source : golden.at("refused").as_array())
    EXPECT_NE(refusal(source.as_string(), table), "") << source;
}

TEST(GbnfTokens, ATokenIsReadAsAWhole) {
  // Its text, spelled by other tokens, is something else; and it may write text all the same.
  EXPECT_EQ(allowed_after("root ::= <[256]> \"!\"", {}), Tokens{kThe});
  EXPECT_EQ(allowed_after("root ::= <tool_call>", {}), Tokens{kToolCall});
  EXPECT_EQ(allowed_after("root ::= \"<tool_call>\" | <[65]>", {}), (Tokens{'<', 'A', kToolCall}));
  EXPECT_EQ(allowed_after("root ::= \"<tool\" <tool_call>", {'<', 't', 'o', 'o', 'l'}), Tokens{kToolCall});
  // Characters before it end where a token ends.
  EXPECT_EQ(allowed_after("root ::= \" \" <[258]> \"e\"", {}), Tokens{' '});
  EXPECT_EQ(allowed_after("root ::= \" \" <[258]> \"e\"", {' '}), Tokens{kTh});
  // Both readings at once go on side by side.
  const char* both = "root ::= <[258]> \"1\" | \" t\" [a-z] \"2\" | !<[256]> \"3\"";
  EXPECT_EQ(allowed_after(both, {kTh}), (Tokens{'1', '2', '3'}));
  EXPECT_EQ(allowed_after(both, {' '}), (Tokens{'3', 't'}));
  EXPECT_EQ(allowed_after(both, {kCall}), Tokens{'3'});
}

TEST(GbnfTokens, AnyTokenButOne) {
  EXPECT_EQ(allowed_after("root ::= !<|call|>", {}), all_but({kCall}));
  EXPECT_EQ(allowed_after("root ::= !<[256]> \"x\"", {}), all_but({kThe}));
  EXPECT_EQ(allowed_after("root ::= !<[256]> \"x\"", {kTh}), Tokens{'x'});
  // Parts of characters and control tokens too, but no end: that comes where the text is complete.
  EXPECT_EQ(allowed_after("root ::= !<tool_call>", {kHalf}), Tokens{kEnd});
  EXPECT_EQ(allowed_after("root ::= !<tool_call>", {kOther}), Tokens{kEnd});
  EXPECT_EQ(allowed_after("root ::= !<end>", {}), all_but({}));
  EXPECT_EQ(allowed_after("root ::= !<tool_call> | <end> \"x\"", {}), [] {
    Tokens tokens = all_but({kToolCall});
    tokens.push_back(kEnd);
    return tokens;
  }());
  // Of two at once, what neither excludes twice.
  EXPECT_EQ(allowed_after("root ::= (!<[65]> | !<[66]>) \"x\"", {}), all_but({}));
  EXPECT_EQ(allowed_after("root ::= !<|call|>{2}", {kThe}), all_but({kCall}));
  EXPECT_EQ(allowed_after("root ::= !<|call|>* <|call|> \"x\"", {kThe, 'a', kHalf}), all_but({}));
  EXPECT_EQ(allowed_after("root ::= !<|call|>* <|call|> \"x\"", {kThe, kCall}), Tokens{'x'});
}

TEST(GbnfTokens, OneTokenByTwoNames) {
  EXPECT_EQ(allowed_after("root ::= <|call|> \"a\" | <[260]> \"b\"", {kCall}), (Tokens{'a', 'b'}));
  EXPECT_EQ(allowed_after("root ::= !<[260]> \"a\" | <|call|> \"b\"", {}), all_but({}));
  EXPECT_EQ(allowed_after("root ::= !<[260]> \"a\" | <|call|> \"b\"", {kCall}), Tokens{'b'});
  EXPECT_EQ(allowed_after("root ::= !<[00257]> | <tool_call> \"b\"", {kToolCall}), Tokens{'b'});
}

TEST(GbnfTokens, AnyCharacterIsNoToken) {
  EXPECT_EQ(allowed_after("root ::= \"a\" .* | <|call|> \"b\"", {}), (Tokens{'a', kCall}));
  const Tokens after_any = allowed_after("root ::= .* | <|call|>", {});
  EXPECT_EQ(std::count(after_any.begin(), after_any.end(), kCall), 1);
  EXPECT_EQ(std::count(after_any.begin(), after_any.end(), kOther), 0);
}

TEST(GbnfTokens, WithoutAVocabularyATokenHasNoText) {
  const Grammar grammar = Grammar::from_gbnf("root ::= \"a\" (\"b\" | <tool_call> | !<[65]>)");
  EXPECT_TRUE(matches(grammar, "ab"));
  EXPECT_FALSE(matches(grammar, "a<tool_call>"));
  EXPECT_FALSE(matches(grammar, "aB"));
  EXPECT_FALSE(matches(grammar, "a"));
}

TEST(GbnfTokens, ErrorsNameTheTokenOrThePlace) {
  const auto table = small_table();
  EXPECT_EQ(refusal("root ::= \"a\" | <nothing>", table),
            "the grammar asks for the token <nothing>, which the vocabulary of 263 tokens has not");
  EXPECT_EQ(refusal("root ::= !<[263]>", table),
            "the grammar asks for the token <[263]>, which the vocabulary of 263 tokens has not");
  EXPECT_NE(refusal("root ::= <[1", table).find("']>' is expected at 1:13"), std::string::npos);
  EXPECT_NE(refusal("root ::= <[a]>", table).find("number is expected at 1:12"), std::string::npos);
  EXPECT_NE(refusal("root ::= !\"a\"", table).find("a '!' without the '<' of a token at 1:11"),
            std::string::npos);
  EXPECT_NE(refusal("root ::= <tool\nx ::= <b>", table).find("without the '>' of a token at 1:10"),
            std::string::npos);
  // Names of tokens that are never generated may be excluded, not asked for.
  const auto unused = std::make_shared<const TokenTable>(std::vector<TokenTable::Entry>{
      {"a", TokenTable::Use::text}, {"<unk>", TokenTable::Use::never}, {"<end>", TokenTable::Use::end}});
  EXPECT_EQ(refusal("root ::= <unk>", unused),
            "the grammar asks for the token <unk>, which is never generated");
  Matcher matcher(std::make_shared<Constraint>(Grammar::from_gbnf("root ::= !<unk> \"a\""), unused));
  EXPECT_EQ(allowed_tokens(matcher, 3), Tokens{0});
}

// What writes text is read by its bytes in free text, whether the grammar names it or not; and an end that
// the grammar names elsewhere does not end a text that must go on.
TEST(GbnfTokens, NextToFreeText) {
  const Grammar answer = Grammar::from_gbnf("root ::= !<[256]> <tool_call>? <end>?");
  const Grammar grammar = Grammar::from([&](Store& store) {
    std::vector<Id> map(answer.store().size(), Store::kUnknown);
    const Id then = store.import_grammar(answer.store(), answer.start(), map);
    return free_text(store, {.tags = {{" th>", then}}, .may_end = false, .controls = {}});
  });
  const auto table = small_table();
  const auto constraint = std::make_shared<Constraint>(grammar, table);
  Matcher matcher(constraint);
  EXPECT_EQ(allowed_tokens(matcher, table->size()), all_but({}));
  for (const Token token : {kToolCall, kThe, kCall, kTh}) ASSERT_TRUE(matcher.accept(token));
  EXPECT_FALSE(Matcher(matcher).accept(kEnd));
  ASSERT_TRUE(matcher.accept('>'));
  EXPECT_EQ(allowed_tokens(matcher, table->size()), all_but({kThe}));
  ASSERT_TRUE(matcher.accept('!'));
  EXPECT_EQ(allowed_tokens(matcher, table->size()), (Tokens{kToolCall, kEnd}));
}

TEST(LazyGrammars, HoldFromTheFirstTriggerOn) {
  const auto table = small_table();
  const Grammar grammar =
      Grammar::from_gbnf("root ::= \"<f\" \">\" [0-9]{2} | <|call|> \"x\" | \"<|other|>\" \"y\"");
  const std::vector<Trigger> triggers{{"<f"}, {"<|call|>", kCall}, {"<|other|>", kOther}};
  const auto constraint = std::make_shared<Constraint>(lazy(grammar, triggers), table);
  const auto after = [&](const Tokens& tokens) {
    Matcher matcher(constraint);
    for (const Token token : tokens) EXPECT_TRUE(matcher.accept(token)) << token;
    return allowed_tokens(matcher, table->size());
  };
  Tokens all = all_but({});
  all.push_back(kEnd);
  EXPECT_EQ(after({}), all);
  EXPECT_EQ(after({'a', '>', kThe, '<', 'e', '<'}), all);
  EXPECT_EQ(after({'a', '<', '<', 'f'}), Tokens{'>'});
  EXPECT_EQ(after({'<', 'f', '>', '1', '2'}), Tokens{kEnd});
  EXPECT_EQ(after({'a', kCall}), Tokens{'x'});
  // A token whose text the grammar spells.
  EXPECT_EQ(after({kToolCall, kOther}), Tokens{'y'});
  EXPECT_EQ(after({kOther, 'y'}), Tokens{kEnd});
  const auto message = [&](const std::vector<Trigger>& list) {
    try {
      lazy(grammar, list);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(message({{"f>"}}), "the grammar does not begin with its trigger \"f>\"");
  EXPECT_EQ(message({}), "a lazy grammar has no triggers");
}

TEST(GbnfTokens, DraftsRollbackAndSeveralSequences) {
  const auto table = small_table();
  const auto constraint = std::make_shared<Constraint>(
      Grammar::from_gbnf("root ::= (!<|call|>{0,3} <|call|> [a-c]{2} | <[256]> root)"), table);
  std::mt19937 random(11);
  std::vector<Matcher> ahead(2, Matcher(constraint));
  std::vector<Matcher> plain(2, Matcher(constraint));
  for (int turn = 0; turn < 60; ++turn) {
    Matcher &one = ahead[turn % 2], &other = plain[turn % 2];
    if (other.is_finished()) break;
    Tokens draft;
    Matcher writer = other;
    for (int i = 0; i < 4 && !writer.is_finished(); ++i) {
      const Tokens choices = allowed_tokens(writer, table->size());
      draft.push_back(random() % 5 == 0 ? kCall : choices[random() % choices.size()]);
      if (!writer.accept(draft.back())) break;
    }
    const auto masks = one.allowed_along(draft);
    std::size_t taken = 0;
    for (; taken < draft.size(); ++taken) {
      EXPECT_EQ(*masks[taken], *other.allowed());
      if (!other.accept(draft[taken])) break;
    }
    EXPECT_EQ(masks.size(), taken + 1);
    EXPECT_EQ(one.accept_prefix(draft), taken);
    const std::size_t back = random() % (taken + 1);
    one.rollback(back);
    other.rollback(back);
    EXPECT_EQ(*one.allowed(), *other.allowed());
  }
}

TEST(GbnfTokens, ATextThatRunsOutOfTokensComesToItsEnd) {
  const auto table = small_table();
  Matcher matcher(std::make_shared<Constraint>(
      Grammar::from_gbnf("root ::= \"a\" !<[65]>+ <tool_call> <|call|> \"z\""), table));
  ASSERT_TRUE(matcher.accept('a'));
  EXPECT_EQ(matcher.tokens_to_end(), 4u);
  for (std::size_t left = 4; left > 0; --left) {
    const auto closing = matcher.closing();
    Token token = 0;
    while (token <= kEnd && !has_bit(*closing, static_cast<std::size_t>(token))) ++token;
    ASSERT_TRUE(matcher.accept(token)) << token;
    EXPECT_EQ(matcher.tokens_to_end(), left - 1);
  }
  EXPECT_TRUE(matcher.is_accepting());
}

}  // namespace
}  // namespace quipu::text::grammar

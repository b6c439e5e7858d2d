// Properties in any order, and texts that are brought to their end.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "text/grammar/grammar.hpp"
#include "text/grammar/small_tables.hpp"

namespace quipu::text::grammar {
namespace {

std::string object_of(const std::vector<std::string>& keys) {
  std::string text = "{";
  for (const std::string& key : keys) text += (text.size() > 1 ? ", \"" : "\"") + key + "\": 1";
  return text + "}";
}

TEST(Members, EveryOrderIsRead) {
  const char* schema = R"({"type":"object","properties":{"a":{"const":1},"b":{"const":1},"ab":{"const":1},
                           "c":{"const":1}},"required":["b","c"],"additionalProperties":false})";
  const Grammar any = Grammar::from_json_schema(schema);
  SchemaOptions options;
  options.declared_order = true;
  const Grammar declared = Grammar::from_json_schema(schema, options);
  std::vector<std::string> keys{"a", "ab", "b", "c"};
  const std::vector<std::string> order{"a", "b", "ab", "c"};
  int orders = 0;
  do {
    EXPECT_TRUE(matches(any, object_of(keys))) << object_of(keys);
    EXPECT_EQ(matches(declared, object_of(keys)), keys == order) << object_of(keys);
    ++orders;
  } while (std::next_permutation(keys.begin(), keys.end()));
  EXPECT_EQ(orders, 24);
  for (const Grammar& grammar : {any, declared}) {
    EXPECT_TRUE(matches(grammar, object_of({"b", "c"})));
    EXPECT_FALSE(matches(grammar, object_of({"b"})));
    EXPECT_FALSE(matches(grammar, object_of({"b", "c", "c"})));
    EXPECT_FALSE(matches(grammar, object_of({"b", "c", "d"})));
    EXPECT_FALSE(matches(grammar, R"({"b": 1, "c": 1,})"));
    EXPECT_FALSE(matches(grammar, R"({, "b": 1, "c": 1})"));
  }
}

/// What the keywords say, counted out.
struct Rules {
  std::set<std::string> declared, required;
  bool others;
  std::size_t least, most;

  bool allow(const std::vector<std::string>& keys) const {
    const std::set<std::string> set(keys.begin(), keys.end());
    if (set.size() != keys.size() || keys.size() < least || keys.size() > most) return false;
    if (!std::includes(set.begin(), set.end(), required.begin(), required.end())) return false;
    return others ||
           std::all_of(keys.begin(), keys.end(), [&](const auto& key) { return declared.contains(key); });
  }
  std::string schema() const {
    std::string text = R"({"type":"object","properties":{)";
    for (const std::string& key : declared)
      text += (text.back() == '{' ? "\"" : ",\"") + key + R"(":{"const":1})";
    text += R"(},"required":[)";
    for (const std::string& key : required) text += (text.back() == '[' ? "\"" : ",\"") + key + "\"";
    text += R"(],"additionalProperties":)" + std::string(others ? R"({"const":1})" : "false");
    text += ",\"minProperties\":" + std::to_string(least);
    if (most < 9) text += ",\"maxProperties\":" + std::to_string(most);
    return text + "}";
  }
};

TEST(Members, CountsAndOthersAreAsTheKeywordsSay) {
  const std::vector<std::string> names{"a", "b", "ba", "x", "xy"};
  std::uint64_t at = 0;
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(philox_uniform(11, at++) * static_cast<double>(n));
  };
  int accepted = 0, refused = 0, impossible = 0;
  for (int round = 0; round < 120; ++round) {
    Rules rules{{}, {}, below(2) == 0, below(4), 9};
    for (const std::string& name : names) {
      if (below(2) == 0) rules.declared.insert(name);
      if (rules.declared.contains(name) && below(3) == 0) rules.required.insert(name);
    }
    if (below(2) == 0) rules.most = below(5);
    SCOPED_TRACE(rules.schema());
    std::optional<Grammar> grammar;
    try {
      grammar = Grammar::from_json_schema(rules.schema());
    } catch (const Error&) {  // nothing fulfils it
      ++impossible;
    }
    for (int i = 0; i < 40; ++i) {
      std::vector<std::string> keys;
      for (std::size_t n = below(6); n > 0; --n) {
        std::string key = names[below(names.size())];
        // That a name outside of the properties comes only once is not held.
        const bool again = std::find(keys.begin(), keys.end(), key) != keys.end();
        if (!again || rules.declared.contains(key)) keys.push_back(std::move(key));
      }
      const bool expected = rules.allow(keys);
      EXPECT_EQ(grammar && matches(*grammar, object_of(keys)), expected) << object_of(keys);
      ++(expected ? accepted : refused);
    }
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 300);
  EXPECT_GT(impossible, 3);
}

TEST(Members, ManyPropertiesCostWhatTheTextNeeds) {
  std::string schema = R"({"type":"object","additionalProperties":false,"required":["p3"],"properties":{)";
  std::vector<std::string> keys;
  for (int i = 0; i < 3000; ++i) {
    keys.push_back("p" + std::to_string(i * 7919 % 3000));
    schema += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"const":1})";
  }
  const Grammar grammar = Grammar::from_json_schema(schema + "}}");
  EXPECT_LT(grammar.store().size(), 20'000u);
  keys.resize(400);
  keys.push_back("p3");
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::reverse(keys.begin(), keys.end());
  EXPECT_TRUE(matches(grammar, object_of(keys)));
  keys.push_back(keys.front());
  EXPECT_FALSE(matches(grammar, object_of(keys)));
}

TEST(Members, DistinctItemsOfALongEnum) {
  std::string values;
  for (int i = 0; i < 100; ++i) values += (i > 0 ? "," : "") + std::to_string(i);
  const Grammar grammar = Grammar::from_json_schema(
      R"({"type":"array","uniqueItems":true,"minItems":2,"maxItems":3,"items":{"enum":[)" + values + "]}}");
  EXPECT_TRUE(matches(grammar, "[1, 12]"));
  EXPECT_TRUE(matches(grammar, "[12, 1, 2]"));
  EXPECT_FALSE(matches(grammar, "[12, 1, 12]"));
  EXPECT_FALSE(matches(grammar, "[1, 1]"));
  EXPECT_FALSE(matches(grammar, "[7]"));
  EXPECT_FALSE(matches(grammar, "[1, 2, 3, 4]"));
  EXPECT_FALSE(matches(grammar, "[1, 100]"));
}

/// Goes `free` random steps, then the shortest way.
std::string ended_text(const std::shared_ptr<Constraint>& constraint, std::uint64_t seed, std::size_t free) {
  const TokenTable& table = constraint->table();
  Matcher matcher(constraint);
  std::string text;
  const auto draw = [&](const Bits& bits, std::uint64_t at) {
    std::vector<Token> choices;
    for (std::size_t t = 0; t < table.size(); ++t)
      if (has_bit(bits, t)) choices.push_back(static_cast<Token>(t));
    return choices.empty() ? Token{-1}
                           : choices[static_cast<std::size_t>(philox_uniform(seed, at) *
                                                              static_cast<double>(choices.size()))];
  };
  std::size_t least = matcher.tokens_to_end();
  for (std::size_t step = 0; !matcher.is_finished() && step < free + 500; ++step) {
    const Token token = draw(step < free ? *matcher.allowed() : *matcher.closing(), step);
    if (token < 0 || !matcher.accept(token)) return "no way on after " + text;
    if (table.entry(token).use == TokenTable::Use::text) text += table.entry(token).text;
    const std::size_t now = matcher.tokens_to_end();
    if (step > free && least <= 160 && now > 0 && now >= least) return "no nearer to the end after " + text;
    least = now;
  }
  return text;
}

TEST(Completion, LeadsFromAnyPlaceToACompleteText) {
  const auto table = test::byte_table({"{\"", "\": ", "\", \"", "\"}", "}}", "12", "ab", "aaaa"});
  for (const char* schema :
       {R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer","minimum":100,
            "multipleOf":7},"l":{"type":"array","items":{"enum":["xx","y"]},"minItems":3},
            "o":{"type":"object","minProperties":2}},"required":["name","n","l","o"]})",
        R"({"type":"string","minLength":3,"maxLength":9,"pattern":"^[ab]+$","not":{"enum":["aaa"]}})",
        R"({"type":"string","format":"date-time"})", R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object",
            "properties":{"t":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":["t"]}}})",
        R"({"type":"array","prefixItems":[{"const":true},{"type":"number"}],"minItems":2})"}) {
    const Grammar grammar = Grammar::from_json_schema(schema);
    const auto constraint = std::make_shared<Constraint>(grammar, table);
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const std::string text = ended_text(constraint, seed, seed * 3);
      EXPECT_TRUE(matches(grammar, text)) << schema << ": " << text;
    }
  }
}

TEST(Completion, KnowsTheShortestWay) {
  const auto table = test::byte_table();
  const auto to_end = [&](const Grammar& grammar) {
    return Matcher(std::make_shared<Constraint>(grammar, table)).tokens_to_end();
  };
  EXPECT_EQ(to_end(Grammar::from_regex("[0-9]{3}-x+")), 5u);
  EXPECT_EQ(to_end(Grammar::from_gbnf("root ::= \"abc\" root | \"xy\"")), 2u);
  EXPECT_EQ(to_end(Grammar::from_json_schema(R"({"type":"integer","multipleOf":7,"minimum":10})")), 2u);
  // {"id":0} with the white space left out
  EXPECT_EQ(to_end(Grammar::from_json_schema(
                R"({"type":"object","properties":{"id":{"type":"integer"},"x":{}},"required":["id"]})")),
            8u);
}

}  // namespace
}  // namespace quipu::text::grammar

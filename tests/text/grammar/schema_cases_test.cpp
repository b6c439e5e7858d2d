// The shared json-schema cases (json-schema/README.md), by characters and by the tokens of three
// vocabularies.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "core/error.hpp"
#include "support.hpp"
#include "text/grammar/grammar.hpp"
#include "text/grammar/small_tables.hpp"
#include "text/shared_vectors.hpp"

namespace quipu::text::grammar {
namespace {

namespace json = boost::json;

struct Cases {
  json::array cases, unsupported;
};

std::filesystem::path cases_path() { return test::shared_data() / "json-schema" / "cases.json"; }

const Cases& cases() {
  static const Cases all = [] {
    const json::object root = json::parse(test::read_file(cases_path()), {}, {.max_depth = 400}).as_object();
    return Cases{root.at("cases").as_array(), root.at("unsupported").as_array()};
  }();
  return all;
}

std::string name_of(const json::object& c) { return std::string(c.at("name").as_string()); }
std::string schema_of(const json::object& c) { return json::serialize(c.at("schema")); }

std::vector<std::string> texts(const json::object& c, const char* list) {
  std::vector<std::string> result;
  if (const json::value* values = c.if_contains(list))
    for (const json::value& text : values->as_array()) result.emplace_back(text.as_string());
  return result;
}

/// Feeds tokens that spell the text, the longest first; whether all are accepted and the text is complete.
bool accepts_tokens(const std::shared_ptr<Constraint>& constraint, const test::Speller& speller,
                    std::string_view text) {
  Matcher matcher(constraint);
  for (const Token token : speller.spell(text)) {
    const bool allowed = has_bit(*matcher.allowed(), static_cast<std::size_t>(token));
    const bool accepted = matcher.accept(token);
    EXPECT_EQ(allowed, accepted) << "token " << token << " of " << text;
    if (!accepted) return false;
  }
  const std::size_t end = static_cast<std::size_t>(constraint->table().ends().front());
  EXPECT_EQ(has_bit(*matcher.allowed(), end), matcher.is_accepting()) << text;
  return matcher.is_accepting();
}

/// Runs `check(case, grammar)` over the cases whose schema is taken; returns how many are refused.
template <class F>
std::size_t for_each_case(F&& check) {
  std::size_t refused = 0;
  for (const json::value& value : cases().cases) {
    const json::object& c = value.as_object();
    SCOPED_TRACE(name_of(c) + " " + schema_of(c).substr(0, 300));
    try {
      check(c, Grammar::from_json_schema(schema_of(c)));
    } catch (const Error& error) {
      ++refused;
      const bool advanced = c.contains("advanced") && c.at("advanced").as_bool();
      EXPECT_TRUE(advanced) << "refused: " << error.message();
    }
  }
  return refused;
}

TEST(SchemaCases, ByCharacters) {
  QUIPU_REQUIRE_SHARED(cases_path());
  const std::size_t refused = for_each_case([](const json::object& c, const Grammar& grammar) {
    for (const std::string& text : texts(c, "valid")) EXPECT_TRUE(matches(grammar, text)) << text;
    for (const std::string& text : texts(c, "invalid")) EXPECT_FALSE(matches(grammar, text)) << text;
    for (const char* list : {"valid_optional", "invalid_optional"})
      for (const std::string& text : texts(c, list)) matches(grammar, text);
  });
  EXPECT_EQ(refused, 0u);
}

TEST(SchemaCases, Compact) {
  QUIPU_REQUIRE_SHARED(cases_path());
  SchemaOptions options;
  options.white_space = false;
  for (const json::value& value : cases().cases) {
    const json::object& c = value.as_object();
    SCOPED_TRACE(name_of(c));
    const Grammar grammar = Grammar::from_json_schema(schema_of(c), options);
    for (const std::string& text : texts(c, "valid")) EXPECT_TRUE(matches(grammar, text)) << text;
    for (const std::string& text : texts(c, "invalid")) EXPECT_FALSE(matches(grammar, text)) << text;
  }
}

class SchemaTokens : public testing::TestWithParam<const char*> {};

TEST_P(SchemaTokens, GiveTheSameAnswers) {
  QUIPU_REQUIRE_SHARED(cases_path());
  QUIPU_REQUIRE_SHARED(test::vocabulary_path(GetParam()));
  const auto tokenizer = test::load_vocabulary(GetParam());
  const auto table = TokenTable::of(*tokenizer);
  const test::Speller whole(*table), bytes(*table, 1), pieces(*table, 3);
  for_each_case([&](const json::object& c, const Grammar& grammar) {
    const auto constraint = std::make_shared<Constraint>(grammar, table);
    for (const test::Speller* speller : {&whole, &bytes, &pieces}) {
      for (const std::string& text : texts(c, "valid"))
        EXPECT_TRUE(accepts_tokens(constraint, *speller, text)) << text;
      for (const std::string& text : texts(c, "invalid"))
        EXPECT_FALSE(accepts_tokens(constraint, *speller, text)) << text;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, SchemaTokens, testing::Values("gpt-2", "llama-spm", "qwen2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(SchemaCases, UnsupportedAreRefusedOrHeld) {
  QUIPU_REQUIRE_SHARED(cases_path());
  std::map<std::string, int> held;
  for (const json::value& value : cases().unsupported) {
    const json::object& c = value.as_object();
    SCOPED_TRACE(name_of(c) + " " + schema_of(c).substr(0, 300));
    const std::string kind(c.at("kind").as_string());
    try {
      const Grammar grammar = Grammar::from_json_schema(schema_of(c));
      EXPECT_TRUE(kind == "keyword" || kind == "pattern" || kind == "limit") << "not refused";
      for (const std::string& text : texts(c, "valid")) EXPECT_TRUE(matches(grammar, text)) << text;
      for (const std::string& text : texts(c, "invalid")) EXPECT_FALSE(matches(grammar, text)) << text;
      ++held[kind];
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported)
          << error.message();
      EXPECT_GT(error.message().size(), 20u);
    }
  }
  // What has been held must not be lost unseen.
  EXPECT_GE(held["keyword"], 20);
  EXPECT_GE(held["pattern"], 5);
}

}  // namespace
}  // namespace quipu::text::grammar

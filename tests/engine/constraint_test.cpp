// Generations within a grammar, by a model of random weights at a high temperature.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "engine_fixture.hpp"
#include "text/grammar/grammar.hpp"

namespace quipu {
namespace {

using test::EngineSettings;
using test::make_engine;
using text::grammar::Grammar;

engine::Request hot(std::uint64_t seed, std::int64_t max_tokens = 200) {
  engine::Request request;
  request.prompt = test::random_prompt(seed, 5);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 1.5;
  request.sampling.top_k = 0;
  request.sampling.top_p = 1;
  request.sampling.min_p = 0;
  request.sampling.seed = seed;
  return request;
}

TEST(Constraint, TextsObeyTheSchema) {
  auto engine = make_engine();
  const auto constraint = engine.constrain(Grammar::from_json_schema(
      R"({"type":"object","properties":{"n":{"type":"integer","minimum":-5,"maximum":1200},
          "s":{"type":"string","maxLength":12},"e":{"enum":["x","yy",3]},
          "l":{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":3}},
          "required":["n","s","e","l"],"additionalProperties":false})"));
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    engine::Request request = hot(seed);
    request.constraint = constraint;
    const engine::Result result = engine.generate(std::move(request));
    ASSERT_EQ(result.stop, engine::StopReason::end_of_generation) << result.text << result.error;
    const boost::json::object object = boost::json::parse(result.text).as_object();
    EXPECT_EQ(object.size(), 4u) << result.text;
    EXPECT_GE(object.at("n").as_int64(), -5);
    EXPECT_LE(object.at("n").as_int64(), 1200);
    EXPECT_TRUE(object.at("s").is_string());
    const boost::json::value& e = object.at("e");
    EXPECT_TRUE(e == "x" || e == "yy" || e == 3) << result.text;
    const std::size_t items = object.at("l").as_array().size();
    EXPECT_TRUE(items >= 1 && items <= 3) << result.text;
  }
}

TEST(Constraint, AForcedTextEndsByItself) {
  auto engine = make_engine();
  for (const bool ignore_eos : {false, true}) {
    engine::Request request = hot(3);
    request.ignore_eos = ignore_eos;
    request.constraint = engine.constrain(Grammar::from_gbnf("root ::= \" L M N O P\""));
    const engine::Result result = engine.generate(std::move(request));
    EXPECT_EQ(result.text, " L M N O P");
    EXPECT_EQ(result.stop, engine::StopReason::end_of_generation);
  }
}

TEST(Constraint, ATextThatRunsOutOfTokensIsCompleteAllTheSame) {
  auto engine = make_engine();
  const auto constraint = engine.constrain(Grammar::from_json_schema(
      R"({"type":"object","properties":{"s":{"type":"string","minLength":2},"l":{"type":"array","items":
          {"type":"string"},"minItems":2}},"required":["s","l"],"additionalProperties":false})"));
  int shortened = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    engine::Request request = hot(seed, 40);
    request.constraint = constraint;
    const engine::Result result = engine.generate(std::move(request));
    EXPECT_LE(result.tokens.size(), 40u);
    const boost::json::object object = boost::json::parse(result.text).as_object();
    EXPECT_GE(object.at("l").as_array().size(), 2u) << result.text;
    shortened += result.stop == engine::StopReason::max_tokens ? 1 : 0;
  }
  EXPECT_GT(shortened, 8);  // by a model of random weights at this temperature a text would not end
}

TEST(Constraint, OthersInTheBatchAreUntouched) {
  EngineSettings settings;
  settings.sequences = 3;
  const Grammar digits = Grammar::from_regex("[0-9]{3,40}");
  std::vector<std::string> alone;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    auto engine = make_engine(settings);
    engine::Request request = hot(seed, 30);
    if (seed != 1) request.constraint = engine.constrain(digits);
    alone.push_back(engine.generate(std::move(request)).text);
  }
  auto engine = make_engine(settings);
  const auto constraint = engine.constrain(digits);  // one for several sequences
  std::vector<engine::RequestId> ids;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    engine::Request request = hot(seed, 30);
    if (seed != 1) request.constraint = constraint;
    ids.push_back(engine.submit(std::move(request)));
  }
  while (engine.step()) {
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(engine.take_result(ids[i])->text, alone[i]);
  EXPECT_EQ(alone[0].find_first_not_of("0123456789"), std::string::npos);
  EXPECT_NE(alone[1].find_first_not_of("0123456789"), std::string::npos);
}

TEST(Constraint, BiasAndConstraintThatLeaveNothingAreAnError) {
  auto engine = make_engine();
  engine::Request request = hot(1);
  request.constraint = engine.constrain(Grammar::from_regex("a"));
  request.sampling.logit_bias['a'] = -std::numeric_limits<float>::infinity();
  const engine::Result result = engine.generate(std::move(request));
  EXPECT_EQ(result.stop, engine::StopReason::error);
  EXPECT_NE(result.error.find("no token can go on"), std::string::npos) << result.error;
}

TEST(Constraint, OfAnotherVocabularyIsRefused) {
  auto engine = make_engine();
  test::TinyModelOptions options;
  options.spm = true;
  auto other = make_engine({}, test::tiny_model(options));
  engine::Request request = hot(1);
  request.constraint = other.constrain(Grammar::from_regex("a"));
  EXPECT_THROW(engine.submit(std::move(request)), Error);
}

}  // namespace
}  // namespace quipu

// Every stage against what llama.cpp's sampler of that name leaves of the same logits.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "engine/sampling/stages.hpp"
#include "support.hpp"

namespace quipu::engine {
namespace {

struct Case {
  std::string name, stage;
  SamplingParams params;
  std::vector<std::int32_t> history;
  std::vector<float> logits;
  std::map<std::int32_t, double> keep;
  std::optional<std::int32_t> drawn;
};

SamplingParams everything_off() {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  return params;
}

void set_parameter(SamplingParams& p, const std::string& name, double value) {
  const std::map<std::string, double SamplingParams::*> numbers{
      {"temperature", &SamplingParams::temperature},
      {"dynatemp_range", &SamplingParams::dynatemp_range},
      {"dynatemp_exponent", &SamplingParams::dynatemp_exponent},
      {"top_p", &SamplingParams::top_p},
      {"min_p", &SamplingParams::min_p},
      {"typical_p", &SamplingParams::typical_p},
      {"top_n_sigma", &SamplingParams::top_n_sigma},
      {"xtc_probability", &SamplingParams::xtc_probability},
      {"xtc_threshold", &SamplingParams::xtc_threshold},
      {"dry_multiplier", &SamplingParams::dry_multiplier},
      {"dry_base", &SamplingParams::dry_base},
      {"repeat_penalty", &SamplingParams::repeat_penalty},
      {"presence_penalty", &SamplingParams::presence_penalty},
      {"frequency_penalty", &SamplingParams::frequency_penalty},
      {"mirostat_tau", &SamplingParams::mirostat_tau},
      {"mirostat_eta", &SamplingParams::mirostat_eta},
  };
  const std::map<std::string, std::int64_t SamplingParams::*> counts{
      {"top_k", &SamplingParams::top_k},
      {"min_keep", &SamplingParams::min_keep},
      {"dry_allowed_length", &SamplingParams::dry_allowed_length},
      {"dry_penalty_last_n", &SamplingParams::dry_penalty_last_n},
      {"repeat_last_n", &SamplingParams::repeat_last_n},
  };
  if (const auto number = numbers.find(name); number != numbers.end()) {
    p.*number->second = value;
  } else {
    p.*counts.at(name) = static_cast<std::int64_t>(value);
  }
}

std::vector<Case> read_cases() {
  std::ifstream file(test::source_path("tests/goldens/engine/samplers.txt"));
  EXPECT_TRUE(file) << "tests/goldens/engine/samplers.txt is missing";
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "case") {
      auto& c = cases.emplace_back();
      c.params = everything_off();
      words >> c.name >> c.stage;
    } else if (kind == "set") {
      std::string name;
      double value = 0;
      words >> name >> value;
      set_parameter(cases.back().params, name, value);
    } else if (kind == "breaker") {
      auto& breaker = cases.back().params.dry_sequence_breakers.emplace_back();
      for (std::int32_t id; words >> id;) breaker.push_back(id);
    } else if (kind == "history") {
      for (std::int32_t id; words >> id;) cases.back().history.push_back(id);
    } else if (kind == "logits") {
      for (float v; words >> v;) cases.back().logits.push_back(v);
    } else if (kind == "keep") {
      std::int32_t id = 0;
      char colon = 0;
      for (double p; words >> id >> colon >> p;) cases.back().keep[id] = p;
    } else if (kind == "drawn") {
      std::int32_t id = 0;
      words >> id;
      cases.back().drawn = id;
    }
  }
  return cases;
}

std::map<std::int32_t, double> probabilities(Candidates& candidates) {
  const auto weights = candidates.weights();
  std::map<std::int32_t, double> result;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (weights.values[i] > 0) result[candidates.items()[i].token] = weights.values[i] / weights.sum;
  }
  return result;
}

void expect_same(const Case& c, Candidates& candidates) {
  const auto found = probabilities(candidates);
  ASSERT_EQ(found.size(), c.keep.size()) << c.name;
  for (const auto& [id, p] : c.keep) {
    ASSERT_TRUE(found.count(id)) << c.name << ": token " << id << " is missing";
    // llama.cpp computes in float.
    EXPECT_NEAR(found.at(id), p, 2e-5 * p + 1e-9) << c.name << ": token " << id;
  }
}

TEST(SamplerGolden, StagesLeaveWhatLlamaCppLeaves) {
  StageRoom room;  // one for all
  int tested = 0;
  for (const Case& c : read_cases()) {
    if (c.stage == "mirostat") continue;
    const Stage* stage = find_stage(c.stage);
    ASSERT_NE(stage, nullptr) << c.stage;
    Candidates candidates;
    ASSERT_TRUE(candidates.assign(c.logits));
    stage->apply(candidates, c.params, {c.history, c.history.size(), room});
    expect_same(c, candidates);
    ++tested;
  }
  EXPECT_EQ(tested, 51);
}

TEST(SamplerGolden, StagesGiveTheSameOnSortedCandidates) {
  StageRoom room;  // one for all
  for (const Case& c : read_cases()) {
    if (c.stage == "mirostat") continue;
    Candidates candidates;
    ASSERT_TRUE(candidates.assign(c.logits));
    candidates.sort_by_logit();
    find_stage(c.stage)->apply(candidates, c.params, {c.history, c.history.size(), room});
    expect_same(c, candidates);
  }
}

TEST(SamplerGolden, MirostatFollowsLlamaCppFromDrawToDraw) {
  std::optional<Mirostat> mirostat;
  int tested = 0;
  for (const Case& c : read_cases()) {
    if (c.stage != "mirostat") continue;
    if (c.name.back() == '0') mirostat.emplace(c.params.mirostat_tau, c.params.mirostat_eta);
    Candidates candidates;
    ASSERT_TRUE(candidates.assign(c.logits));
    mirostat->truncate(candidates);
    expect_same(c, candidates);
    mirostat->observe(candidates, c.drawn.value());
    ++tested;
  }
  EXPECT_EQ(tested, 12);
}

}  // namespace
}  // namespace quipu::engine

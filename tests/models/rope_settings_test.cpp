// RoPE scaling from the file and from the user (field case 41).
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "edit_model.hpp"
#include "golden.hpp"
#include "run_model.hpp"

namespace quipu {
namespace {

using models::LoadOptions;
using models::Model;
using models::RopeScalingType;
using test::Edit;
using test::f32;
using test::str;
using test::u32;

class RopeSettings : public testing::Test {
 protected:
  /// The golden YaRN model with its scaling keys replaced; its context_length is the one it was trained for.
  std::filesystem::path edited(std::vector<Edit> edits) {
    std::vector<Edit> all{{"llama.context_length", u32(64)},
                          {"llama.rope.scaling.type", std::nullopt},
                          {"llama.rope.scaling.factor", std::nullopt},
                          {"llama.rope.scaling.original_context_length", std::nullopt}};
    for (const Edit& edit : edits) {
      std::erase_if(all, [&](const Edit& e) { return e.first == edit.first; });
      all.push_back(edit);
    }
    const auto path = folder_ / ("edited" + std::to_string(files_++) + ".gguf");
    test::write_edited(test::golden_path("llama_yarn.gguf"), path, all);
    return path;
  }
  static std::vector<float> logits(const std::shared_ptr<const Model>& model,
                                   const std::vector<std::int32_t>& tokens) {
    test::ModelRun run(model, backends::make_cpu_backend(), 256, 256);
    return run.push(tokens);
  }
  static LoadOptions with(models::RopeOverrides rope) {
    LoadOptions options;
    options.rope = rope;
    return options;
  }
  test::TemporaryFolder folder_;
  int files_ = 0;
};

TEST_F(RopeSettings, YarnFromTheFileAndFromFlagsGiveTheSameBytes) {
  const test::Golden golden(test::golden_path("llama_yarn.golden.gguf"));
  const auto tokens = golden.ints("tokens.0");
  ASSERT_EQ(tokens.size(), 200u);

  const auto from_file = Model::load(edited({{"llama.rope.scaling.type", str("yarn")},
                                             {"llama.rope.scaling.factor", f32(4)},
                                             {"llama.rope.scaling.original_context_length", u32(64)}}));
  models::RopeOverrides flags;
  flags.type = RopeScalingType::yarn;
  flags.factor = 4;
  flags.original_context = 64;
  const auto from_flags = Model::load(edited({}), with(flags));
  flags.original_context.reset();  // the file's context_length is the original
  const auto short_flags = Model::load(edited({}), with(flags));

  for (const auto& model : {from_file, from_flags, short_flags}) {
    EXPECT_EQ(model->hyperparameters().trained_context, 256u);
    EXPECT_TRUE(model->warnings().empty());
    EXPECT_EQ(model->fingerprint(), from_file->fingerprint());
  }
  const auto expected = logits(from_file, tokens);
  EXPECT_EQ(logits(from_flags, tokens), expected);
  EXPECT_EQ(logits(short_flags, tokens), expected);
  const auto vocab = static_cast<std::size_t>(from_file->hyperparameters().vocab);
  const auto truth = golden.floats("logits.0");
  for (std::size_t row = 0; row < tokens.size(); ++row)
    EXPECT_GE(test::cosine(std::span(expected).subspan(row * vocab, vocab),
                           std::span(truth).subspan(row * vocab, vocab)),
              0.9999)
        << "position " << row;
}

TEST_F(RopeSettings, NumbersThatFloatRoundsAreTheSameFromFileAndFlags) {
  const auto from_file = Model::load(edited({{"llama.rope.scaling.type", str("yarn")},
                                             {"llama.rope.scaling.factor", f32(2.3f)},
                                             {"llama.rope.scaling.original_context_length", u32(64)},
                                             {"llama.rope.scaling.attn_factor", f32(0.7f)},
                                             {"llama.rope.scaling.yarn_ext_factor", f32(0.9f)},
                                             {"llama.rope.scaling.yarn_beta_fast", f32(8.1f)},
                                             {"llama.rope.scaling.yarn_beta_slow", f32(1.1f)},
                                             {"llama.rope.freq_base", f32(10000.1f)}}));
  models::RopeOverrides flags;
  flags.type = RopeScalingType::yarn;
  flags.factor = 2.3;
  flags.original_context = 64;
  flags.attention_factor = 0.7;
  flags.extrapolation_factor = 0.9;
  flags.beta_fast = 8.1;
  flags.beta_slow = 1.1;
  flags.freq_base = 10000.1;
  const auto from_flags = Model::load(edited({}), with(flags));
  const auto a = models::rope_frequencies(from_file->hyperparameters(), std::nullopt);
  const auto b = models::rope_frequencies(from_flags->hyperparameters(), std::nullopt);
  EXPECT_EQ(*a.inv_freq, *b.inv_freq);
  EXPECT_EQ(a.magnitude, b.magnitude);
  EXPECT_EQ(from_file->hyperparameters().trained_context, 147u);  // floor(2.3 * 64)
  EXPECT_EQ(from_flags->hyperparameters().trained_context, 147u);
}

TEST_F(RopeSettings, TheContextIsTheFactorTimesTheOriginal) {
  struct Case {
    std::vector<Edit> file;
    models::RopeOverrides flags;
    std::uint32_t context;
  };
  const Edit linear{"llama.rope.scaling.type", str("linear")}, yarn{"llama.rope.scaling.type", str("yarn")};
  const Edit four{"llama.rope.scaling.factor", f32(4)};
  const Edit original{"llama.rope.scaling.original_context_length", u32(64)};
  models::RopeOverrides none, factor, ntk, off, base;
  factor.factor = 8;
  ntk.type = RopeScalingType::ntk;
  ntk.factor = 2;
  off.type = RopeScalingType::none;
  base.freq_base = 1e6;
  const std::vector<Case> cases = {
      {{}, none, 64},
      {{}, base, 64},
      {{}, factor, 512},  // a bare factor is linear
      {{}, ntk, 128},
      {{linear, four, original}, none, 256},
      {{linear, four, original}, factor, 512},
      // A linear file that states no original context states the scaled one.
      {{linear, four, {"llama.context_length", u32(256)}}, none, 256},
      {{linear, four, {"llama.context_length", u32(256)}}, off, 64},
      {{yarn, four, original, {"llama.context_length", u32(256)}}, none, 256},
      {{yarn, four, original, {"llama.context_length", u32(64)}}, none, 256},
      {{yarn, four}, none, 256},
      {{yarn, four, original}, off, 64},
      {{yarn, four, original}, factor, 512},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto model = Model::load(edited(cases[i].file), with(cases[i].flags));
    EXPECT_EQ(model->hyperparameters().trained_context, cases[i].context) << "case " << i;
    EXPECT_TRUE(model->warnings().empty()) << "case " << i << ": " << model->warnings().front();
  }
}

TEST_F(RopeSettings, FlagsWithoutEffectAreSaidAloud) {
  const auto warnings = [&](models::RopeOverrides flags) {
    return Model::load(edited({}), with(flags))->warnings();
  };
  models::RopeOverrides flags;
  flags.attention_factor = 1.2;
  flags.beta_fast = 16;
  auto said = warnings(flags);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[0].find("--yarn-attn-factor has no effect"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("--yarn-beta-fast has no effect"), std::string::npos) << said[1];

  flags = {};
  flags.type = RopeScalingType::none;
  flags.factor = 4;
  said = warnings(flags);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("--rope-scale has no effect"), std::string::npos) << said[0];

  flags = {};
  flags.type = RopeScalingType::yarn;
  said = warnings(flags);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("without a factor"), std::string::npos) << said[0];

  flags = {};
  flags.type = RopeScalingType::linear;
  flags.factor = 4;
  flags.extrapolation_factor = 0.5;
  said = warnings(flags);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("--yarn-ext-factor has no effect"), std::string::npos) << said[0];
}

TEST_F(RopeSettings, FlagsOutOfRangeAreRefusedByName) {
  const auto message = [&](models::RopeOverrides flags) -> std::string {
    try {
      Model::load(edited({}), with(flags));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      return e.message();
    }
    return "";
  };
  for (const double bad : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    models::RopeOverrides flags;
    flags.factor = bad;
    EXPECT_NE(message(flags).find("--rope-scale is"), std::string::npos) << message(flags);
    flags = {};
    flags.freq_base = bad;
    EXPECT_NE(message(flags).find("--rope-freq-base is"), std::string::npos) << message(flags);
    flags = {};
    flags.type = RopeScalingType::yarn;
    flags.factor = 2;
    flags.beta_slow = bad;
    EXPECT_NE(message(flags).find("--yarn-beta-slow is"), std::string::npos) << message(flags);
  }
}

TEST_F(RopeSettings, AnUnsupportedTypeOfTheFileCanBeOverridden) {
  models::RopeOverrides flags;
  flags.type = RopeScalingType::linear;
  flags.factor = 2;
  const auto model = Model::load(edited({{"llama.rope.scaling.type", str("dynamic")}}), with(flags));
  EXPECT_EQ(model->hyperparameters().rope_scaling.type, RopeScalingType::linear);
  EXPECT_EQ(model->hyperparameters().trained_context, 128u);
}

}  // namespace
}  // namespace quipu

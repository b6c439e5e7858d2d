// Tiny models of every variant against the logits transformers computes
// (tools/goldens/make_model_goldens.py).
#include <gtest/gtest.h>

#include "golden.hpp"
#include "run_model.hpp"

namespace quipu {
namespace {

using test::Golden;
using test::ModelRun;

class TinyModel : public testing::TestWithParam<const char*> {
 protected:
  std::string name() const { return GetParam(); }
  std::shared_ptr<const models::Model> load() const {
    return models::Model::load(test::golden_path(name() + ".gguf"));
  }
};

TEST_P(TinyModel, LogitsOfTheReferenceBackendAreThoseOfTransformers) {
  const auto model = load();
  EXPECT_TRUE(model->warnings().empty()) << model->warnings().front();
  const Golden golden(test::golden_path(name() + ".golden.gguf"));
  for (int i = 0; golden.has("tokens." + std::to_string(i)); ++i) {
    const auto tokens = golden.ints("tokens." + std::to_string(i));
    ModelRun run(model, backends::make_reference_backend(), 256, 256);
    EXPECT_LE(test::relative_error(run.push(tokens), golden.floats("logits." + std::to_string(i))), 1e-4)
        << "prompt " << i;
  }
}

TEST_P(TinyModel, LogitsOfTheCpuBackendAreThoseOfTransformers) {
  const auto model = load();
  const Golden golden(test::golden_path(name() + ".golden.gguf"));
  const auto tokens = golden.ints("tokens.0");
  const auto expected = golden.floats("logits.0");
  ModelRun run(model, backends::make_cpu_backend(), 256, 256);
  const auto found = run.push(tokens);
  ASSERT_EQ(found.size(), expected.size());
  const std::size_t vocab = model->hyperparameters().vocab;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const auto f = std::span(found).subspan(row * vocab, vocab);
    const auto e = std::span(expected).subspan(row * vocab, vocab);
    EXPECT_GE(test::cosine(f, e), 0.9999) << "position " << row;
    EXPECT_EQ(test::top(f), test::top(e)) << "position " << row;
  }
}

TEST_P(TinyModel, PromptInChunksOrTokenByTokenGivesTheSameBytes) {
  const auto model = load();
  const Golden golden(test::golden_path(name() + ".golden.gguf"));
  const auto tokens = golden.ints("tokens.0");
  for (const bool cpu : {false, true}) {
    const std::shared_ptr<backends::Backend> backend =
        cpu ? backends::make_cpu_backend() : backends::make_reference_backend();
    ModelRun whole(model, backend, 256, 256), sevens(model, backend, 256, 7), single(model, backend, 256, 1);
    const auto expected = whole.push(tokens);
    EXPECT_EQ(sevens.push_in_chunks(tokens, 7), expected) << (cpu ? "cpu" : "reference");
    EXPECT_EQ(single.push_in_chunks(tokens, 1), expected) << (cpu ? "cpu" : "reference");
  }
}

/// transformers takes the long factors for a prompt beyond the original context
/// of 64; here the user does.
TEST(LongRope, TheLongFactorsAreTakenOnRequest) {
  const auto path = test::golden_path("phi3_beyond.gguf");
  models::LoadOptions options;
  EXPECT_EQ(models::Model::load(path, options)->hyperparameters().trained_context, 64u);
  options.rope.type = models::RopeScalingType::longrope;
  const auto model = models::Model::load(path, options);
  EXPECT_EQ(model->hyperparameters().trained_context, 256u);
  const Golden golden(test::golden_path("phi3_beyond.golden.gguf"));
  ModelRun run(model, backends::make_reference_backend(), 256, 256);
  EXPECT_LE(test::relative_error(run.push(golden.ints("tokens.0")), golden.floats("logits.0")), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Variants, TinyModel,
                         testing::Values("llama_gqa", "llama_tied_mha", "llama_biases", "llama_odd_sizes",
                                         "llama_linear", "llama_yarn", "llama_yarn_options", "llama3",
                                         "mistral_window", "qwen2", "qwen3"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Families, TinyModel,
                         testing::Values("apertus", "arcee", "bailingmoe", "bailingmoe2", "bloom", "chatglm",
                                         "cohere2", "command_r", "deepseek", "deepseek_v2", "deepseek_v3",
                                         "dots1", "ernie4_5", "ernie4_5_moe", "exaone", "exaone_moe",
                                         "exaone4", "falcon", "falcon_two_norms", "gemma", "gemma2", "gemma3",
                                         "gemma3n", "gemma4", "gemma4_moe", "glm4", "glm4_moe",
                                         "glm4_moe_lite", "gpt2", "gpt_oss", "gptj", "gptneox",
                                         "gptneox_serial", "granite", "granitemoe", "granitemoe_shared",
                                         "hunyuan_dense", "hunyuan_moe", "internlm2", "jais2", "llama4",
                                         "minicpm", "minimax_m2", "ministral3", "mixtral", "mpt", "nemotron",
                                         "olmo", "olmo2", "olmo3", "olmoe", "phi2", "phi3", "phi3_within",
                                         "phimoe", "qwen2moe", "qwen3moe", "seed_oss", "smollm3", "stablelm",
                                         "stablelm_parallel", "starcoder", "starcoder2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace quipu

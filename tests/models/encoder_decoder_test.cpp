// Encoder-decoder models against the logits transformers computes (tools/goldens/make_model_goldens.py).
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "golden.hpp"
#include "run_model.hpp"

namespace quipu {
namespace {

using test::Golden;
using test::ModelRun;

class EncoderDecoder : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const models::Model> model =
      models::Model::load(test::golden_path(GetParam() + std::string(".gguf")));
  Golden golden{test::golden_path(GetParam() + std::string(".golden.gguf"))};

  std::vector<float> run(bool cpu, int prompt, std::size_t chunk) const {
    const std::shared_ptr<backends::Backend> backend =
        cpu ? backends::make_cpu_backend() : backends::make_reference_backend();
    ModelRun run(model, backend, 256, 256);
    run.encode(golden.ints("tokens." + std::to_string(prompt)));
    return run.push_in_chunks(golden.ints("decoder." + std::to_string(prompt)), chunk);
  }
  std::vector<float> expected(int prompt) const { return golden.floats("logits." + std::to_string(prompt)); }
};

TEST_P(EncoderDecoder, LogitsOfTheReferenceBackendAreThoseOfTransformers) {
  EXPECT_TRUE(model->has_prompt_encoder());
  EXPECT_TRUE(model->gives_text());
  EXPECT_TRUE(model->warnings().empty()) << model->warnings().front();
  for (int i = 0; golden.has("tokens." + std::to_string(i)); ++i)
    EXPECT_LE(test::relative_error(run(false, i, 256), expected(i)), 1e-4) << "prompt " << i;
}

TEST_P(EncoderDecoder, LogitsOfTheCpuBackendAreThoseOfTransformers) {
  const std::size_t vocab = model->hyperparameters().vocab;
  for (int i = 0; golden.has("tokens." + std::to_string(i)); ++i) {
    const std::vector<float> found = run(true, i, 256), wanted = expected(i);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t at = 0; at < found.size(); at += vocab) {
      const auto f = std::span(found).subspan(at, vocab), e = std::span(wanted).subspan(at, vocab);
      EXPECT_GE(test::cosine(f, e), 0.9999) << "position " << at / vocab;
      EXPECT_EQ(test::top(f), test::top(e)) << "position " << at / vocab;
    }
  }
}

TEST_P(EncoderDecoder, WhatIsWrittenInChunksOrTokenByTokenGivesTheSameBytes) {
  for (const bool cpu : {false, true}) {
    const std::vector<float> whole = run(cpu, 0, 256);
    EXPECT_EQ(run(cpu, 0, 7), whole) << (cpu ? "cpu" : "reference");
    EXPECT_EQ(run(cpu, 0, 1), whole) << (cpu ? "cpu" : "reference");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderDecoder, testing::Values("t5", "t5_tied"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace quipu

// Hugging Face folders run as they lie: logits against those of transformers, and the same bytes as the
// converted file (tests/goldens/convert, tools/goldens/make_convert_goldens.py).
#include <gtest/gtest.h>

#include "convert/convert.hpp"
#include "convert/encoder.hpp"
#include "convert/mixes.hpp"
#include "convert_folder.hpp"
#include "golden.hpp"
#include "run_model.hpp"

namespace quipu {
namespace {

using test::Golden;
using test::ModelFolder;
using test::ModelRun;

/// Of the golden's tokens; of what the decoder reads after them, where the model encodes its prompt.
std::vector<float> logits(ModelRun& run, const Golden& golden) {
  const auto tokens = golden.ints("tokens");
  if (!golden.has("decoder")) return run.push(tokens);
  run.encode(tokens);
  return run.push(golden.ints("decoder"));
}

class ModelFolders : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelFolders, GiveTheLogitsOfTransformers) {
  const ModelFolder folder(GetParam());
  const auto model = models::Model::load(folder.path());
  const Golden golden(test::convert_golden(GetParam()) / "logits.gguf");
  ModelRun run(model, backends::make_reference_backend(), 64, 64);
  EXPECT_LE(test::relative_error(logits(run, golden), golden.floats("logits")), 1e-4);
}

TEST_P(ModelFolders, GiveTheBytesOfTheConvertedFile) {
  const ModelFolder folder(GetParam());
  const auto direct = models::Model::load(folder.path());
  const auto source = convert::Model::open(folder.path());
  gguf::write(folder / "whole.gguf", source.metadata(), source.as_file(2).tensors());
  const auto converted = models::Model::load(folder / "whole.gguf");
  const Golden golden(test::convert_golden(GetParam()) / "logits.gguf");
  ModelRun one(direct, backends::make_cpu_backend(), 64, 64),
      two(converted, backends::make_cpu_backend(), 64, 64);
  EXPECT_EQ(logits(one, golden), logits(two, golden));
  EXPECT_EQ(direct->fingerprint(), converted->fingerprint());
}

INSTANTIATE_TEST_SUITE_P(Golden, ModelFolders, ::testing::ValuesIn(test::golden_models()),
                         [](const auto& info) { return test::plain_name(info.param); });

}  // namespace
}  // namespace quipu

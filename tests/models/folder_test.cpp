// Hugging Face folders run as they lie: logits against those of transformers, and the same bytes as the
// converted file (tests/goldens/convert, tools/goldens/make_convert_goldens.py).
#include <gtest/gtest.h>

#include <set>

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

/// These run, whatever becomes of the others.
const std::set<std::string> kMustRun = {"llama",          "llama_biases", "mistral",     "qwen2",
                                        "qwen3",          "bert",         "bert_rank",   "roberta_rank",
                                        "nomic_bert",     "jina_bert",    "modern_bert", "modern_bert_rank",
                                        "gemma_embedding"};

/// Nothing, and why, when quipu does not run the model's architecture yet.
std::shared_ptr<const models::Model> load(const std::filesystem::path& path, const std::string& name,
                                          std::string& reason) {
  try {
    return models::Model::load(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported || kMustRun.contains(name)) throw;
    reason = error.message();
    return nullptr;
  }
}

#define LOAD_OR_SKIP(model, folder)                             \
  std::string reason;                                           \
  const auto model = load((folder).path(), GetParam(), reason); \
  if (model == nullptr) GTEST_SKIP() << "SKIPPED: " << reason

class ModelFolders : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelFolders, GiveTheLogitsOfTransformers) {
  const ModelFolder folder(GetParam());
  LOAD_OR_SKIP(model, folder);
  const Golden golden(test::convert_golden(GetParam()) / "logits.gguf");
  const auto tokens = golden.ints("tokens");
  ModelRun run(model, backends::make_reference_backend(), 64, 64);
  EXPECT_LE(test::relative_error(run.push(tokens), golden.floats("logits")), 1e-4);
}

TEST_P(ModelFolders, GiveTheBytesOfTheConvertedFile) {
  const ModelFolder folder(GetParam());
  LOAD_OR_SKIP(direct, folder);
  const auto source = convert::Model::open(folder.path());
  gguf::write(folder / "whole.gguf", source.metadata(), source.as_file(2).tensors());
  const auto converted = models::Model::load(folder / "whole.gguf");
  const auto tokens = Golden(test::convert_golden(GetParam()) / "logits.gguf").ints("tokens");
  ModelRun one(direct, backends::make_cpu_backend(), 64, 64),
      two(converted, backends::make_cpu_backend(), 64, 64);
  EXPECT_EQ(one.push(tokens), two.push(tokens));
  EXPECT_EQ(direct->fingerprint(), converted->fingerprint());
}

INSTANTIATE_TEST_SUITE_P(Golden, ModelFolders, ::testing::ValuesIn(test::golden_models()),
                         [](const auto& info) { return test::plain_name(info.param); });

}  // namespace
}  // namespace quipu

// Encoders and rerankers against transformers (tests/goldens/convert, tools/goldens/make_convert_goldens.py).
// Their hidden states are checked with those of the decoders in folder_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "convert_folder.hpp"
#include "core/error.hpp"
#include "golden.hpp"
#include "run_model.hpp"

namespace quipu {
namespace {

using models::Pooling;
using test::Golden;
using test::ModelFolder;
using test::ModelRun;

class Encoder : public testing::TestWithParam<const char*> {
 protected:
  std::string name() const { return GetParam(); }
  Golden golden() const { return Golden(test::convert_golden(name()) / "logits.gguf"); }
};

std::vector<float> run(const std::shared_ptr<const models::Model>& model, bool cpu, Pooling pooling,
                       std::span<const std::int32_t> tokens) {
  const std::shared_ptr<backends::Backend> backend =
      cpu ? backends::make_cpu_backend() : backends::make_reference_backend();
  ModelRun run(model, backend, 64, 64, DType::f32, pooling);
  return run.push(tokens, pooling != Pooling::none);
}

/// The pooled row by hand from the hidden states that transformers computed.
std::vector<float> pooled(Pooling pooling, const std::vector<float>& states, std::size_t width) {
  const std::size_t rows = states.size() / width;
  std::vector<float> out(width);
  for (std::size_t i = 0; i < width; ++i) {
    double sum = 0;
    for (std::size_t row = 0; row < rows; ++row) sum += states[row * width + i];
    out[i] = pooling == Pooling::mean  ? static_cast<float>(sum / static_cast<double>(rows))
             : pooling == Pooling::cls ? states[i]
                                       : states[(rows - 1) * width + i];
  }
  return out;
}

TEST_P(Encoder, PooledVectorsAreThoseOfTransformers) {
  const ModelFolder folder(name());
  const auto model = models::Model::load(folder.path());
  EXPECT_FALSE(model->gives_text());
  const auto tokens = golden().ints("tokens");
  const auto states = golden().floats("logits");
  const std::size_t width = model->hyperparameters().embedding;
  for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
    const std::vector<float> expected = pooled(pooling, states, width);
    EXPECT_LE(test::relative_error(run(model, false, pooling, tokens), expected), 1e-4) << to_string(pooling);
    EXPECT_GE(test::cosine(run(model, true, pooling, tokens), expected), 0.9999) << to_string(pooling);
  }
  const auto found = run(model, true, Pooling::none, tokens);
  ASSERT_EQ(found.size(), states.size());
  for (std::size_t row = 0; row < tokens.size(); ++row)
    EXPECT_GE(test::cosine(std::span(found).subspan(row * width, width),
                           std::span(states).subspan(row * width, width)),
              0.9999)
        << "position " << row;
}

INSTANTIATE_TEST_SUITE_P(Families, Encoder,
                         testing::Values("bert", "bert_rank", "gemma_embedding", "jina_bert", "modern_bert",
                                         "modern_bert_rank", "nomic_bert", "roberta_rank", "t5encoder"),
                         [](const auto& info) { return info.param; });

class Reranker : public Encoder {};

TEST_P(Reranker, ScoresAreThoseOfTransformers) {
  const ModelFolder folder(name());
  const auto model = models::Model::load(folder.path());
  EXPECT_TRUE(model->has_classifier());
  EXPECT_TRUE(model->warnings().empty()) << model->warnings().front();
  EXPECT_EQ(model->hyperparameters().pooling, Pooling::rank);
  const auto tokens = golden().ints("tokens");
  const auto expected = golden().floats("scores");
  EXPECT_LE(test::relative_error(run(model, false, Pooling::rank, tokens), expected), 1e-4);
  EXPECT_LE(test::relative_error(run(model, true, Pooling::rank, tokens), expected), 5e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, Reranker, testing::Values("bert_rank", "modern_bert_rank", "roberta_rank"),
                         [](const auto& info) { return info.param; });

TEST(Vectors, OfADecoderAreItsNormedStatesPooled) {
  // The mean over all tokens is the mean of the vectors of each.
  const auto model = models::Model::load(test::golden_path("qwen3.gguf"));
  EXPECT_TRUE(model->gives_text());
  const std::vector<std::int32_t> tokens{1, 7, 33, 12, 5};
  const std::size_t width = model->hyperparameters().embedding;
  const auto rows = run(model, false, Pooling::none, tokens);
  ASSERT_EQ(rows.size(), tokens.size() * width);
  for (const Pooling pooling : {Pooling::mean, Pooling::last})
    EXPECT_LE(test::relative_error(run(model, false, pooling, tokens), pooled(pooling, rows, width)), 1e-6);
  // And they are what the output layer reads: tied embeddings times the last one are the logits.
  ModelRun text(model, backends::make_reference_backend(), 64, 64);
  const auto logits = text.push(tokens, true);
  const auto last = run(model, false, Pooling::last, tokens);
  const TensorView* table = model->file().find_tensor("token_embd.weight");
  std::vector<float> row(width);
  for (const std::size_t token : {3U, 40U}) {
    info(table->dtype).decode(table->data + token * table->row_bytes(), row.data(), width);
    double dot = 0;
    for (std::size_t i = 0; i < width; ++i) dot += static_cast<double>(row[i]) * last[i];
    EXPECT_NEAR(logits[token], dot, 1e-4 * std::abs(dot));
  }
}

TEST(Vectors, ScoresOfAModelWithoutAHeadAreRefused) {
  const auto model = models::Model::load(test::golden_path("qwen3.gguf"));
  try {
    static_cast<void>(model->build_vector_graph(Pooling::rank));
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(error.message().find("classification head"), std::string::npos) << error.message();
  }
}

/// EmbeddingGemma's two matrices behind the pooling, by hand.
TEST(Vectors, DenseLayersOfSentenceTransformersStandBehindThePooling) {
  const ModelFolder folder("gemma_embedding");
  const auto plain = models::Model::load(folder.path());
  const Golden golden(test::convert_golden("gemma_embedding") / "logits.gguf");
  const auto tokens = golden.ints("tokens");
  const std::size_t width = plain->hyperparameters().embedding, inner = 3;
  const auto matrix = [](std::size_t rows, std::size_t columns) {
    std::vector<float> values(rows * columns);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 13) / 8 - 0.75f;
    return values;
  };
  const auto write = [&](const std::string& name, std::size_t rows, std::size_t columns) {
    const auto values = matrix(rows, columns);
    std::string header =
        fmt::format(R"({{"linear.weight":{{"dtype":"F32","shape":[{},{}],"data_offsets":[0,{}]}}}})", rows,
                    columns, values.size() * 4);
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::uint64_t size = header.size();
    std::string bytes(reinterpret_cast<const char*>(&size), 8);
    bytes += header;
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    std::filesystem::create_directory(folder / name);
    folder.write(name + "/model.safetensors", bytes);
    folder.write(name + "/config.json",
                 R"({"bias":false,"activation_function":"torch.nn.modules.linear.Identity"})");
  };
  write("2_Dense", inner, width);
  write("3_Dense", width, inner);
  folder.write("modules.json",
               R"([{"type":"sentence_transformers.models.Pooling","path":"1_Pooling"},
                   {"type":"sentence_transformers.models.Dense","path":"2_Dense"},
                   {"type":"sentence_transformers.models.Dense","path":"3_Dense"}])");
  const auto dense = models::Model::load(folder.path());
  EXPECT_TRUE(dense->warnings().empty()) << dense->warnings().front();
  const auto mean = pooled(Pooling::mean, golden.floats("logits"), width);
  const auto times = [](const std::vector<float>& m, const std::vector<float>& x, std::size_t rows) {
    std::vector<float> y(rows);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < x.size(); ++i) y[r] += m[r * x.size() + i] * x[i];
    return y;
  };
  const auto expected = times(matrix(width, inner), times(matrix(inner, width), mean, inner), width);
  EXPECT_LE(test::relative_error(run(dense, false, Pooling::mean, tokens), expected), 1e-4);
}

}  // namespace
}  // namespace quipu

// `quipu quantize`: which types the tensors get (as llama.cpp's quantiser chose for the same shapes), values,
// and refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "program.hpp"
#include "tensor/dtype.hpp"

namespace quipu {
namespace {

namespace fs = std::filesystem;
using test::run_quipu;
using test::shell_quoted;

/// Eight blocks of a llama with the given width; every weight is (i % 15 - 7) / 8.
struct Model {
  explicit Model(std::int64_t width) : values(static_cast<std::size_t>(width * width)) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<float>(i % 15) - 7.0f) / 8.0f;
    metadata.set("general.architecture", gguf::Value::of_string("llama"));
    metadata.set("llama.attention.head_count", gguf::Value::of_u32(2));
    metadata.set("llama.attention.head_count_kv", gguf::Value::of_u32(1));
    metadata.set("split.count", test::split_value(0));
    add("token_embd.weight", width, width);
    for (int i = 0; i < 8; ++i)
      for (const char* part : {"attn_norm", "attn_q", "attn_v", "attn_output", "ffn_down"})
        add("blk." + std::to_string(i) + "." + part + ".weight", width,
            part == std::string("attn_norm") ? 1 : width);
    add("output.weight", width, width);
  }
  void add(const std::string& name, std::int64_t columns, std::int64_t rows) {
    tensors.push_back(
        {name, DType::f32, {columns, rows, 1, 1}, reinterpret_cast<const std::byte*>(values.data())});
  }
  std::vector<float> values;
  gguf::Metadata metadata;
  std::vector<TensorView> tensors;
};

class Quantize : public ::testing::Test {
 protected:
  test::Outcome run(const Model& model, const std::string& type) {
    gguf::write(folder / "in.gguf", model.metadata, model.tensors);
    return run_quipu("quantize " + shell_quoted(folder / "in.gguf") + " " +
                     shell_quoted(folder / "out.gguf") + " " + type);
  }
  std::map<std::string, std::string> types() {
    const gguf::File file = gguf::File::open(folder / "out.gguf");
    std::map<std::string, std::string> result;
    for (const TensorView& tensor : file.tensors()) result[tensor.name] = to_string(tensor.dtype);
    return result;
  }
  test::TemporaryFolder folder;
};

TEST_F(Quantize, Q4KMGivesMoreBitsWhereTheMixSaysSo) {
  const auto outcome = run(Model(256), "Q4_K_M");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  auto type = types();
  EXPECT_EQ(type["output.weight"], "Q6_K");
  EXPECT_EQ(type["token_embd.weight"], "Q4_K");
  EXPECT_EQ(type["blk.0.attn_norm.weight"], "F32");
  EXPECT_EQ(type["blk.3.attn_q.weight"], "Q4_K");
  EXPECT_EQ(type["blk.3.attn_output.weight"], "Q4_K");
  // Of eight layers: the first, the last, and every third after the first.
  const char* more[8] = {"Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q6_K"};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(type["blk." + std::to_string(i) + ".attn_v.weight"], more[i]) << i;
    EXPECT_EQ(type["blk." + std::to_string(i) + ".ffn_down.weight"], more[i]) << i;
  }
  const gguf::File file = gguf::File::open(folder / "out.gguf");
  EXPECT_EQ(file.metadata().get_uint("general.file_type"), 15u);
  EXPECT_EQ(file.metadata().get_uint("general.quantization_version"), 2u);
  EXPECT_EQ(file.metadata().find("split.count"), nullptr);
}

TEST_F(Quantize, RowsThatDoNotFitFallBackAndAreSaidAloud) {
  const auto outcome = run(Model(96), "q4_k_m");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  auto type = types();
  EXPECT_EQ(type["blk.1.attn_q.weight"], "Q5_0");
  EXPECT_EQ(type["blk.0.attn_v.weight"], "Q8_0");
  EXPECT_EQ(type["output.weight"], "Q8_0");
  EXPECT_NE(outcome.err.find("Q5_0 instead of Q4_K"), std::string::npos) << outcome.err;
  ASSERT_EQ(run(Model(96), "Q2_K").status, 0);
  EXPECT_EQ(types()["blk.1.attn_q.weight"], "Q4_0");
  ASSERT_EQ(run(Model(96), "IQ4_XS").status, 0);
  EXPECT_EQ(types()["blk.1.attn_q.weight"], "IQ4_NL");
  ASSERT_EQ(run(Model(40), "Q4_0").status, 0);
  EXPECT_EQ(types()["blk.1.attn_q.weight"], "F16");
}

TEST_F(Quantize, KeepsValuesThatTheTypeHolds) {
  const Model model(64);
  for (const char* type : {"F32", "F16", "BF16"}) {
    ASSERT_EQ(run(model, type).status, 0);
    const gguf::File file = gguf::File::open(folder / "out.gguf");
    const TensorView* tensor = file.find_tensor("blk.2.attn_q.weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(to_string(tensor->dtype), type);
    std::vector<float> values(64 * 64);
    info(tensor->dtype).decode(tensor->data, values.data(), values.size());
    EXPECT_EQ(values, model.values) << type;  // multiples of 1/8: exact in all three
  }
}

TEST_F(Quantize, GivesTheSameBytesForAnyNumberOfThreads) {
  ASSERT_EQ(run(Model(256), "Q5_K_M -t 1").status, 0);
  const std::string one = test::read_bytes(folder / "out.gguf");
  ASSERT_EQ(run(Model(256), "Q5_K_M -t 3").status, 0);
  EXPECT_EQ(test::read_bytes(folder / "out.gguf"), one);
}

TEST_F(Quantize, RefusesWithOneLineAndLeavesNothingBehind) {
  const auto refused = [&](const Model& model, const std::string& type, const std::string& words) {
    const auto outcome = run(model, type);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    fs::remove(folder / "in.gguf");
    EXPECT_TRUE(fs::is_empty(folder.path()));
  };
  refused(Model(64), "Q9_X", "unknown type \"Q9_X\"");
  Model broken(64);
  broken.values[70] = std::numeric_limits<float>::quiet_NaN();
  refused(broken, "Q8_0", "NaN or infinity in row 1");
  ASSERT_EQ(run(Model(64), "Q8_0").status, 0);
  const auto again = run_quipu("quantize " + shell_quoted(folder / "out.gguf") + " " +
                               shell_quoted(folder / "x.gguf") + " Q4_0");
  EXPECT_EQ(again.status, 1);
  EXPECT_NE(again.err.find("--allow-requantize"), std::string::npos) << again.err;
  EXPECT_FALSE(fs::exists(folder / "x.gguf"));
}

}  // namespace
}  // namespace quipu

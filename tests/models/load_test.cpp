// What Model::load reads, and what it refuses.
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "edit_model.hpp"
#include "formats/gguf/splits.hpp"
#include "golden.hpp"
#include "models/model.hpp"
#include "run_model.hpp"

namespace quipu {
namespace {

using models::Model;
using test::Edit;
using test::f32;
using test::i32;
using test::str;
using test::u32;
using test::u32s;

class ModelLoad : public testing::Test {
 protected:
  std::filesystem::path edited(const std::vector<Edit>& edits,
                               const std::function<void(std::vector<TensorView>&)>& tensors = {}) {
    const auto path = folder_ / "edited.gguf";
    test::write_edited(test::golden_path("llama_gqa.gguf"), path, edits, tensors);
    return path;
  }
  /// The message of the error that loading the edited model ends in; empty when it loads.
  std::string error(const std::vector<Edit>& edits,
                    const std::function<void(std::vector<TensorView>&)>& tensors = {}) {
    const auto path = edited(edits, tensors);
    try {
      Model::load(path);
    } catch (const Error& e) {
      EXPECT_NE(e.code(), ErrorCode::internal) << e.message();
      return e.message();
    }
    return "";
  }
  test::TemporaryFolder folder_;
};

void expect_mentions(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks '" << part << "'";
}

/// What the tokenizer is made of is not held twice.
TEST_F(ModelLoad, KeepsTheVocabularyInTheTokenizerOnly) {
  const auto path = test::golden_path("llama_gqa.gguf");
  const gguf::File file = gguf::File::open(path);
  const auto& tokens = *file.metadata().try_strings("tokenizer.ggml.tokens");
  const auto model = Model::load(path);
  for (const auto& entry : file.metadata().entries()) {
    const bool array = entry.value.type == gguf::ValueType::array;
    const bool of_tokenizer = entry.key.starts_with("tokenizer.");
    EXPECT_EQ(model->file().metadata().find(entry.key) != nullptr, !(array && of_tokenizer)) << entry.key;
  }
  ASSERT_EQ(model->tokenizer().size(), tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    EXPECT_EQ(model->tokenizer().text(static_cast<text::Token>(i)), tokens[i]);
}

TEST_F(ModelLoad, ReadsTheHyperparameters) {
  const auto model = Model::load(test::golden_path("llama_odd_sizes.gguf"));
  const auto& h = model->hyperparameters();  // the numbers of make_model_goldens.py
  EXPECT_EQ(h.architecture, "llama");
  EXPECT_EQ(h.layers, 3u);
  EXPECT_EQ(h.embedding, 42u);
  EXPECT_EQ(h.vocab, 61u);
  EXPECT_EQ(h.trained_context, 256u);
  EXPECT_EQ(h.heads, (std::vector<std::uint32_t>{3, 3, 3}));
  EXPECT_EQ(h.kv_heads, (std::vector<std::uint32_t>{1, 1, 1}));
  EXPECT_EQ(h.feed_forward, (std::vector<std::uint32_t>{50, 50, 50}));
  EXPECT_EQ(h.key_dim, 10u);
  EXPECT_EQ(h.value_dim, 10u);
  EXPECT_EQ(h.rope_dims, 10u);
  EXPECT_EQ(h.rope_freq_base, 500.0);
  EXPECT_EQ(h.norm_eps, 1e-3f);
  EXPECT_EQ(h.sliding_window, 0u);
  EXPECT_EQ(Model::load(test::golden_path("mistral_window.gguf"))->hyperparameters().sliding_window, 9u);
}

TEST_F(ModelLoad, CountsParametersAndBytesAndDescribesTheModel) {
  const auto model = Model::load(test::golden_path("llama_odd_sizes.gguf"));
  // Per block: q and output 42x30, k and v 42x10, three feed-forward matrices 42x50, two norms; then
  // embedding and output 42x61, and the last norm.
  const std::uint64_t matrices = 3 * (2 * 42 * 30 + 2 * 42 * 10 + 3 * 42 * 50) + 2 * 42 * 61;
  const std::uint64_t norms = 3 * 2 * 42 + 42;
  EXPECT_EQ(model->parameters(), matrices + norms);
  EXPECT_EQ(model->weight_bytes(), 2 * matrices + 4 * norms);
  EXPECT_EQ(model->description(), "llama 34K F16");
}

TEST_F(ModelLoad, PerBlockArraysAreRead) {
  const auto model = Model::load(edited({{"llama.attention.head_count", u32s({4, 4})},
                                         {"llama.attention.head_count_kv", u32s({2, 2})},
                                         {"llama.feed_forward_length", u32s({64, 64})}}));
  EXPECT_EQ(model->hyperparameters().kv_heads, (std::vector<std::uint32_t>{2, 2}));
}

TEST_F(ModelLoad, MissingKeysAreNamed) {
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.context_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.tokens",
        "general.architecture"}) {
    if (std::string_view(key) == "general.architecture") {
      // The writer's own check aside, a file without it cannot be told from no model.
      expect_mentions(error({{key, std::nullopt}}), {"general.architecture"});
      continue;
    }
    expect_mentions(error({{key, std::nullopt}}), {"edited.gguf", key});
  }
}

TEST_F(ModelLoad, UnusableSettingsAreNamedWithTheValueFound) {
  struct Case {
    std::string key;
    gguf::Value value;
    std::string found;
  };
  const std::vector<Case> cases = {
      {"block_count", u32(0), "0"},
      {"block_count", u32(4294967295), "4294967295"},
      {"block_count", i32(-3), "-3"},
      {"embedding_length", u32(0), "0"},
      {"embedding_length", u32(33), "33"},
      {"embedding_length", u32(4294967295), "4294967295"},
      {"context_length", u32(0), "0"},
      {"feed_forward_length", u32(0), "0"},
      {"feed_forward_length", u32s({64}), "1"},
      {"attention.head_count", u32(0), "0"},
      {"attention.head_count", u32(4294967295), "4294967295"},
      {"attention.head_count", u32s({4, 4, 4}), "3"},
      {"attention.head_count", u32s({}), "0"},
      {"attention.head_count_kv", u32(0), "0"},
      {"attention.head_count_kv", u32(3), "3"},
      {"attention.head_count_kv", u32(8), "8"},
      {"attention.head_count_kv", u32s({2, 3}), "3"},
      {"attention.key_length", u32(0), "0"},
      {"attention.key_length", u32(70000), "70000"},
      {"attention.value_length", u32(0), "0"},
      {"attention.layer_norm_rms_epsilon", f32(NAN), "nan"},
      {"attention.layer_norm_rms_epsilon", f32(-1e-5), "-"},
      {"attention.layer_norm_rms_epsilon", f32(0), "0"},
      {"attention.layer_norm_rms_epsilon", f32(INFINITY), "inf"},
      {"rope.freq_base", f32(NAN), "nan"},
      {"rope.freq_base", f32(0), "0"},
      {"rope.freq_base", f32(-10000), "-10000"},
      {"rope.freq_base", f32(INFINITY), "inf"},
      {"rope.dimension_count", u32(0), "0"},
      {"rope.dimension_count", u32(7), "7"},
      {"rope.dimension_count", u32(64), "64"},
      {"expert_used_count", u32(2), "2"},
      {"rope.scaling.type", str("bent\x1b"), "'bent\\"},
  };
  for (const Case& c : cases) {
    std::vector<Edit> edits{{"llama." + c.key, c.value}};
    if (c.key != "rope.dimension_count") edits.push_back({"llama.rope.dimension_count", std::nullopt});
    expect_mentions(error(edits), {"edited.gguf", "llama." + c.key, c.found, "expected"});
  }
}

TEST_F(ModelLoad, UnusableRopeScalingIsNamed) {
  for (const char* type : {"linear", "yarn", "ntk"})
    for (const double factor : {0.0, -4.0, 0.5, static_cast<double>(NAN), static_cast<double>(INFINITY)})
      expect_mentions(
          error({{"llama.rope.scaling.type", str(type)}, {"llama.rope.scaling.factor", f32(factor)}}),
          {"edited.gguf", "llama.rope.scaling.factor", "expected"});
  for (const char* key : {"yarn_beta_fast", "yarn_beta_slow", "attn_factor", "yarn_ext_factor"})
    for (const double value : {-1.0, static_cast<double>(NAN), 1e30})
      expect_mentions(error({{"llama.rope.scaling.type", str("yarn")},
                             {"llama.rope.scaling.factor", f32(4)},
                             {std::string("llama.rope.scaling.") + key, f32(value)}}),
                      {"edited.gguf", std::string("llama.rope.scaling.") + key, "expected"});
  expect_mentions(error({{"llama.rope.scaling.type", str("dynamic")}}),
                  {"llama.rope.scaling.type", "'dynamic'", "not supported yet"});
  expect_mentions(error({{"llama.rope.scaling.type", str("longrope")}}),
                  {"rope_factors_long.weight", "missing"});
  expect_mentions(error({{"llama.rope.scaling.type", str("yarn")},
                         {"llama.rope.scaling.factor", f32(4)},
                         {"llama.rope.scaling.original_context_length", u32(0)}}),
                  {"llama.rope.scaling.original_context_length", "0"});
  expect_mentions(error({{"llama.rope.scaling.type", str("yarn")},
                         {"llama.rope.scaling.factor", f32(4)},
                         {"llama.rope.scaling.original_context_length", u32(4294967295)}}),
                  {"4294967295", "scaled by 4"});
}

TEST_F(ModelLoad, ExpertsNeedTheirWeights) {
  expect_mentions(error({{"llama.expert_count", u32(8)}, {"llama.expert_used_count", u32(2)}}),
                  {"edited.gguf", "blk.0.ffn_gate_inp.weight", "missing"});
  expect_mentions(error({{"llama.expert_count", u32(8)}}), {"llama.expert_used_count", "0", "1 to"});
  expect_mentions(error({{"llama.expert_count", u32(8)},
                         {"llama.expert_used_count", u32(6)},
                         {"llama.expert_group_count", u32(4)},
                         {"llama.expert_group_used_count", u32(2)}}),
                  {"llama.expert_group_count", "4 with 2 used", "6"});
}

TEST_F(ModelLoad, ArchitecturesWithoutExpertsRefuseThem) {
  test::write_edited(test::golden_path("qwen2.gguf"), folder_ / "experts.gguf",
                     {{"qwen2.expert_count", u32(8)}, {"qwen2.expert_used_count", u32(2)}}, {});
  try {
    Model::load(folder_ / "experts.gguf");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    expect_mentions(e.message(), {"qwen2.expert_count", "8", "not supported yet"});
  }
}

TEST_F(ModelLoad, AnUnknownArchitectureIsNamedWithWhatIsNearIt) {
  expect_mentions(error({{"general.architecture", str("qwen3next")}}),
                  {"'qwen3next'", "near it: qwen3, qwen3moe"});
  expect_mentions(error({{"general.architecture", str("GPT_OSS")}}), {"near it: gpt-oss"});
  expect_mentions(error({{"general.architecture", str("lama")}}), {"near it: llama"});
  const std::string far = error({{"general.architecture", str("rwkv7")}});
  EXPECT_EQ(far.find("near it"), std::string::npos) << far;
}

TEST_F(ModelLoad, AnUnknownArchitectureIsNamedWithTheSupportedOnes) {
  expect_mentions(error({{"general.architecture", str("frob\nnicate")}}),
                  {"edited.gguf", "'frob\\nnicate'", "llama", "qwen2", "qwen3"});
  expect_mentions(error({{"general.architecture", str("")}}), {"general.architecture", "''"});
}

TEST_F(ModelLoad, AVocabularyOnlyFileSaysThatItIsOne) {
  expect_mentions(error({}, [](auto& tensors) { tensors.clear(); }), {"edited.gguf", "vocabulary only"});
}

TEST_F(ModelLoad, AMissingTensorIsNamed) {
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.1.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight", "blk.1.attn_v.weight", "blk.0.attn_output.weight", "blk.1.ffn_norm.weight",
        "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.1.ffn_down.weight"}) {
    const auto drop = [&](auto& tensors) {
      std::erase_if(tensors, [&](const TensorView& t) { return t.name == name; });
    };
    expect_mentions(error({}, drop), {"edited.gguf", name, "missing"});
  }
}

TEST_F(ModelLoad, AMisshapenTensorIsNamedWithBothShapes) {
  const auto reshape = [](std::string name, std::array<std::int64_t, 4> shape) {
    return [name, shape](auto& tensors) {
      for (TensorView& t : tensors)
        if (t.name == name) t.shape = shape;
    };
  };
  expect_mentions(error({}, reshape("blk.0.attn_q.weight", {32, 16, 1, 1})),
                  {"blk.0.attn_q.weight", "32x16", "32x32"});
  expect_mentions(error({}, reshape("token_embd.weight", {64, 32, 1, 1})),
                  {"token_embd.weight", "64x32", "32x64"});
  expect_mentions(error({}, reshape("blk.1.ffn_down.weight", {32, 64, 1, 1})),
                  {"blk.1.ffn_down.weight", "32x64", "64x32"});
  expect_mentions(error({}, reshape("output.weight", {32, 32, 2, 1})), {"output.weight", "32x32x2", "32x64"});
}

TEST_F(ModelLoad, IntegerWeightsAreRefused) {
  const auto retype = [](auto& tensors) {
    for (TensorView& t : tensors)
      if (t.name == "blk.0.ffn_up.weight") t.dtype = DType::i32;
  };
  expect_mentions(error({}, retype), {"blk.0.ffn_up.weight", "I32"});
}

TEST_F(ModelLoad, WeightsOfATypeThatCannotBeDecodedYetAreNamed) {
  const DTypeInfo* undecodable = nullptr;
  for (const DTypeInfo& type : all_dtypes())
    if (type.decode == nullptr && !type.is_integer) undecodable = &type;
  if (undecodable == nullptr) GTEST_SKIP() << "SKIPPED: every type can be decoded";
  const std::vector<std::byte> bytes(undecodable->block_bytes);
  const TensorView tensor{"odd.weight", undecodable->dtype, {undecodable->block_size, 1, 1, 1}, bytes.data()};
  gguf::Metadata metadata;
  metadata.set("general.architecture", str("llama"));
  gguf::write(folder_ / "odd.gguf", metadata, {&tensor, 1});
  const gguf::File file = gguf::File::open(folder_ / "odd.gguf");
  try {
    models::WeightSource(file).get("odd.weight", {undecodable->block_size});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    expect_mentions(e.message(), {"odd.gguf", "odd.weight", undecodable->name});
  }
}

TEST_F(ModelLoad, MoreTokensThanRowsIsAnError) {
  const auto cut = [](auto& tensors) {
    for (TensorView& t : tensors)
      if (t.name == "token_embd.weight") t.shape = {32, 60, 1, 1};
  };
  expect_mentions(error({}, cut), {"token_embd.weight", "32x60", "32x64"});
}

TEST_F(ModelLoad, TensorsWithoutAPlaceAreSaidAloud) {
  const auto more = [](auto& tensors) {
    TensorView extra = tensors.front();
    extra.name = "blk.0.attn_q_norm.weight";
    tensors.push_back(extra);
  };
  const auto model = Model::load(edited({}, more));
  ASSERT_EQ(model->warnings().size(), 1u);
  expect_mentions(model->warnings()[0], {"blk.0.attn_q_norm.weight", "not used", "llama"});
}

TEST_F(ModelLoad, AVocabSizeThatContradictsTheTokensIsSaidAloud) {
  const auto model = Model::load(edited({{"llama.vocab_size", u32(4096)}}));
  ASSERT_EQ(model->warnings().size(), 1u);
  expect_mentions(model->warnings()[0], {"llama.vocab_size", "4096", "64"});
  EXPECT_EQ(model->hyperparameters().vocab, 64u);
}

TEST_F(ModelLoad, TheFingerprintTellsModelsApart) {
  const auto print = [](const std::filesystem::path& path) { return Model::load(path)->fingerprint(); };
  const auto original = print(test::golden_path("llama_gqa.gguf"));
  EXPECT_EQ(print(edited({{"general.name", str("another name")}})), original);
  EXPECT_NE(print(edited({{"llama.rope.freq_base", f32(20000)}})), original);
  EXPECT_NE(print(edited({{"llama.attention.layer_norm_rms_epsilon", f32(2e-5)}})), original);
  std::vector<std::byte> changed;
  EXPECT_NE(print(edited({},
                         [&](auto& tensors) {
                           TensorView& last = tensors.back();
                           changed.assign(last.data, last.data + last.bytes());
                           changed.back() ^= std::byte{1};
                           last.data = changed.data();
                         })),
            original);
}

TEST_F(ModelLoad, AModelInShardsGivesTheLogitsOfTheWholeFile) {
  const auto whole = test::golden_path("llama_gqa.gguf");
  constexpr std::uint32_t kShards = 3;
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    const auto all = static_cast<std::int64_t>(gguf::File::open(whole).tensors().size());
    test::write_edited(whole, folder_ / gguf::split_file_name("model", shard + 1, kShards),
                       {{gguf::kSplitNumberKey, u32(shard)},
                        {gguf::kSplitCountKey, u32(kShards)},
                        {gguf::kSplitTensorsKey, i32(all)}},
                       [&](std::vector<TensorView>& tensors) {
                         const std::size_t from = tensors.size() * shard / kShards;
                         const std::size_t to = tensors.size() * (shard + 1) / kShards;
                         tensors = {tensors.begin() + static_cast<std::ptrdiff_t>(from),
                                    tensors.begin() + static_cast<std::ptrdiff_t>(to)};
                       });
  }
  const std::vector<std::int32_t> tokens{5, 17, 2, 60, 33, 8, 41};
  const auto logits = [&](const std::filesystem::path& path) {
    return test::ModelRun(Model::load(path), backends::make_cpu_backend(), 64, 64).push(tokens);
  };
  EXPECT_EQ(logits(folder_ / gguf::split_file_name("model", 1, kShards)), logits(whole));
}

TEST_F(ModelLoad, WhatIsNoFileIsAnError) {
  EXPECT_THROW(Model::load(folder_ / "absent.gguf"), Error);
  EXPECT_THROW(Model::load(folder_.path()), Error);
  std::ofstream(folder_ / "empty.gguf").close();
  EXPECT_THROW(Model::load(folder_ / "empty.gguf"), Error);
  std::ofstream(folder_ / "text.gguf") << "Once upon a time there was no model in this file.\n";
  EXPECT_THROW(Model::load(folder_ / "text.gguf"), Error);
}

}  // namespace
}  // namespace quipu

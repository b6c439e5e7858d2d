// What is wrong with a folder is said in one sentence: the file, the tensor or key, what was found and what
// was expected.
#include <gtest/gtest.h>

#include "convert/convert.hpp"
#include "convert_folder.hpp"
#include "core/error.hpp"

namespace quipu {
namespace {

namespace fs = std::filesystem;
using test::ModelFolder;

std::string refusal(const ModelFolder& folder, ErrorCode code = ErrorCode::bad_file) {
  try {
    convert::Model::open(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return error.message();
  }
  return "accepted";
}

#define EXPECT_SAYS(message, words) EXPECT_NE((message).find(words), std::string::npos) << (message)

class Refusal : public ::testing::Test {
 protected:
  /// A key of config.json, or its replacement when it is there.
  std::string with_config(const std::string& from, const std::string& to,
                          ErrorCode code = ErrorCode::bad_file) {
    const ModelFolder folder("qwen2");
    folder.edit("config.json", from, to);
    return refusal(folder, code);
  }
};

TEST_F(Refusal, OfAnUnknownArchitectureNamesThoseNearIt) {
  const std::string message =
      with_config("\"Qwen2ForCausalLM\"", "\"Qwen9ForCausalLM\"", ErrorCode::unsupported);
  EXPECT_SAYS(message, "config.json: architecture \"Qwen9ForCausalLM\" is not supported");
  EXPECT_SAYS(message, "near it: Qwen2ForCausalLM, Qwen3ForCausalLM");
  EXPECT_SAYS(with_config("\"architectures\"", "\"architecture\""), "key architectures is missing");
}

TEST_F(Refusal, OfSizesNamesTheKey) {
  EXPECT_SAYS(with_config("\"hidden_size\": 32", "\"hidden_size\": -1"), "is -1, expected a whole number");
  EXPECT_SAYS(with_config("\"num_attention_heads\": 4", "\"num_attention_heads\": 0"),
              "is 0, expected at least 1");
  EXPECT_SAYS(with_config("\"num_attention_heads\": 4", "\"num_attention_heads\": 5"),
              "expected a divisor of the 5 heads");
  EXPECT_SAYS(with_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2000000000"),
              "num_hidden_layers");
  EXPECT_SAYS(with_config("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": \"small\""),
              "is \"small\", expected a number");
}

TEST_F(Refusal, OfWhatAFamilyHasNot) {
  const ModelFolder deepseek("deepseek"), ling("bailingmoe");
  deepseek.edit("config.json", "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2");
  EXPECT_SAYS(refusal(deepseek), "moe_layer_freq is 2, expected 1");
  ling.edit("config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_SAYS(refusal(ling), "norm_head is true, expected false, where the output layer is the embedding");
}

TEST_F(Refusal, OfAWrongShapeGivesBoth) {
  const std::string message = with_config("\"intermediate_size\": 48", "\"intermediate_size\": 64");
  EXPECT_SAYS(message, "model.safetensors: tensor \"model.layers.0.mlp.gate_proj.weight\" is [48, 32]");
  EXPECT_SAYS(message, "expected [64, 32] by config.json");
  // More rows of the embedding than the configuration has tokens.
  EXPECT_SAYS(with_config("\"vocab_size\": 288", "\"vocab_size\": 287"),
              "embed_tokens.weight\" is [288, 32]");
}

TEST_F(Refusal, OfMissingAndSuperfluousTensorsNamesThem) {
  EXPECT_SAYS(
      with_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
      "tensor \"model.layers.2.input_layernorm.weight\" is missing, expected it for architecture qwen2");
  const std::string message =
      with_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", ErrorCode::unsupported);
  EXPECT_SAYS(message, "tensor \"model.layers.1.");
  EXPECT_SAYS(message, "has no place in architecture qwen2 with 1 layers");
  // Some of the experts are there, not all.
  const ModelFolder mixture("mixtral");
  mixture.edit("config.json", "\"num_local_experts\": 4", "\"num_local_experts\": 5");
  EXPECT_SAYS(refusal(mixture), "expected");
}

TEST_F(Refusal, OfAnUnsupportedRopeTypeNamesTheSupportedOnes) {
  const std::string message =
      with_config("\"rope_type\": \"default\"", "\"rope_type\": \"spiral\"", ErrorCode::unsupported);
  EXPECT_SAYS(message, "rope_parameters.rope_type is \"spiral\"");
  EXPECT_SAYS(message, "longrope");
  EXPECT_SAYS(with_config("\"rope_type\": \"default\"", "\"rope_type\": \"linear\""),
              "rope_parameters.factor is missing");
}

TEST_F(Refusal, OfQuantisedWeightsNamesTheMethod) {
  EXPECT_SAYS(with_config("\"hidden_size\": 32",
                          "\"hidden_size\": 32, \"quantization_config\": {\"quant_method\": \"gptq\"}",
                          ErrorCode::unsupported),
              "the weights are quantised (gptq)");
}

TEST_F(Refusal, OfMxfp4ThatDoesNotFitGivesBothShapes) {
  const auto with = [](const std::string& from, const std::string& to, ErrorCode code = ErrorCode::bad_file) {
    const ModelFolder folder("gpt-oss-mxfp4");
    folder.edit("config.json", from, to);
    return refusal(folder, code);
  };
  const std::string wider = with("\"intermediate_size\": 64", "\"intermediate_size\": 96");
  EXPECT_SAYS(wider,
              "model.safetensors: tensor \"model.layers.0.mlp.experts.gate_up_proj_scales\" is [4, 128, 1]");
  EXPECT_SAYS(wider, "expected [4, 192, 1] by config.json");
  EXPECT_SAYS(with("\"hidden_size\": 32", "\"hidden_size\": 40"), "expected");
  EXPECT_SAYS(with("\"quant_method\": \"mxfp4\"", "\"quant_method\": \"fp8\"", ErrorCode::unsupported),
              "the weights are quantised (fp8)");
}

TEST_F(Refusal, OfLatentAttentionThatDoesNotFitNamesTheTensor) {
  const auto with = [](const std::string& from, const std::string& to) {
    const ModelFolder folder("deepseek_v3");
    folder.edit("config.json", from, to);
    return refusal(folder);
  };
  EXPECT_SAYS(with("\"qk_nope_head_dim\": 12", "\"qk_nope_head_dim\": 13"),
              "self_attn.q_b_proj.weight\" is [80, 24]");
  EXPECT_SAYS(with("\"v_head_dim\": 10", "\"v_head_dim\": 11"), "self_attn.kv_b_proj.weight\" is [88, 16]");
  EXPECT_SAYS(with("\"v_head_dim\": 10", "\"v_head_dim\": 0"), "v_head_dim is 0, expected at least 1");
  EXPECT_SAYS(with("\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 0"),
              "tensor \"model.layers.0.mlp.");
}

TEST_F(Refusal, OfATruncatedShardNamesFileAndTensor) {
  const ModelFolder folder("llama");
  const std::string shard = "model-00002-of-00003.safetensors";
  fs::resize_file(folder / shard, fs::file_size(folder / shard) - 5);
  const std::string message = refusal(folder);
  EXPECT_SAYS(message, shard + ": the file is cut off in tensor \"");
}

TEST_F(Refusal, OfPickledWeightsNamesTheFile) {
  const ModelFolder folder("qwen2");
  fs::rename(folder / "model.safetensors", folder / "pytorch_model.bin");
  EXPECT_SAYS(refusal(folder, ErrorCode::unsupported), "the weights are pickled (pytorch_model.bin)");
}

TEST_F(Refusal, OfATokenizerOfAnotherModelNamesTheToken) {
  const ModelFolder folder("bert");  // 128 rows
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(test::convert_golden("tokenizers/bpe") / name, folder / name,
             fs::copy_options::overwrite_existing);
  const std::string message = refusal(folder);
  EXPECT_SAYS(message, "tokenizer.json: token \"");
  EXPECT_SAYS(message, "but the embedding has 128 rows");
}

TEST_F(Refusal, OfATokenizerWithFarFewerTokensGivesBothCounts) {
  const ModelFolder folder("qwen2");  // 288 rows
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(test::convert_golden("tokenizers/wordpiece") / name, folder / name,
             fs::copy_options::overwrite_existing);
  const std::string message = refusal(folder);
  EXPECT_SAYS(message, "tokenizer.json: found 128 tokens for the 288 rows of the embedding");
  EXPECT_SAYS(message, "none with the id 281, which is eos_token_id in config.json");
}

TEST_F(Refusal, OfDamagedJsonNamesTheFile) {
  const ModelFolder folder("qwen2");
  folder.write("tokenizer_config.json", "{\"a\":");
  EXPECT_SAYS(refusal(folder), "tokenizer_config.json: not JSON");
  folder.write("tokenizer_config.json", "[]");
  EXPECT_SAYS(refusal(folder), "expected a JSON object");
  fs::remove(folder / "tokenizer_config.json");
  folder.write("config.json", std::string(100, '['));
  EXPECT_SAYS(refusal(folder), "config.json: not JSON");
}

}  // namespace
}  // namespace quipu

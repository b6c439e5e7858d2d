// The architectures there are, one row each: the file's name for it, and the function in its own file.
#include "models/model.hpp"

// Encoders: they give vectors of texts.
#define QUIPU_ENCODERS(ROW)             \
  ROW("bert", build_bert)               \
  ROW("gemma-embedding", build_gemma3)  \
  ROW("jina-bert-v2", build_jina_bert)  \
  ROW("modern-bert", build_modern_bert) \
  ROW("nomic-bert", build_nomic_bert)   \
  ROW("t5encoder", build_t5encoder)

// An encoder for the prompt and a decoder that goes on from it.
#define QUIPU_ENCODER_DECODERS(ROW) ROW("t5", build_t5)

// A row declares the function and enters it into the table.
#define QUIPU_ARCHITECTURES(ROW)          \
  ROW("apertus", build_apertus)           \
  ROW("arcee", build_arcee)               \
  ROW("bailingmoe", build_deepseek)       \
  ROW("bailingmoe2", build_dots1)         \
  ROW("bloom", build_bloom)               \
  ROW("chatglm", build_chatglm)           \
  ROW("cohere2", build_cohere2)           \
  ROW("command-r", build_command_r)       \
  ROW("deepseek", build_deepseek)         \
  ROW("deepseek2", build_deepseek2)       \
  ROW("dots1", build_dots1)               \
  ROW("ernie4_5", build_llama)            \
  ROW("ernie4_5-moe", build_ernie4_5_moe) \
  ROW("exaone-moe", build_exaone_moe)     \
  ROW("exaone4", build_exaone4)           \
  ROW("falcon", build_falcon)             \
  ROW("gemma", build_gemma)               \
  ROW("gemma2", build_gemma2)             \
  ROW("gemma3", build_gemma3)             \
  ROW("gemma3n", build_gemma3n)           \
  ROW("gemma4", build_gemma4)             \
  ROW("glm4", build_glm4)                 \
  ROW("glm4moe", build_glm4_moe)          \
  ROW("gpt-oss", build_gpt_oss)           \
  ROW("gpt2", build_gpt2)                 \
  ROW("gptj", build_gptj)                 \
  ROW("gptneox", build_gptneox)           \
  ROW("granite", build_granite)           \
  ROW("granitemoe", build_granite)        \
  ROW("hunyuan-dense", build_hunyuan)     \
  ROW("hunyuan-moe", build_hunyuan)       \
  ROW("internlm2", build_llama)           \
  ROW("jais2", build_nemotron)            \
  ROW("llama", build_llama)               \
  ROW("llama4", build_llama4)             \
  ROW("minicpm", build_granite)           \
  ROW("minimax-m2", build_minimax_m2)     \
  ROW("mistral3", build_mistral3)         \
  ROW("mpt", build_mpt)                   \
  ROW("nemotron", build_nemotron)         \
  ROW("olmo", build_olmo)                 \
  ROW("olmo2", build_olmo2)               \
  ROW("olmoe", build_olmoe)               \
  ROW("phi2", build_phi2)                 \
  ROW("phi3", build_phi3)                 \
  ROW("phimoe", build_phimoe)             \
  ROW("qwen2", build_qwen2)               \
  ROW("qwen2moe", build_qwen2moe)         \
  ROW("qwen3", build_qwen3)               \
  ROW("qwen3moe", build_qwen3moe)         \
  ROW("seed_oss", build_seed_oss)         \
  ROW("smollm3", build_smollm3)           \
  ROW("stablelm", build_stablelm)         \
  ROW("starcoder", build_gpt2)            \
  ROW("starcoder2", build_starcoder2)

namespace quipu::models {

#define QUIPU_DECLARE(name, build) graph::Graph build(const Hyperparameters&, const WeightSource&);
QUIPU_ARCHITECTURES(QUIPU_DECLARE)
QUIPU_ENCODERS(QUIPU_DECLARE)
QUIPU_ENCODER_DECODERS(QUIPU_DECLARE)
#undef QUIPU_DECLARE

namespace {
#define QUIPU_ENTER(name, build) Architecture{name, build},
#define QUIPU_ENTER_ENCODER(name, build) Architecture{name, build, true},
#define QUIPU_ENTER_BOTH(name, build) Architecture{name, build, false, true},
constexpr Architecture kArchitectures[] = {QUIPU_ARCHITECTURES(QUIPU_ENTER) QUIPU_ENCODERS(
    QUIPU_ENTER_ENCODER) QUIPU_ENCODER_DECODERS(QUIPU_ENTER_BOTH)};
#undef QUIPU_ENTER
#undef QUIPU_ENTER_BOTH
#undef QUIPU_ENTER_ENCODER
}  // namespace

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

std::vector<std::string_view> architecture_names() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

}  // namespace quipu::models

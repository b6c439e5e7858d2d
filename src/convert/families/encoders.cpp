// Encoders that give embeddings.
#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"
#include "core/error.hpp"

namespace quipu::convert {
namespace {

const TensorRule kBert[] = {
    {"embeddings.word_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"embeddings.token_type_embeddings", "token_types", {Dim::types, Dim::width}},
    {"embeddings.position_embeddings", "position_embd", {Dim::positions, Dim::width}},
    {"embeddings.LayerNorm", "token_embd_norm", {Dim::width}},
    {"encoder.layer.{}.attention.self.query", "blk.{}.attn_q", {Dim::q, Dim::width}},
    {"encoder.layer.{}.attention.self.key", "blk.{}.attn_k", {Dim::kv, Dim::width}},
    {"encoder.layer.{}.attention.self.value", "blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"encoder.layer.{}.attention.output.dense", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"encoder.layer.{}.attention.output.LayerNorm", "blk.{}.attn_output_norm", {Dim::width}},
    {"encoder.layer.{}.intermediate.dense", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"encoder.layer.{}.output.dense", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"encoder.layer.{}.output.LayerNorm", "blk.{}.layer_output_norm", {Dim::width}},
};

void add_bert(Job& job) {
  job.set_flag("attention.causal", false);
  job.metadata.set("tokenizer.ggml.token_type_count",
                   gguf::Value::of_u32(static_cast<std::uint32_t>(job.sizes[Dim::types])));
  if (const auto kind = job.config.try_text("position_embedding_type"); kind && *kind != "absolute")
    fail(ErrorCode::unsupported, "{}: position_embedding_type is \"{}\", expected absolute",
         printable(job.config.name(), 1000), printable(*kind));
}

}  // namespace

std::vector<Family> encoders() {
  return {
      {.name = "bert",
       .classes = "BertModel|BertForMaskedLM",
       .tensors = join(kBert),
       .rope = Rope::none,
       .defaults = [](JsonFile& config) { config.set_default("type_vocab_size", 2); },
       .more = add_bert,
       .roots = "bert.|",
       .ignored = "*embeddings.position_ids|*pooler.dense.*|cls.predictions.*|cls.seq_relationship.*"},
  };
}

}  // namespace quipu::convert

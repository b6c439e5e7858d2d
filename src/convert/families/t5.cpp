// T5: an encoder and a decoder, or the encoder alone.
#include <algorithm>

#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"
#include "core/error.hpp"

namespace quipu::convert {
namespace {

const TensorRule kT5Encoder[] = {
    {"encoder.final_layer_norm", "enc.output_norm", {Dim::width}},
    {"shared|encoder.embed_tokens|decoder.embed_tokens", "token_embd", {Dim::vocab, Dim::width}},
    {"encoder.block.{}.layer.0.layer_norm", "enc.blk.{}.attn_norm", {Dim::width}},
    {"encoder.block.{}.layer.0.SelfAttention.q", "enc.blk.{}.attn_q", {Dim::q, Dim::width}},
    {"encoder.block.{}.layer.0.SelfAttention.k", "enc.blk.{}.attn_k", {Dim::kv, Dim::width}},
    {"encoder.block.{}.layer.0.SelfAttention.v", "enc.blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"encoder.block.{}.layer.0.SelfAttention.o", "enc.blk.{}.attn_o", {Dim::width, Dim::q}},
    {"encoder.block.{}.layer.0.SelfAttention.relative_attention_bias",
     "enc.blk.{}.attn_rel_b",
     {Dim::any, Dim::heads},
     Presence::optional},
    {"encoder.block.{}.layer.1.layer_norm", "enc.blk.{}.ffn_norm", {Dim::width}},
    {"encoder.block.{}.layer.1.DenseReluDense.wi_0",
     "enc.blk.{}.ffn_gate",
     {Dim::ff, Dim::width},
     Presence::optional},
    {"encoder.block.{}.layer.1.DenseReluDense.wi_1|encoder.block.{}.layer.1.DenseReluDense.wi",
     "enc.blk.{}.ffn_up",
     {Dim::ff, Dim::width}},
    {"encoder.block.{}.layer.1.DenseReluDense.wo", "enc.blk.{}.ffn_down", {Dim::width, Dim::ff}},
};
const TensorRule kT5Decoder[] = {
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
    {"decoder.final_layer_norm", "dec.output_norm", {Dim::width}},
    {"decoder.block.{}.layer.0.layer_norm", "dec.blk.{}.attn_norm", {Dim::width}},
    {"decoder.block.{}.layer.0.SelfAttention.q", "dec.blk.{}.attn_q", {Dim::q, Dim::width}},
    {"decoder.block.{}.layer.0.SelfAttention.k", "dec.blk.{}.attn_k", {Dim::kv, Dim::width}},
    {"decoder.block.{}.layer.0.SelfAttention.v", "dec.blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"decoder.block.{}.layer.0.SelfAttention.o", "dec.blk.{}.attn_o", {Dim::width, Dim::q}},
    {"decoder.block.{}.layer.0.SelfAttention.relative_attention_bias",
     "dec.blk.{}.attn_rel_b",
     {Dim::any, Dim::heads},
     Presence::optional},
    {"decoder.block.{}.layer.1.layer_norm", "dec.blk.{}.cross_attn_norm", {Dim::width}},
    {"decoder.block.{}.layer.1.EncDecAttention.q", "dec.blk.{}.cross_attn_q", {Dim::q, Dim::width}},
    {"decoder.block.{}.layer.1.EncDecAttention.k", "dec.blk.{}.cross_attn_k", {Dim::kv, Dim::width}},
    {"decoder.block.{}.layer.1.EncDecAttention.v", "dec.blk.{}.cross_attn_v", {Dim::kv, Dim::width}},
    {"decoder.block.{}.layer.1.EncDecAttention.o", "dec.blk.{}.cross_attn_o", {Dim::width, Dim::q}},
    {"decoder.block.{}.layer.2.layer_norm", "dec.blk.{}.ffn_norm", {Dim::width}},
    {"decoder.block.{}.layer.2.DenseReluDense.wi_0",
     "dec.blk.{}.ffn_gate",
     {Dim::ff, Dim::width},
     Presence::optional},
    {"decoder.block.{}.layer.2.DenseReluDense.wi_1|decoder.block.{}.layer.2.DenseReluDense.wi",
     "dec.blk.{}.ffn_up",
     {Dim::ff, Dim::width}},
    {"decoder.block.{}.layer.2.DenseReluDense.wo", "dec.blk.{}.ffn_down", {Dim::width, Dim::ff}},
};

const std::vector<KeyRule> kT5Keys = {{"relative_attention_num_buckets", "attention.relative_buckets_count"}};
const KeyRule kT5DecoderKeys[] = {
    {"num_decoder_layers", "decoder_block_count"},
    {"decoder_start_token_id", "decoder_start_token_id"},
};

void t5_defaults(JsonFile& config) {
  const auto copy = [&](const char* from, const char* to, std::int64_t fallback) {
    config.set_default(
        to, static_cast<std::int64_t>(config.try_count(from).value_or(static_cast<std::uint64_t>(fallback))));
  };
  copy("num_heads", "num_attention_heads", 8);
  copy("d_kv", "head_dim", 64);
  copy("d_ff", "intermediate_size", 2048);
  copy("n_positions", "max_position_embeddings", 512);
  config.set_default("relative_attention_num_buckets", 32);
  config.set_default("decoder_start_token_id", 0);
  // Where the decoder's output is scaled, it meets the embedding; else an output layer, of its own or equal.
  const bool is_scaled = config.try_text("model_type").value_or("t5") != "mt5" &&
                         config.flag_or("scale_decoder_outputs", config.flag_or("tie_word_embeddings", true));
  config.set("tie_word_embeddings", is_scaled);
  const double eps = config.try_number("layer_norm_epsilon").value_or(1e-6);
  config.set_default("rms_norm_eps", eps);
  config.set_default("layer_norm_eps", eps);
}

void add_t5(Job& job) {
  const JsonFile& config = job.config;
  constexpr std::uint64_t kMostDistance = 128;  // readers know no other
  if (const auto most = config.try_count("relative_attention_max_distance"); most && *most != kMostDistance)
    config.reject("relative_attention_max_distance", std::to_string(*most), std::to_string(kMostDistance));
  if (const auto decoders = config.try_count("num_decoder_layers");
      decoders && *decoders != static_cast<std::uint64_t>(job.sizes[Dim::layers]) && job.architecture == "t5")
    config.reject("num_decoder_layers", std::to_string(*decoders),
                  "as many as the encoder's " + std::to_string(job.sizes[Dim::layers]));
  const std::string kind = config.try_text("feed_forward_proj").value_or("relu");
  if (kind != "relu" && kind != "gated-gelu")
    config.reject("feed_forward_proj", "\"" + printable(kind) + "\"", "relu or gated-gelu");
  if (job.architecture != "t5" || config.flag_or("tie_word_embeddings", true)) return;
  const auto named = [&](std::string_view name) {
    return std::find_if(job.tensors.begin(), job.tensors.end(),
                        [&](const TensorSource& tensor) { return tensor.info.name == name; });
  };
  const auto embedding = named("token_embd.weight");
  if (named("output.weight") != job.tensors.end() || embedding == job.tensors.end()) return;
  TensorSource output = *embedding;
  output.info.name = "output.weight";
  job.tensors.push_back(std::move(output));
}

constexpr std::string_view kCopies =
    "encoder.embed_tokens.weight|decoder.embed_tokens.weight|"
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";

}  // namespace

std::vector<Family> t5() {
  std::vector<Family> list;
  list.push_back({.name = "t5",
                  .classes = "T5ForConditionalGeneration|T5WithLMHeadModel|MT5ForConditionalGeneration|"
                             "UMT5ForConditionalGeneration",
                  .tensors = join(kT5Encoder, kT5Decoder),
                  .keys = join(kT5Keys, kT5DecoderKeys),
                  .rope = Rope::none,
                  .defaults = t5_defaults,
                  .more = add_t5,
                  .roots = "",
                  .ignored = kCopies});
  list.push_back({.name = "t5encoder",
                  .classes = "T5EncoderModel|MT5EncoderModel|UMT5EncoderModel",
                  .tensors = join(kT5Encoder),
                  .keys = kT5Keys,
                  .rope = Rope::none,
                  .defaults = t5_defaults,
                  .more = add_t5,
                  .roots = "",
                  .ignored = kCopies});
  return list;
}

}  // namespace quipu::convert

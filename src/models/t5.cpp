// T5, mT5, UMT5 and Flan-T5, whole or the encoder alone (GGUF architectures "t5", "t5encoder"). Sources:
// Raffel et al. 2019 (T5); Shazeer 2020 (gated feed-forward); Chung et al. 2023 (UMT5: biases of each block's
// own).
//
// The encoder reads the prompt, whole; the decoder attends to what it has written and, by keys and values
// that the encoder left in the cache, to the prompt. Scores are not scaled, and have a bias by distance that
// all blocks take from the first. Cache layers: the decoder's blocks, whose first positions are the encoder's
// own (it runs before), then what is kept of the encoder for each of them.
#include <algorithm>
#include <cmath>

#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Reach;
using graph::Value;

namespace {

std::uint32_t decoder_layers(const Hyperparameters& h) {
  return h.decoder_layers > 0 ? h.decoder_layers : h.layers;
}

/// Cache layer of what the encoder keeps for a block of the decoder.
std::uint32_t kept_layer(const Hyperparameters& h, std::uint32_t block) {
  return std::max(h.layers, decoder_layers(h)) + block;
}

/// The settings of one side, whose blocks are all alike.
Hyperparameters side_of(const Hyperparameters& h, bool decodes) {
  Hyperparameters own = h;
  own.causal = decodes;
  own.layers = decodes ? decoder_layers(h) : h.layers;
  own.heads.assign(own.layers, h.heads[0]);
  own.kv_heads.assign(own.layers, h.kv_heads[0]);
  own.feed_forward.assign(own.layers, h.feed_forward[0]);
  return own;
}

class Side : public Decoder {
 public:
  Side(const Hyperparameters& own, const WeightSource& w) : Decoder(own, w) {
    prefix = own.causal ? "dec." : "enc.";
  }

  Value attend(Block& block, Value x) {
    AttentionStyle style{.scale = 1, .output = "attn_o", .keeps_rows = true};
    style.reach = hyper.causal ? Reach::decoded : Reach::all;
    const std::string first = prefix + "blk.0.attn_rel_b.weight";
    const std::int64_t buckets = weights.size(first, 1);
    style.distance_bias = weights.find(block.name("attn_rel_b.weight"), {block.heads, buckets});
    if (!style.distance_bias) style.distance_bias = weights.get(first, {block.heads, buckets});
    return block.add(x, block.attend(block.qkv(block.norm(x, "attn_norm")), style), "attn_residual");
  }
  Value feed(Block& block, Value x) {
    const Value normed = block.norm(x, "ffn_norm");
    const bool is_gated = weights.size(block.name("ffn_gate.weight"), 1) > 0;
    const Value fed =
        is_gated ? block.gated(normed, Activation::gelu_tanh) : block.mlp(normed, Activation::relu);
    return block.add(x, fed, "ffn_residual");
  }
  /// Of the encoder: what it makes of a text, before the last norm.
  Value encoded() {
    Value x = embed();
    for (Block& block : blocks()) x = feed(block, attend(block, x));
    return x;
  }
};

/// The encoder of prompts: its output as the keys and values of each block of the decoder.
graph::Graph build_kept(const Hyperparameters& h, const WeightSource& w) {
  const Hyperparameters own = side_of(h, /*decodes=*/false);
  Side encoder(own, w);
  const Value x = encoder.norm(encoder.encoded(), "enc.output_norm", h.embedding);
  const std::int64_t heads = h.kv_heads[0];
  for (std::uint32_t i = 0; i < decoder_layers(h); ++i) {
    const std::string name = fmt::format("dec.blk.{}.cross_attn", i);
    const Value k = encoder.linear(x, name + "_k", heads * h.key_dim);
    const Value v = encoder.linear(x, name + "_v", heads * h.value_dim);
    const auto layer = static_cast<std::int32_t>(kept_layer(h, i));
    encoder.g.at(name).store_kv({k, v, layer, heads, h.key_dim, h.value_dim});
  }
  return encoder.g.at("enc.outputs").finish(encoder.g.gather_outputs(x));
}

}  // namespace

graph::Graph build_t5encoder(const Hyperparameters& h, const WeightSource& w) {
  const Hyperparameters own = side_of(h, /*decodes=*/false);
  Side encoder(own, w);
  return encoder.finish(encoder.encoded());
}

graph::Graph build_t5(const Hyperparameters& h, const WeightSource& w) {
  if (h.vectors) return build_t5encoder(h, w);
  if (h.encodes) return build_kept(h, w);
  const Hyperparameters own = side_of(h, /*decodes=*/true);
  Side decoder(own, w);
  Value x = decoder.embed();
  for (Block& block : decoder.blocks()) {
    x = decoder.attend(block, x);
    const Value q =
        block.linear(block.norm(x, "cross_attn_norm"), "cross_attn_q", block.heads * block.key_dim);
    const Value attended = block.attend({q, {}, {}}, {.scale = 1,
                                                      .keys_of = kept_layer(h, block.index),
                                                      .reach = Reach::encoded,
                                                      .name = "cross_attention",
                                                      .output = "cross_attn_o"});
    x = block.add(x, attended, "cross_attn_residual");
    x = decoder.feed(block, x);
  }
  // A model without an output layer of its own scales what meets the embedding.
  const bool is_tied = w.size("output.weight", 1) == 0;
  return decoder.finish(x, is_tied ? 1 / std::sqrt(static_cast<float>(h.embedding)) : 1);
}

}  // namespace quipu::models

// Gemma 4, text (GGUF architecture "gemma4"). Source: Gemma Team 2026, Gemma 4.
//
// As Gemma 3 with unscaled attention and normed values. Blocks that see everything have larger heads, may
// take the keys for values, and turn a part of their pairs only (the file's factors leave the others in
// place). The last blocks may have no keys and values of their own. A mixture of experts stands beside the
// feed-forward.
#include <cmath>

#include "models/per_layer.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

namespace {

/// The feed-forward, and the experts that a router of its own norm chooses by the same x.
Value feed_forward(Decoder& model, Block& block, Value x) {
  Value fed = block.gated(block.norm(x, "ffn_norm"), Activation::gelu_tanh);
  if (model.hyper.experts.count > 0) {
    fed = block.norm(fed, "post_ffw_norm_1");
    const TensorView scale = model.weights.get(block.name("ffn_gate_inp.scale"), {block.width});
    Value router = block.at("ffn_gate_norm").rms_norm(x, scale, model.hyper.norm_eps);
    router = model.g.scale(router, 1 / std::sqrt(static_cast<float>(block.width)));
    const Value chosen =
        block.experts(block.norm(x, "pre_ffw_norm_2"),
                      {.renormalise = true, .activation = Activation::gelu_tanh, .routed_by = router});
    fed = block.at("ffn_sum").add(fed, block.norm(chosen, "post_ffw_norm_2"));
  }
  return block.norm(fed, "post_ffw_norm");
}

}  // namespace

graph::Graph build_gemma4(const Hyperparameters& h, const WeightSource& w) {
  constexpr std::uint32_t kPeriod = 6;
  Decoder model(h, w);
  const Rotary local = model.windowed_rotary(/*neox=*/true, 10000), global = model.rotary(/*neox=*/true);
  Value x = model.embed(std::sqrt(static_cast<float>(h.embedding)));
  std::optional<PerLayerInputs> inputs;
  if (h.per_layer_width > 0) inputs.emplace(model, x);
  for (Block& block : model.blocks()) {
    const std::int64_t window = block.window(kPeriod), kv = block.kv_heads * block.key_dim;
    const Rotary& rotary = window > 0 ? local : global;
    const auto keys_of = block.shares(kPeriod);
    const Value normed = block.norm(x, "attn_norm");
    Block::Heads heads;
    heads.q = block.linear(normed, "attn_q", block.heads * block.key_dim);
    heads.q = block.rotate(block.norm(heads.q, "attn_q_norm", block.key_dim), rotary);
    if (!keys_of) {
      const Value keys = block.linear(normed, "attn_k", kv);
      const bool has_values = w.size(block.name("attn_v.weight"), 1) > 0;
      const Value values = has_values ? block.linear(normed, "attn_v", kv) : keys;
      heads.k = block.rotate(block.norm(keys, "attn_k_norm", block.key_dim), rotary);
      heads.v = model.unit(values, block.name("attn_v_norm"), block.value_dim);
    }
    const Value attended = block.attend(heads, {.window = window, .scale = 1, .keys_of = keys_of});
    x = block.add(x, block.norm(attended, "post_attention_norm"), "attn_residual");
    x = block.add(x, feed_forward(model, block, x), "ffn_residual");
    if (inputs) x = block.add(x, inputs->through(block, x), "inp_residual");
    if (const auto scale = w.find(block.name("layer_output_scale.weight"), {1}))
      x = block.at("layer_output_scale").scale(x, first_of(*scale));
  }
  return model.finish(x);
}

}  // namespace quipu::models

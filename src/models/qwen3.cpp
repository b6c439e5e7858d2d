// Qwen3, dense (GGUF architecture "qwen3"). Source: Yang et al. 2025, Qwen3 Technical Report.
//
// As qwen2 without the biases; queries and keys are normed per head before they turn (QK-norm).
#include <cmath>

#include "models/block.hpp"
#include "models/model.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_qwen3(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  const std::int64_t width = h.embedding, vocab = h.vocab, key = h.key_dim, value = h.value_dim;
  const TensorView embedding = w.get("token_embd.weight", {width, vocab});
  const RopeFrequencies turns = rope_frequencies(h, std::nullopt);

  graph::Builder g;
  Value x = g.at("token_embd").embed(embedding);

  for (std::uint32_t layer = 0; layer < h.layers; ++layer) {
    Block block(g, w, h, layer);
    const std::int64_t heads = h.heads[layer], kv_heads = h.kv_heads[layer];
    const auto rotate = [&](Value in, std::int64_t count) {
      return g.rope({.x = in,
                     .heads = count,
                     .head_dim = key,
                     .neox = true,
                     .inv_freq = turns.inv_freq,
                     .magnitude = turns.magnitude});
    };

    // Attention.
    Value normed = block.norm(x, "attn_norm", width);
    Value q = block.linear(normed, "attn_q", width, heads * key);
    Value k = block.linear(normed, "attn_k", width, kv_heads * key);
    q = block.norm(q, "attn_q_norm", key);
    k = block.norm(k, "attn_k_norm", key);
    const Value v = block.linear(normed, "attn_v", width, kv_heads * value);
    block.at("rope");
    q = rotate(q, heads);
    k = rotate(k, kv_heads);
    Value attended = block.at("attention")
                         .attention({.q = q,
                                     .k = k,
                                     .v = v,
                                     .layer = static_cast<std::int32_t>(layer),
                                     .heads = heads,
                                     .kv_heads = kv_heads,
                                     .head_dim = key,
                                     .v_dim = value,
                                     .scale = 1.0f / std::sqrt(static_cast<float>(key)),
                                     .window = h.sliding_window,
                                     .sinks = std::nullopt});
    if (layer + 1 == h.layers) {  // from here on only the rows whose logits are wanted matter
      block.at("outputs");
      attended = g.gather_outputs(attended);
      x = g.gather_outputs(x);
    }
    const Value projected = block.linear(attended, "attn_output", heads * value, width);
    x = block.at("attn_residual").add(x, projected);

    // Feed-forward.
    normed = block.norm(x, "ffn_norm", width);
    const Value fed = block.swiglu(normed, width, h.feed_forward[layer]);
    x = block.at("ffn_residual").add(x, fed);
  }

  x = g.at("output_norm").rms_norm(x, w.get("output_norm.weight", {width}), h.norm_eps);
  const TensorView output = w.find("output.weight", {width, vocab}).value_or(embedding);
  return g.finish(g.at("output").linear(x, output, w.find("output.bias", {vocab})));
}

}  // namespace quipu::models

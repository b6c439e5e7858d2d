// The llama architecture: Llama 2 and 3.x, Mistral, SmolLM2 and their kin (GGUF architecture "llama").
//
// Touvron et al. 2023: pre-norm decoder with RMSNorm, rotary positions, grouped-query attention and a SwiGLU
// feed-forward. Variants are told apart by what the file holds: biases, an output matrix of its own or the
// embedding's, per-pair rotary factors (Llama 3.1), a sliding window (Mistral 7B v0.1).
#include <cmath>

#include "core/error.hpp"
#include "models/model.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_llama(const Hyperparameters& h, const WeightSource& w) {
  if (h.experts > 0)
    fail(ErrorCode::unsupported, "{}.expert_count is {}: mixture-of-experts layers are not supported yet",
         h.architecture, h.experts);
  const std::int64_t width = h.embedding, vocab = h.vocab, key = h.key_dim, value = h.value_dim;
  const TensorView embedding = w.get("token_embd.weight", {width, vocab});
  const RopeFrequencies frequencies = rope_frequencies(h, w.find("rope_freqs.weight", {h.rope_dims / 2}));

  graph::Builder g;
  Value x = g.at("token_embd").embed(embedding);

  for (std::uint32_t layer = 0; layer < h.layers; ++layer) {
    const std::int64_t heads = h.heads[layer], kv_heads = h.kv_heads[layer], hidden = h.feed_forward[layer];
    const auto name = [&](std::string_view part) { return fmt::format("blk.{}.{}", layer, part); };
    const auto norm = [&](Value in, std::string_view part) {
      return g.at(name(part)).rms_norm(in, w.get(name(part) + ".weight", {width}), h.norm_eps);
    };
    const auto linear = [&](Value in, std::string_view part, std::int64_t from, std::int64_t to) {
      return g.at(name(part))
          .linear(in, w.get(name(part) + ".weight", {from, to}), w.find(name(part) + ".bias", {to}));
    };
    const auto rotate = [&](Value in, std::string_view part, std::int64_t count) {
      return g.at(name(part))
          .rope({.x = in,
                 .heads = count,
                 .head_dim = key,
                 .neox = false,
                 .inv_freq = frequencies.inv_freq,
                 .magnitude = frequencies.magnitude});
    };

    // Attention.
    Value normed = norm(x, "attn_norm");
    const Value q = rotate(linear(normed, "attn_q", width, heads * key), "rope_q", heads);
    const Value k = rotate(linear(normed, "attn_k", width, kv_heads * key), "rope_k", kv_heads);
    const Value v = linear(normed, "attn_v", width, kv_heads * value);
    Value attended = g.at(name("attn"))
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
      attended = g.at("attn_outputs").gather_outputs(attended);
      x = g.at("residual_outputs").gather_outputs(x);
    }
    const Value projected = linear(attended, "attn_output", heads * value, width);
    x = g.at(name("attn_residual")).add(x, projected);

    // Feed-forward.
    normed = norm(x, "ffn_norm");
    const Value gate = linear(normed, "ffn_gate", width, hidden);
    const Value up = linear(normed, "ffn_up", width, hidden);
    const Value gated = g.at(name("ffn_glu")).glu(gate, up, graph::Activation::silu);
    const Value down = linear(gated, "ffn_down", hidden, width);
    x = g.at(name("ffn_residual")).add(x, down);
  }

  x = g.at("output_norm").rms_norm(x, w.get("output_norm.weight", {width}), h.norm_eps);
  const TensorView output = w.find("output.weight", {width, vocab}).value_or(embedding);
  return g.finish(g.at("output").linear(x, output, w.find("output.bias", {vocab})));
}

}  // namespace quipu::models

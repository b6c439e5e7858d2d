// Llama 4, text (GGUF architecture "llama4"). Source: Meta 2025, Llama 4 (iRoPE).
//
// Three blocks of four turn their queries and keys, norm them, and see the own run of 8192 positions; the
// fourth has no positions and sees everything, with queries that grow with the position. The sigmoid of the
// router weighs what an expert reads. Files state neither the runs nor the growth; a window of 0 means none
// of this. Only the model of 128 experts leaves its heads unnormed.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_llama4(const Hyperparameters& h, const WeightSource& w) {
  constexpr std::uint32_t kPeriod = 4, kRun = 8192, kExpertsUnnormed = 128;
  constexpr float kGrowth = 0.1f;
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/false);
  const bool everything = h.states_window && h.sliding_window == 0;
  const std::uint32_t run = h.sliding_window > 0 ? h.sliding_window : kRun;
  Value x = model.embed();
  Value growth{};
  if (!everything)
    growth = model.g.at("temperature")
                 .position_temperature(h.temperature_scale > 0 ? h.temperature_scale : kGrowth,
                                       h.temperature_length > 0 ? h.temperature_length : kRun, /*offset=*/1);
  for (Block& block : model.blocks()) {
    const bool local =
        everything || (h.windowed.empty() ? (block.index + 1) % kPeriod != 0 : bool{h.windowed[block.index]});
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    if (local) {
      q = block.rotate(q, rotary);
      k = block.rotate(k, rotary);
      if (h.experts.count != kExpertsUnnormed) {
        q = model.unit(q, block.name("attn_q_norm"), block.key_dim);
        k = model.unit(k, block.name("attn_k_norm"), block.key_dim);
      }
    } else {
      q = block.at("attn_temperature").mul(q, growth);
    }
    x = block.add(x, block.attend({q, k, v}, {.chunk = local && !everything ? run : 0}), "attn_residual");

    const Value fed = block.experts_or_gated(block.norm(x, "ffn_norm"),
                                             {.gating = graph::Gating::sigmoid, .weighs_input = true});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models

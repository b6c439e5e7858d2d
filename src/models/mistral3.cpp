// Ministral 3, Mistral Small 3.1 and later (GGUF architecture "mistral3"). Source: Mistral AI 2025.
//
// A llama block; queries grow with the logarithm of the position beyond the context they were trained for.
// YaRN's temperature is left out where the file says that scores and positions cancel it
// (yarn_log_multiplier).
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_mistral3(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  Rotary rotary = model.rotary(/*neox=*/false);
  if (h.rope_scaling.log_multiplier > 0) rotary.turns.magnitude = 1;
  Value x = model.embed();
  Value temperature{};
  if (h.temperature_scale > 0)
    temperature =
        model.g.at("temperature").position_temperature(h.temperature_scale, h.rope_scaling.original_context);
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    if (h.temperature_scale > 0) q = block.at("attn_temperature").mul(q, temperature);
    x = block.add(x, block.attend({q, k, v}, {.window = h.sliding_window}), "attn_residual");

    const Value fed = block.experts_or_gated(block.norm(x, "ffn_norm"), {.renormalise = true});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models

// Apertus (GGUF architecture "apertus"). Source: Swiss AI Initiative 2025.
//
// A llama block with norms on queries and keys, and xIELU, whose numbers each block has learned, in a plain
// feed-forward.
#include <algorithm>
#include <cmath>

#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_apertus(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  const Hyperparameters::Xielu& settings = h.xielu;
  if (settings.alpha_p.empty() || settings.alpha_n.empty() || settings.beta.empty() || settings.eps.empty())
    fail(ErrorCode::bad_file,
         "the keys xielu.alpha_p, xielu.alpha_n, xielu.beta and xielu.eps must all be there");
  const auto softplus = [](double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); };
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(block.norm(q, "attn_q_norm", block.key_dim), rotary);
    k = block.rotate(block.norm(k, "attn_k_norm", block.key_dim), rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const std::size_t i = block.index;
    Value fed = block.linear(block.norm(x, "ffn_norm"), "ffn_up", block.hidden);
    fed = block.at("ffn_act").xielu(
        {.x = fed,
         .alpha_p = static_cast<float>(softplus(settings.alpha_p[i])),
         .alpha_n = static_cast<float>(settings.beta[i] + softplus(settings.alpha_n[i])),
         .beta = static_cast<float>(settings.beta[i]),
         .eps = static_cast<float>(settings.eps[i])});
    x = block.add(x, block.linear(fed, "ffn_down", block.width), "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models

// The mixture of experts of a block. Sources: Shazeer et al. 2017; Jiang et al. 2024 (Mixtral); DeepSeek-AI
// 2024 (V2, V3: shared experts, groups, biased choice).
#include <algorithm>

#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

Value Block::experts_or_gated(Value x, const ExpertStyle& style) {
  const ExpertSettings& e = decoder_.hyper.experts;
  const bool mixture = e.count > 0 && index >= e.leading_dense && (index + 1) % e.step == 0;
  return mixture ? experts(x, style) : gated(x);
}

Value Block::experts(Value x, const ExpertStyle& style) {
  const Value chosen = chosen_experts(x, style);
  const std::int64_t shared_width = decoder_.weights.size(name("ffn_up_shexp.weight"), 1);
  if (shared_width == 0) return chosen;
  Value shared = gated(x, graph::Activation::silu, "_shexp", shared_width);
  if (decoder_.weights.size(name("ffn_gate_inp_shexp.weight"), 0) > 0) {
    const Value logit = linear(x, "ffn_gate_inp_shexp", 1);
    const Value share = at("ffn_gate_inp_shexp").activate(logit, graph::Activation::sigmoid);
    shared = at("ffn_shexp").mul(shared, share);
  }
  return at("ffn_experts_sum").add(chosen, shared);
}

Value Block::chosen_experts(Value x, const ExpertStyle& style) {
  const ExpertSettings& e = decoder_.hyper.experts;
  const WeightSource& w = decoder_.weights;
  graph::Builder& g = decoder_.g;
  const std::int64_t count = e.count, used = e.used, inner = e.hidden > 0 ? e.hidden : hidden;

  const float scale = style.scale != 0 ? style.scale : e.weights_scale != 0 ? e.weights_scale : 1.0f;
  const std::int64_t groups = std::max<std::int64_t>(1, e.groups);
  const Value logits = linear(style.routed_by.value_or(x), "ffn_gate_inp", count);
  const Value route =
      at("ffn_route")
          .moe_route({.logits = logits,
                      .bias = w.find(name("exp_probs_b.bias"), {count}),
                      .used = used,
                      .gating = style.gating,
                      .renormalise = style.renormalise,
                      .scale = scale,
                      .groups = groups,
                      .groups_used = groups > 1 ? e.groups_used : 1,
                      .group_top = groups > 1 ? std::min<std::int64_t>(style.group_top, count / groups) : 1,
                      .expert_scale = w.find(name("ffn_down_exps.scale"), {count})});
  const auto matrices = [&](Value in, std::string_view part, std::int64_t from, std::int64_t to) {
    return at(part).moe_linear(in, route, w.get(name(part) + ".weight", {from, to, count}),
                               w.find(name(part) + ".bias", {to, count}));
  };

  if (style.weighs_input) x = g.at(name("ffn_weighed")).mix(x, g.slice(route, 1, used, used), 1);
  const std::int64_t in = g.info(x).width / (style.weighs_input ? used : 1);
  Value gate, up;
  if (w.find(name("ffn_gate_up_exps.weight"), {width, 2 * inner, count})) {
    const Value both = matrices(x, "ffn_gate_up_exps", in, 2 * inner);
    gate = at("ffn_gate_exps").slice(both, used, 0, inner);
    up = at("ffn_up_exps").slice(both, used, inner, inner);
  } else {
    gate = matrices(x, "ffn_gate_exps", in, inner);
    up = matrices(x, "ffn_up_exps", in, inner);
  }
  const Value gated = at("ffn_glu_exps").glu(gate, up, style.activation, style.limit, style.up_shift);
  const Value down = matrices(gated, "ffn_down_exps", inner, width);
  if (!style.weighs_input) return g.at(name("ffn_experts")).moe_combine(down, route);
  Value sum = g.at(name("ffn_experts")).slice(down, 1, 0, width);
  for (std::int64_t j = 1; j < used; ++j) sum = g.add(sum, g.slice(down, 1, j * width, width));
  return sum;
}

}  // namespace quipu::models

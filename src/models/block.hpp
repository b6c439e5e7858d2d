// Vocabulary for writing a decoder block: ops named after the weights they use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "models/model.hpp"

namespace quipu::models {

class Block {
 public:
  Block(graph::Builder& builder, const WeightSource& weights, const Hyperparameters& hyper,
        std::uint32_t layer)
      : builder_(&builder), weights_(&weights), hyper_(&hyper), layer_(layer) {}

  /// The builder, set to name what comes next "blk.N.part".
  graph::Builder& at(std::string_view part) { return builder_->at(name(part)); }
  /// RMSNorm with blk.N.part.weight; a width below the row's norms each head on its own.
  graph::Value norm(graph::Value x, std::string_view part, std::int64_t width) {
    return at(part).rms_norm(x, weights_->get(name(part) + ".weight", {width}), hyper_->norm_eps);
  }
  /// x times blk.N.part.weight, plus blk.N.part.bias if the file has it.
  graph::Value linear(graph::Value x, std::string_view part, std::int64_t from, std::int64_t to) {
    return at(part).linear(x, weights_->get(name(part) + ".weight", {from, to}),
                           weights_->find(name(part) + ".bias", {to}));
  }
  /// SwiGLU feed-forward: ffn_down(silu(ffn_gate(x)) * ffn_up(x)).
  graph::Value swiglu(graph::Value x, std::int64_t width, std::int64_t hidden) {
    const graph::Value gate = linear(x, "ffn_gate", width, hidden);
    const graph::Value up = linear(x, "ffn_up", width, hidden);
    const graph::Value gated = at("ffn_glu").glu(gate, up, graph::Activation::silu);
    return linear(gated, "ffn_down", hidden, width);
  }

 private:
  std::string name(std::string_view part) const { return fmt::format("blk.{}.{}", layer_, part); }

  graph::Builder* builder_;
  const WeightSource* weights_;
  const Hyperparameters* hyper_;
  std::uint32_t layer_;
};

/// For architectures that have dense feed-forwards only.
inline void refuse_experts(const Hyperparameters& h) {
  if (h.experts > 0)
    fail(ErrorCode::unsupported,
         "{}.expert_count is {}: mixture-of-experts layers are not supported yet in this architecture",
         h.architecture, h.experts);
}

}  // namespace quipu::models

// DeepSeek-V2, V3, R1, Kimi K2, GLM-4.7 Lite (GGUF architecture "deepseek2"). Sources: DeepSeek-AI 2024,
// DeepSeek-V2 (multi-head latent attention, shared experts, groups of experts) and DeepSeek-V3 (sigmoid
// scores, a bias for the choice).
//
// Keys and values of all heads come from one latent vector a position. Files that hold the up-projections
// head by head (attn_k_b, attn_v_b) are run in the absorbed form: the cache keeps the latent vector and one
// rotary key, every head's query is brought into the latent space, and its result out of it. Older files
// (attn_kv_b) are expanded to full heads.
#include <cmath>

#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

namespace {

/// One block's attention with its sizes.
struct LatentAttention {
  Decoder& model;
  Block& block;
  const Rotary& rotary;
  float scale;
  std::int64_t rank, rope, key, value;
  std::int64_t nope = key - rope;  ///< elements of a head that do not turn

  /// Turns the elements of every head from `first` on.
  Value turn(Value x, std::int64_t heads, std::int64_t head_dim, std::int64_t first) {
    return block.at("rope").rope({.x = x,
                                  .heads = heads,
                                  .head_dim = head_dim,
                                  .neox = false,
                                  .inv_freq = rotary.turns.inv_freq,
                                  .magnitude = rotary.turns.magnitude,
                                  .first = first});
  }

  Value operator()(Value x) {
    graph::Builder& g = model.g;
    Value q = x;
    const bool low_rank = model.hyper.latent.q_rank > 0;
    if (low_rank) q = block.norm(block.linear(x, "attn_q_a", model.hyper.latent.q_rank), "attn_q_a_norm");
    q = block.linear(q, low_rank ? "attn_q_b" : "attn_q", block.heads * key);
    q = turn(q, block.heads, key, nope);

    const Value both = block.linear(x, "attn_kv_a_mqa", rank + rope);
    const Value latent = block.norm(block.at("attn_kv_a").slice(both, 1, 0, rank), "attn_kv_a_norm");
    const Value turned = turn(g.slice(both, 1, rank, rope), 1, rope, 0);
    return model.weights.size(block.name("attn_kv_b.weight"), 0) > 0 ? expanded(q, latent, turned)
                                                                     : absorbed(q, latent, turned);
  }

  Value absorbed(Value q, Value latent, Value turned) {
    graph::Builder& g = model.g;
    const std::int64_t heads = block.heads;
    const TensorView k_b = model.weights.get(block.name("attn_k_b.weight"), {nope, rank, heads});
    const TensorView v_b = model.weights.get(block.name("attn_v_b.weight"), {rank, value, heads});
    const Value in_latent = block.at("attn_k_b").head_linear(g.slice(q, heads, 0, nope), k_b);
    const Value queries = block.at("attn_q").concat(in_latent, g.slice(q, heads, nope, rope), heads);
    const Value keys = block.at("attn_k").concat(latent, turned, 1);
    const Value attended = block.wanted(attend(queries, keys, latent, 1, rank + rope, rank));
    return block.linear(block.at("attn_v_b").head_linear(attended, v_b), "attn_output", block.width);
  }

  Value expanded(Value q, Value latent, Value turned) {
    graph::Builder& g = model.g;
    const std::int64_t heads = block.heads;
    const Value both = block.linear(latent, "attn_kv_b", heads * (nope + value));
    const Value keys =
        block.at("attn_k").concat(g.slice(both, heads, 0, nope), turned, heads, /*shared=*/true);
    const Value values = block.at("attn_v").slice(both, heads, nope, value);
    const Value attended = block.wanted(attend(q, keys, values, heads, key, value));
    return block.linear(attended, "attn_output", block.width);
  }

  Value attend(Value q, Value k, Value v, std::int64_t kv_heads, std::int64_t head_dim, std::int64_t v_dim) {
    return block.at("attention")
        .attention({.q = q,
                    .k = k,
                    .v = v,
                    .layer = static_cast<std::int32_t>(block.index),
                    .heads = block.heads,
                    .kv_heads = kv_heads,
                    .head_dim = head_dim,
                    .v_dim = v_dim,
                    .scale = scale,
                    .sinks = std::nullopt});
  }
};

}  // namespace

graph::Graph build_deepseek2(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  Rotary rotary = model.rotary(/*neox=*/false);
  const std::int64_t key = h.latent.key_dim > 0 ? h.latent.key_dim : h.key_dim;
  const std::int64_t value = h.latent.value_dim > 0 ? h.latent.value_dim : h.value_dim;
  if (h.latent.kv_rank == 0 || key <= h.rope_dims)
    fail(ErrorCode::bad_file,
         "{}: attention.kv_lora_rank is {} and heads are {} with {} that turn; expected a rank and larger "
         "heads",
         h.architecture, h.latent.kv_rank, key, h.rope_dims);
  // YaRN's temperature is applied to the scores here, for both sides of the product, and not to what turns.
  float scale = 1.0f / std::sqrt(static_cast<float>(key));
  if (h.rope_scaling.type == RopeScalingType::yarn && h.rope_scaling.log_multiplier > 0) {
    const double temperature = 1 + h.rope_scaling.log_multiplier * std::log(h.rope_scaling.factor);
    scale = static_cast<float>(scale * temperature * temperature);
    rotary.turns.magnitude = 1;
  }

  // Files without the key: those with a bias for the choice score by sigmoid, as V3 does.
  const std::string bias = fmt::format("blk.{}.exp_probs_b.bias", h.experts.leading_dense);
  const bool sigmoid = h.experts.gating == 2 || (h.experts.gating == 0 && w.size(bias, 0) > 0);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    LatentAttention attention{model, block, rotary, scale, h.latent.kv_rank, h.rope_dims, key, value};
    x = block.add(x, attention(block.norm(x, "attn_norm")), "attn_residual");

    const Value fed = block.experts_or_gated(
        block.norm(x, "ffn_norm"), {.gating = sigmoid ? graph::Gating::sigmoid : graph::Gating::softmax,
                                    .renormalise = h.experts.renormalise.value_or(false),
                                    .group_top = sigmoid ? 2 : 1});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models

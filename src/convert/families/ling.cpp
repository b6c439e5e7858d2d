// Ling 1 and 2: queries, keys and values in one matrix, experts beside shared ones. Source of names: the
// publisher's modelling code (inclusionAI/Ling, inclusionAI/Ling-V2).
#include <algorithm>
#include <cmath>

#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"
#include "core/error.hpp"

namespace quipu::convert {
namespace {

const TensorRule kLingTrunk[] = {
    {"word_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"norm", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
const TensorRule kLingOutput[] = {
    {"layers.{}.attention.dense", "blk.{}.attn_output", {Dim::width, Dim::q}},
};
/// Taken apart, with rotary pairs as neighbours.
const TensorRule kLing1Attention[] = {
    {"layers.{}.attention.query_key_value",
     "blk.{}.attn_q",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::paired_queries}},
    {"layers.{}.attention.query_key_value",
     "blk.{}.attn_k",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::paired_keys_behind_queries}},
    {"layers.{}.attention.query_key_value",
     "blk.{}.attn_v",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::values}},
};
const TensorRule kLing2Attention[] = {
    {"layers.{}.attention.query_key_value", "blk.{}.attn_qkv", {Dim::qkv, Dim::width}},
    {"layers.{}.attention.query_layernorm", "blk.{}.attn_q_norm", {Dim::head_dim}},
    {"layers.{}.attention.key_layernorm", "blk.{}.attn_k_norm", {Dim::head_dim}},
};
const TensorRule kLingBias[] = {
    {"layers.{}.mlp.gate.expert_bias", "blk.{}.exp_probs_b.bias", {Dim::experts}, Presence::optional},
};

/// The output layer is divided by the length of each of its columns.
void norm_head(Job& job) {
  if (!job.config.flag_or("norm_head", false)) return;
  const auto head = std::find_if(job.tensors.begin(), job.tensors.end(), [](const TensorSource& tensor) {
    return tensor.info.name == "output.weight";
  });
  if (head == job.tensors.end())
    job.config.reject("norm_head", "true", "false, where the output layer is the embedding");
  std::vector<float> row(static_cast<std::size_t>(head->width()));
  std::vector<double> squares(row.size());
  for (std::int64_t i = 0; i < head->row_count(); ++i) {
    head->read_row(i, row);
    for (std::size_t k = 0; k < row.size(); ++k) squares[k] += static_cast<double>(row[k]) * row[k];
  }
  for (const double square : squares)
    head->column_divisors.push_back(static_cast<float>(std::sqrt(square)) + 1e-7f);
}

void add_ling1(Job& job) {
  job.set_number("expert_weights_scale", 1);
  norm_head(job);
}

void add_ling2(Job& job) {
  job.set_count("expert_shared_feed_forward_length", static_cast<std::uint64_t>(job.sizes[Dim::shared_ff]));
}

}  // namespace

std::vector<Family> ling() {
  return {
      {.name = "bailingmoe",
       .classes = "BailingMoeForCausalLM",
       .tensors = join(kLingTrunk, kPreNorms, kLing1Attention, kLingOutput, kGatedFeedForward, kExperts,
                       kSharedExperts),
       .keys = kRenormalised,
       .more = add_ling1},
      {.name = "bailingmoe2",
       .classes = "BailingMoeV2ForCausalLM",
       .tensors = join(kLingTrunk, kPreNorms, kLing2Attention, kLingOutput, kGatedFeedForward, kExperts,
                       kSharedExperts, kLingBias),
       .keys = kRenormalised,
       .defaults = sigmoid_scores,
       .more = add_ling2},
  };
}

}  // namespace quipu::convert

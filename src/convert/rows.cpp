#include "convert/rows.hpp"

#include <numeric>

namespace quipu::convert::rows {
namespace {

Order paired(std::int64_t heads, std::int64_t dim) {
  Order order;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < dim; ++i) order.push_back(head * dim + i % 2 * (dim / 2) + i / 2);
  return order;
}

Order range(std::int64_t first, std::int64_t count) {
  Order order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), first);
  return order;
}

/// `count` rows from `first` on of every group of `group` rows.
Order of_each(std::int64_t groups, std::int64_t group, std::int64_t first, std::int64_t count) {
  Order order;
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = 0; i < count; ++i) order.push_back(g * group + first + i);
  return order;
}

Order joined(const std::vector<Order>& parts) {
  Order order;
  for (const Order& part : parts) order.insert(order.end(), part.begin(), part.end());
  return order;
}

/// `picks`, counted from `first`, of an order.
Order chosen(const Order& order, std::int64_t first, const Order& picks) {
  Order result;
  for (const std::int64_t pick : picks) result.push_back(order[static_cast<std::size_t>(first + pick)]);
  return result;
}

}  // namespace

Order paired_queries(const Sizes& s) { return paired(s[Dim::heads], s[Dim::head_dim]); }
Order paired_keys(const Sizes& s) { return paired(s[Dim::kv_heads], s[Dim::head_dim]); }

Order paired_keys_behind_queries(const Sizes& s) {
  return chosen(range(0, s[Dim::qkv]), s[Dim::q], paired_keys(s));
}

Order ungrouped_heads(const Sizes& s) {
  const std::int64_t dim = s[Dim::head_dim], heads = s[Dim::heads];
  return joined({of_each(heads, 3 * dim, 0, dim), of_each(heads, 3 * dim, dim, dim),
                 of_each(heads, 3 * dim, 2 * dim, dim)});
}

Order ungrouped_kv_heads(const Sizes& s) {
  const std::int64_t dim = s[Dim::head_dim], groups = s[Dim::kv_heads];
  const std::int64_t share = s[Dim::heads] / groups * dim, group = share + 2 * dim;
  return joined({of_each(groups, group, 0, share), of_each(groups, group, share, dim),
                 of_each(groups, group, share + dim, dim)});
}

Order paired_queries_of_groups(const Sizes& s) { return chosen(ungrouped_kv_heads(s), 0, paired_queries(s)); }
Order paired_keys_of_groups(const Sizes& s) {
  return chosen(ungrouped_kv_heads(s), s[Dim::q], paired_keys(s));
}
Order values_of_groups(const Sizes& s) {
  return chosen(ungrouped_kv_heads(s), s[Dim::q] + s[Dim::kv], range(0, s[Dim::kv]));
}

Order latent_values(const Sizes& s) {
  return of_each(s[Dim::heads], s[Dim::nope] + s[Dim::v_dim], s[Dim::nope], s[Dim::v_dim]);
}

Order queries(const Sizes& s) { return range(0, s[Dim::q]); }
Order keys(const Sizes& s) { return range(s[Dim::q], s[Dim::kv]); }
Order values(const Sizes& s) { return range(s[Dim::q] + s[Dim::kv], s[Dim::kv]); }

Order padded_to_vocab(const Sizes& sizes) {
  Order order;
  const std::int64_t have = sizes[Dim::per_layer_vocab], wanted = sizes[Dim::vocab];
  if (have == 0 || have >= wanted) return order;
  for (std::int64_t i = 0; i < wanted; ++i) order.push_back(i < have ? i : -1);
  return order;
}

Order positions_behind_padding(const Sizes& s) {
  return range(s[Dim::position_offset], s[Dim::positions] - s[Dim::position_offset]);
}

Order expert_gates(const Sizes& s) {
  return of_each(s[Dim::experts], s[Dim::expert_ff2], 0, s[Dim::expert_ff]);
}
Order expert_ups(const Sizes& s) {
  return of_each(s[Dim::experts], s[Dim::expert_ff2], s[Dim::expert_ff], s[Dim::expert_ff]);
}
Order alternating_gates(const Sizes& s) { return of_each(s[Dim::experts] * s[Dim::expert_ff], 2, 0, 1); }
Order alternating_ups(const Sizes& s) { return of_each(s[Dim::experts] * s[Dim::expert_ff], 2, 1, 1); }
Order shared_gate(const Sizes& s) { return range(0, s[Dim::shared_ff]); }
Order shared_up(const Sizes& s) { return range(s[Dim::shared_ff], s[Dim::shared_ff]); }

}  // namespace quipu::convert::rows

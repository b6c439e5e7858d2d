#include "backends/cpu/cpu_plan.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "backends/cpu/plan_layout.hpp"
#include "backends/cpu/plan_order.hpp"
#include "backends/cpu/plan_steps.hpp"
#include "backends/cpu/schedule.hpp"
#include "core/error.hpp"
#include "graph/distance_bias.hpp"

namespace quipu::backends::cpu {
namespace {

using graph::Graph;
using graph::MemoryPlan;
using graph::Rows;
using graph::Value;

/// Builds one schedule: for any number of rows, or (`single`) for one token, where a row is too little to
/// share out and every thread norms and quantises it for itself instead of waiting for another.
class Schedule {
 public:
  Schedule(const Graph& graph, NodeRange nodes, const MemoryPlan& memory, const Kernels& kernels,
           PrivateMemory& private_memory, Counters& counters, bool single)
      : graph_(graph),
        users_(graph::value_users(graph)),
        nodes_(nodes),
        memory_(memory),
        kernels_(kernels),
        private_(private_memory),
        counters_(counters),
        single_(single),
        own_(graph.values.size(), false) {}

  Steps build() {
    for (index_ = nodes_.begin; index_ < nodes_.end; ++index_) {
      const graph::Node& node = graph_.nodes[index_];
      std::visit([&](const auto& op) { add(op, node.out); }, node.op);
      // Not what an op prepares for others as well: quantised activations, the order of pairs.
      steps_.back()->adapter = node.adapter;
    }
    place_barriers(steps_);
    link_linears(steps_);
    return std::move(steps_);
  }

 private:
  // ---- memory and cuts ----

  ValueAt at(Value v) const {
    ValueAt a;
    a.width = size(graph_.value(v).width);
    a.rows = graph_.value(v).rows;
    a.is_output = v == graph_.output;
    a.place = memory_.place[v.id];
    return a;
  }
  Access access(Value v, bool write, Cut cut) const {
    const ValueAt a = at(v);
    const std::size_t tokens = size(memory_.max_tokens), outputs = size(memory_.max_outputs);
    const std::size_t rows = a.rows == Rows::tokens ? tokens : outputs;
    // Values that are apart in the largest step are so in every one.
    const std::size_t begin = a.is_output ? 0 : a.place.offset(tokens, outputs);
    return {a.is_output ? Access::Space::outputs : Access::Space::scratch, write, begin,
            begin + a.width * rows * sizeof(float), cut};
  }
  static Access shared(std::size_t begin, std::size_t bytes, bool write, Cut cut) {
    return {Access::Space::shared, write, begin, begin + bytes, cut};
  }
  static Access cache(std::size_t layer, bool write, Cut cut) {
    return {Access::Space::cache, write, layer, layer + 1, cut};
  }
  /// Rows, or thread 0 alone for the single one.
  Cut row_cut(Rows rows) const { return single_ ? Cut{Cut::Kind::first, 0, 0} : Cut::rows(rows); }

  template <class T>
  T& push() {
    auto step = std::make_unique<T>();
    step->k = &kernels_;
    T& ref = *step;
    steps_.push_back(std::move(step));
    return ref;
  }

  // ---- who uses a value ----

  const std::vector<std::size_t>& users(Value v) const { return users_[v.id]; }
  bool only_linears_use(Value v) const {
    if (v == graph_.output) return false;
    const std::vector<std::size_t>& found = users(v);
    return !found.empty() && std::all_of(found.begin(), found.end(), [&](std::size_t i) {
      return i >= nodes_.begin && i < nodes_.end && std::holds_alternative<graph::Linear>(graph_.nodes[i].op);
    });
  }
  /// True when the last user of `v`, made by this node, stands before the next norm: a thread has room for
  /// one normalised row of its own.
  bool used_up_before_next_norm(Value v) const {
    std::size_t next = index_ + 1;
    while (next < nodes_.end && !std::holds_alternative<graph::RmsNorm>(graph_.nodes[next].op) &&
           !std::holds_alternative<graph::LayerNorm>(graph_.nodes[next].op))
      ++next;
    return users(v).back() < next;
  }
  /// The grain in which a linear's or elementwise op's columns are shared out: whole heads where RoPE or the
  /// cache goes on by heads, so that no barrier is needed between.
  std::size_t grain(Value v) const {
    std::size_t g = 16;
    for (const std::size_t i : users(v)) {
      if (const auto* rope = std::get_if<graph::Rope>(&graph_.nodes[i].op)) {
        if (rope->head_dim % 16 == 0) g = size(rope->head_dim);
      } else if (const auto* attention = std::get_if<graph::Attention>(&graph_.nodes[i].op)) {
        if (attention->v == v && attention->v_dim % 16 == 0) g = size(attention->v_dim);
        if (attention->k == v && attention->head_dim % 16 == 0) g = size(attention->head_dim);
      }
    }
    return g;
  }
  Cut column_cut(Value v) const { return Cut::columns(size(graph_.value(v).width), grain(v)); }

  // ---- ops ----

  void add(const graph::Embed& op, Value out) { add_embed(op.weight, out, EmbedStep::By::token); }
  void add(const graph::EmbedPositions& op, Value out) { add_embed(op.weight, out, EmbedStep::By::position); }
  void add(const graph::EmbedTypes& op, Value out) { add_embed(op.weight, out, EmbedStep::By::type); }
  void add_embed(const TensorView& weight, Value out, EmbedStep::By by) {
    auto& s = push<EmbedStep>();
    s.weight = weight;
    s.by = by;
    s.out = at(out);
    s.cut = row_cut(Rows::tokens);
    s.accesses = {access(out, true, s.cut)};
  }

  void add(const graph::RmsNorm& op, Value out) {
    add_norm(op.x, out, op.weight, std::nullopt, op.eps, false);
  }
  void add(const graph::LayerNorm& op, Value out) { add_norm(op.x, out, op.weight, op.bias, op.eps, true); }
  void add_norm(Value x, Value out, const TensorView& weight, const std::optional<TensorView>& bias,
                float eps, bool layer) {
    auto& s = push<NormStep>();
    s.x = at(x);
    s.out = at(out);
    s.weight = float_weight(weight);
    if (bias) s.bias = float_weight(*bias);
    s.group = size(weight.width());
    s.own_weights = weight.shape[1] != 1;
    s.eps = eps;
    s.layer = layer;
    if (s.group == s.x.width) last_norm_ = {&s, out};
    s.own = single_ && only_linears_use(out) && used_up_before_next_norm(out);
    if (s.own) {
      own_[out.id] = true;
      s.own_out = private_.own_norm;
      s.accesses = {access(x, false, Cut{})};
      return;
    }
    s.cut = row_cut(graph_.value(out).rows);
    s.accesses = {access(x, false, s.cut), access(out, true, s.cut)};
  }

  /// True when the step before this made x by a norm, which then quantises it in the same pass.
  bool quantize_in_norm(Value x) {
    const auto [norm, normed] = last_norm_;
    if (norm == nullptr || normed != x || steps_.back().get() != norm || (single_ && !norm->own))
      return false;
    norm->quantizes = true;
    norm->floats = x == graph_.output || !std::all_of(users(x).begin(), users(x).end(), [&](std::size_t i) {
                     if (i < nodes_.begin || i >= nodes_.end) return false;  // another device
                     const auto* linear = std::get_if<graph::Linear>(&graph_.nodes[i].op);
                     return linear != nullptr && is_quantized(linear->weight);
                   });
    norm->to = single_ ? private_.own_row : private_.shared_rows;
    if (!single_)
      norm->accesses.push_back(
          shared(private_.shared_rows.memory.offset, private_.shared_bytes, true, norm->cut));
    return true;
  }

  /// The quantised form of x, made when the buffer does not hold it already.
  void quantize(Value x) {
    if (quantized_ == x) return;
    quantized_ = x;
    if (quantize_in_norm(x)) return;
    auto& s = push<QuantizeStep>();
    s.x = at(x);
    s.own = single_;
    s.x_is_own = own_[x.id];
    s.own_x = private_.own_norm;
    s.to = single_ ? private_.own_row : private_.shared_rows;
    if (single_) {
      if (!s.x_is_own) s.accesses = {access(x, false, Cut{})};
      return;
    }
    const Cut cut = Cut::rows(graph_.value(x).rows);
    s.accesses = {access(x, false, cut),
                  shared(private_.shared_rows.memory.offset, private_.shared_bytes, true, cut)};
  }

  void add(const graph::Linear& op, Value out) {
    const bool quantized = is_quantized(op.weight);
    if (quantized) quantize(op.x);
    // A sum right behind takes part in the same pass, unless its place still holds this op's input.
    Value residual{}, target = out;
    if (const std::size_t next = index_ + 1; next < nodes_.end && out != graph_.output) {
      const auto* sum = std::get_if<graph::Add>(&graph_.nodes[next].op);
      if (sum != nullptr && (sum->a == out) != (sum->b == out) && users(out).size() == 1) {
        const Value other = sum->a == out ? sum->b : sum->a;
        const Value into = graph_.nodes[next].out;
        const Access x = access(op.x, false, Cut{}), y = access(into, true, Cut{});
        const bool clear = !meet(x, y) || (quantized && !single_);
        if (clear) {
          residual = other;
          target = into;
        }
      }
    }
    auto& s = push<LinearStep>();
    s.weight = op.weight;
    if (op.bias) s.bias = float_weight(*op.bias);
    s.x = at(op.x);
    s.out = at(target);
    s.slot = slot_of(op.weight);
    s.quantized = quantized;
    s.x_is_own = own_[op.x.id];
    s.own_x = private_.own_norm;
    s.from = single_ ? private_.own_row : private_.shared_rows;
    s.grain = grain(target);
    s.work = private_.work;
    const Cut cut = Cut::columns(s.out.width, s.grain);
    s.accesses = {access(target, true, cut)};
    if (residual != Value{}) {
      s.has_residual = true;
      s.residual = at(residual);
      s.accesses.push_back(access(residual, false, cut));
      ++index_;
    }
    if (!quantized && !s.x_is_own) s.accesses.push_back(access(op.x, false, Cut{}));
    if (quantized && !single_)
      s.accesses.push_back(shared(private_.shared_rows.memory.offset, private_.shared_bytes, false, Cut{}));
  }

  ElementwiseStep& add_elementwise(ElementwiseStep::Kind kind, Value a, Value b, Value out) {
    auto& s = push<ElementwiseStep>();
    s.kind = kind;
    s.a = at(a);
    s.b = at(b);
    s.out = at(out);
    s.grain = grain(out);
    const Cut cut = column_cut(out);
    s.accesses = {access(a, false, cut), access(b, false, s.b.width == s.out.width ? cut : Cut{}),
                  access(out, true, cut)};
    return s;
  }
  void add(const graph::Glu& op, Value out) {
    ElementwiseStep& s = add_elementwise(ElementwiseStep::Kind::glu, op.gate, op.up, out);
    s.activation = static_cast<int>(op.activation);
    s.limit = op.limit;
    s.shift = op.up_shift;
  }
  void add(const graph::Activate& op, Value out) {
    add_elementwise(ElementwiseStep::Kind::activate, op.x, op.x, out).activation =
        static_cast<int>(op.activation);
  }
  void add(const graph::Xielu& op, Value out) {
    ElementwiseStep& s = add_elementwise(ElementwiseStep::Kind::xielu, op.x, op.x, out);
    const float settings[] = {op.alpha_p, op.alpha_n, op.beta, op.eps};
    std::copy_n(settings, 4, s.xielu);
  }
  void add(const graph::GaussianTopK& op, Value out) {
    auto& s = push<TopKStep>();
    s.x = at(op.x);
    s.out = at(out);
    s.deviations = op.deviations;
    s.cut = row_cut(s.out.rows);
    s.accesses = {access(op.x, false, s.cut), access(out, true, s.cut)};
  }
  void add(const graph::Mix& op, Value out) {
    auto& s = push<MixStep>();
    s.x = at(op.x);
    s.weights = at(op.weights);
    s.out = at(out);
    s.parts = size(op.parts);
    s.accesses = {access(op.x, false, Cut{}), access(op.weights, false, Cut{}), access(out, true, Cut{})};
  }
  void add(const graph::PositionTemperature& op, Value out) {
    auto& s = push<TemperatureStep>();
    s.out = at(out);
    s.scale = op.scale;
    s.length = op.length;
    s.offset = op.offset;
    s.cut = row_cut(Rows::tokens);
    s.accesses = {access(out, true, s.cut)};
  }
  void add(const graph::Add& op, Value out) { add_elementwise(ElementwiseStep::Kind::add, op.a, op.b, out); }
  void add(const graph::Mul& op, Value out) { add_elementwise(ElementwiseStep::Kind::mul, op.a, op.b, out); }
  void add(const graph::Scale& op, Value out) {
    add_elementwise(ElementwiseStep::Kind::scale, op.x, op.x, out).factor = op.factor;
  }

  void add(const graph::AddAdapted& op, Value out) {
    ElementwiseStep& s = add_elementwise(ElementwiseStep::Kind::add_adapted, op.x, op.delta, out);
    s.factor = op.scale;
    s.adapter = size(op.adapter);
  }
  void add(const graph::AddVector& op, Value out) {
    add_elementwise(ElementwiseStep::Kind::add_vector, op.x, op.x, out).vector = float_weight(op.vector);
  }

  void add(const graph::MulVector& op, Value out) {
    add_elementwise(ElementwiseStep::Kind::mul_vector, op.x, op.x, out).vector = float_weight(op.vector);
  }

  void add(const graph::Rope& op, Value out) {
    const std::size_t pairs = op.inv_freq->size(),
                      bytes = size(memory_.max_tokens) * 2 * pairs * sizeof(float);
    const auto key = std::make_pair(op.inv_freq.get(), op.magnitude);
    auto found = tables_.find(key);
    if (found == tables_.end()) {
      found = tables_.emplace(key, private_.take(bytes, false)).first;
      auto& t = push<RopeTableStep>();
      t.inv_freq = op.inv_freq;
      t.magnitude = op.magnitude;
      t.table = found->second;
      t.cut = row_cut(Rows::tokens);
      t.accesses = {shared(t.table.offset, bytes, true, t.cut)};
    }
    auto& s = push<RopeStep>();
    s.x = at(op.x);
    s.out = at(out);
    s.heads = size(op.heads);
    s.head_dim = size(op.head_dim);
    s.pairs = pairs;
    s.neox = op.neox;
    s.first = size(op.first);
    s.table = found->second;
    s.cut = single_ ? Cut::columns(s.x.width, s.head_dim) : Cut::rows(Rows::tokens);
    s.accesses = {access(op.x, false, s.cut), access(out, true, s.cut),
                  shared(s.table.offset, bytes, false, single_ ? Cut{} : s.cut)};
  }

  /// Attention's own, or StoreKv.
  template <class Op>
  void add_store(const Op& op) {
    const auto layer = static_cast<std::size_t>(op.layer);
    auto& store = push<StoreStep>();
    store.key = at(op.k);
    store.value = at(op.v);
    store.layer = layer;
    store.kv_heads = size(op.kv_heads);
    store.head_dim = size(op.head_dim);
    store.v_dim = size(op.v_dim);
    store.by_head = single_;
    const Cut rows = Cut::rows(Rows::tokens);
    store.accesses = {
        access(op.k, false, single_ ? Cut::columns(store.key.width, store.head_dim) : rows),
        access(op.v, false, single_ ? Cut::columns(store.value.width, store.v_dim) : rows),
        cache(layer, true, Cut{}),
    };
  }
  void add(const graph::StoreKv& op, Value) { add_store(op); }

  void add(const graph::Attention& op, Value out) {
    const auto layer = static_cast<std::size_t>(op.layer);
    if (!op.stored) add_store(op);
    auto& s = push<AttendStep>();
    s.q = at(op.q);
    s.out = at(out);
    s.layer = layer;
    s.heads = size(op.heads);
    s.kv_heads = size(op.kv_heads);
    s.head_dim = size(op.head_dim);
    s.v_dim = size(op.v_dim);
    s.scale = op.scale;
    s.soft_cap = op.soft_cap;
    s.window = op.window;
    s.chunk = op.chunk;
    s.causal = op.causal;
    s.reach = op.reach;
    if (op.sinks) s.sinks = float_weight(*op.sinks);
    s.slopes = alibi_slopes(op.heads, op.alibi_max_bias);
    s.biases = graph::distance_biases(op);
    s.bias_reach = op.max_distance;
    s.work = private_.work;
    s.query_tokens = query_tokens(op, kernels_);
    s.single = single_;
    s.partial = private_.partial;
    counters_.push_back(std::make_unique<std::atomic<std::uint32_t>>(0));
    s.next_unit = counters_.back().get();
    s.accesses = {access(op.q, false, Cut{}), access(out, true, Cut{}), cache(layer, false, Cut{})};
    if (single_ && private_.threads > 1) {
      s.accesses.push_back(shared(private_.partial.offset, 1, true, Cut{}));
      auto& merge = push<MergeStep>();
      merge.attend = &s;
      merge.accesses = {access(out, true, Cut{}), shared(private_.partial.offset, 1, true, Cut{})};
    }
  }

  void add(const graph::Slice& op, Value out) {
    CopyStep& s = add_copy(out, op.groups);
    copy(s, op.x, op.first, graph_.value(op.x).width / op.groups, op.count);
  }
  void add(const graph::Concat& op, Value out) {
    CopyStep& s = add_copy(out, op.groups);
    const std::int64_t a = graph_.value(op.a).width / op.groups, b = graph_.value(op.b).width;
    copy(s, op.a, 0, a, a);
    copy(s, op.b, 0, op.shared ? 0 : b / op.groups, op.shared ? b : b / op.groups);
  }
  CopyStep& add_copy(Value out, std::int64_t groups) {
    auto& s = push<CopyStep>();
    s.out = at(out);
    s.groups = size(groups);
    s.cut = row_cut(s.out.rows);
    s.accesses = {access(out, true, s.cut)};
    return s;
  }
  void copy(CopyStep& s, Value from, std::int64_t first, std::int64_t part, std::int64_t count) {
    s.runs.push_back({at(from), size(first), size(part), size(count)});
    s.accesses.push_back(access(from, false, s.cut));
  }

  // ---- experts ----

  Access grouping_access(bool write) const {
    return shared(private_.grouping.offset, private_.grouping_bytes, write, Cut{});
  }
  Access pairs_access(bool write) const {
    return shared(private_.pair_rows.offset, private_.pair_bytes, write, Cut{});
  }

  void add(const graph::MoeRoute& op, Value out) {
    auto& s = push<RouteStep>();
    s.logits = at(op.logits);
    s.out = at(out);
    if (op.bias) s.bias = float_weight(*op.bias);
    if (op.expert_scale) s.expert_scale = float_weight(*op.expert_scale);
    s.settings.experts = s.logits.width;
    s.settings.used = size(op.used);
    s.settings.groups = size(op.groups);
    s.settings.groups_used = size(op.groups_used);
    s.settings.group_top = size(op.group_top);
    s.settings.gating = static_cast<int>(op.gating);
    s.settings.renormalise = op.renormalise;
    s.settings.scale = op.scale;
    s.work = private_.work;
    s.cut = row_cut(s.out.rows);
    s.accesses = {access(op.logits, false, s.cut), access(out, true, s.cut)};
  }

  /// The pairs of `route` (or of heads) in order, made when the buffer does not hold them already.
  void group(Value route, std::size_t used, std::size_t groups, bool heads) {
    if (!heads && grouped_ == route) return;
    grouped_ = heads ? Value{} : route;
    paired_ = Value{};
    auto& s = push<GroupStep>();
    s.route = at(route);
    s.heads = heads;
    s.used = used;
    s.groups = groups;
    s.to = {private_.grouping, groups, private_.rows * used};
    s.accesses = {grouping_access(true)};
    if (!heads) s.accesses.push_back(access(route, false, Cut{}));
  }

  void add_experts(Value x, Value out, const TensorView& weight, const std::optional<TensorView>& bias,
                   std::size_t used) {
    const bool quantized = is_quantized(weight);
    const std::size_t pairs = private_.rows * used;
    const Grouping grouping{private_.grouping, size(weight.shape[2]), pairs};
    const QuantizedAt rows{private_.pair_rows, pairs, private_.wide};
    if (quantized && paired_ != x) {
      paired_ = x;
      auto& q = push<QuantizePairsStep>();
      q.x = at(x);
      q.used = used;
      q.width = size(weight.width());
      q.grouping = grouping;
      q.to = rows;
      q.accesses = {access(x, false, Cut{}), grouping_access(false), pairs_access(true)};
    }
    auto& s = push<ExpertsLinearStep>();
    s.weight = weight;
    if (bias) s.bias = float_weight(*bias);
    s.x = at(x);
    s.out = at(out);
    s.used = used;
    s.slot = slot_of(weight);
    s.quantized = quantized;
    s.grouping = grouping;
    s.from = rows;
    s.work = private_.work;
    s.accesses = {access(out, true, Cut{}), grouping_access(false)};
    s.accesses.push_back(quantized ? pairs_access(false) : access(x, false, Cut{}));
  }
  void add(const graph::MoeLinear& op, Value out) {
    const std::size_t used = size(graph_.value(op.route).width / 2);
    group(op.route, used, size(op.weight.shape[2]), false);
    add_experts(op.x, out, op.weight, op.bias, used);
  }
  void add(const graph::HeadLinear& op, Value out) {
    const std::size_t heads = size(op.weight.shape[2]);
    group(op.x, heads, heads, true);
    add_experts(op.x, out, op.weight, std::nullopt, heads);
  }

  void add(const graph::MoeCombine& op, Value out) {
    auto& s = push<CombineStep>();
    s.x = at(op.x);
    s.route = at(op.route);
    s.out = at(out);
    s.used = s.route.width / 2;
    s.grain = grain(out);
    s.accesses = {access(op.x, false, Cut{}), access(op.route, false, Cut{}),
                  access(out, true, column_cut(out))};
  }

  void add(const graph::GatherOutputs& op, Value out) {
    auto& s = push<GatherStep>();
    s.x = at(op.x);
    s.out = at(out);
    s.cut = row_cut(Rows::outputs);
    s.accesses = {access(op.x, false, Cut{}), access(out, true, s.cut)};
  }

  void add(const graph::Pool& op, Value out) {
    auto& s = push<PoolStep>();
    s.x = at(op.x);
    s.out = at(out);
    s.kind = op.kind;
    s.cut = row_cut(Rows::outputs);
    s.accesses = {access(op.x, false, Cut{}), access(out, true, s.cut)};
  }

  const Graph& graph_;
  const std::vector<std::vector<std::size_t>> users_;
  NodeRange nodes_;
  const MemoryPlan& memory_;
  const Kernels& kernels_;
  PrivateMemory& private_;
  Counters& counters_;
  bool single_;
  std::vector<bool> own_;  ///< by value: every thread has its own copy
  Value quantized_{};      ///< what the quantised buffer holds
  std::pair<NormStep*, Value> last_norm_{};
  Value grouped_{};  ///< the route whose pairs stand in order
  Value paired_{};   ///< what the quantised pairs are of
  std::size_t index_ = 0;
  Steps steps_;
  std::map<std::pair<const void*, float>, PrivateAt> tables_;
};

}  // namespace

std::optional<std::string> decline_reason(const Graph&, const graph::Node& node) {
  const TensorView* weight = nullptr;
  if (const auto* linear = std::get_if<graph::Linear>(&node.op)) weight = &linear->weight;
  if (const auto* experts = std::get_if<graph::MoeLinear>(&node.op)) weight = &experts->weight;
  if (const auto* heads = std::get_if<graph::HeadLinear>(&node.op)) weight = &heads->weight;
  if (weight != nullptr && slot_of(*weight) < 0)
    return fmt::format("no kernel for {} weights", to_string(weight->dtype));
  return std::nullopt;
}

Steps build_schedule(const Graph& graph, NodeRange nodes, const MemoryPlan& memory, const Kernels& kernels,
                     PrivateMemory& private_memory, Counters& counters, bool single) {
  return Schedule(graph, nodes, memory, kernels, private_memory, counters, single).build();
}

}  // namespace quipu::backends::cpu

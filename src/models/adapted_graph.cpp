// Puts adapters into a graph: behind each product that an adapter changes stand two more of low rank and
// their sum.
#include <set>

#include "core/error.hpp"
#include "models/adapter.hpp"
#include "models/decoder.hpp"

namespace quipu::models {
namespace {

using graph::Value;

/// The block that a node "blk.N.part" belongs to; -1: none.
std::int64_t block_of(const std::string& node) {
  if (!node.starts_with("blk.")) return -1;
  std::int64_t block = 0;
  std::size_t at = 4;
  for (; at < node.size() && node[at] >= '0' && node[at] <= '9' && at < 14; ++at)
    block = block * 10 + (node[at] - '0');
  return at > 4 && at < node.size() && node[at] == '.' ? block : -1;
}

class Rewriter {
 public:
  Rewriter(const graph::Graph& plain, const Model& model,
           std::span<const std::shared_ptr<const Adapter>> adapters, const ControlVector* control)
      : plain_(plain),
        model_(model),
        adapters_(adapters),
        control_(control),
        now_(plain.values.size()),
        used_(adapters.size()) {}

  graph::Graph run() {
    if (adapters_.size() > static_cast<std::size_t>(graph::kMaxAdapters))
      fail(ErrorCode::invalid_argument, "{} adapters, allowed are {}", adapters_.size(), graph::kMaxAdapters);
    for (std::size_t i = 0; i < plain_.nodes.size(); ++i) {
      const graph::Node& node = plain_.nodes[i];
      graph::Op op = node.op;
      std::vector<Value> inputs = graph::op_inputs(op);
      for (Value& input : inputs) input = now_[input.id];
      graph::set_op_inputs(op, inputs);
      g_.at(node.name);
      Value out = g_.push(op);
      for (std::size_t a = 0; a < adapters_.size(); ++a)
        out = std::visit([&](const auto& kind) { return adapted(kind, out, a, node.name); }, op);
      if (control_ != nullptr && ends_block(i)) out = steered(i, out);
      now_[node.out.id] = out;
    }
    refuse_unused();
    return g_.finish(now_[plain_.output.id]);
  }

 private:
  // ---- adapters ----

  template <class Op>
  Value adapted(const Op&, Value out, std::size_t, const std::string&) {
    return out;
  }
  Value adapted(const graph::Linear& op, Value out, std::size_t a, const std::string& name) {
    // A model without output.weight uses the embedding there; the two are adapted apart, as in PEFT.
    const std::string_view weight = op.weight.name == kEmbedding ? kOutput : std::string_view(op.weight.name);
    const LowRank* part = take(a, weight);
    if (part == nullptr) return out;
    return sum(out, name, a, *part,
               [&] { return g_.linear(g_.linear(op.x, part->a), rows_like(op.weight, part->b, name)); });
  }
  Value adapted(const graph::MoeLinear& op, Value out, std::size_t a, const std::string& name) {
    const LowRank* part = take(a, op.weight.name);
    if (part == nullptr) return out;
    return sum(out, name, a, *part,
               [&] { return g_.moe_linear(g_.moe_linear(op.x, op.route, part->a), op.route, part->b); });
  }
  Value adapted(const graph::Embed& op, Value out, std::size_t a, const std::string& name) {
    const LowRank* part = take(a, op.weight.name);
    if (part == nullptr) return out;
    return sum(out, name, a, *part, [&] { return g_.linear(g_.embed(part->a), part->b); });
  }

  const LowRank* take(std::size_t adapter, std::string_view weight) {
    const LowRank* part = adapters_[adapter]->find(weight);
    if (part != nullptr) used_[adapter].emplace(weight);
    return part;
  }

  template <class Delta>
  Value sum(Value out, const std::string& name, std::size_t a, const LowRank& part, const Delta& delta) {
    const auto adapter = static_cast<std::int32_t>(a);
    g_.at(name + ".lora").of_adapter(adapter);
    const Value added = delta();
    return g_.of_adapter(-1).add_adapted(out, added, adapter, part.scale);
  }

  /// The rows of `b` for a product that uses only some rows of its weight (one matrix for several).
  TensorView rows_like(const TensorView& weight, const TensorView& b, const std::string& name) const {
    if (weight.rows() == b.rows()) return b;
    const TensorView* whole = model_.file().find_tensor(weight.name);
    const bool is_part = whole != nullptr && whole->rows() == b.rows() && weight.data >= whole->data;
    const std::int64_t first =
        is_part ? (weight.data - whole->data) / static_cast<std::ptrdiff_t>(weight.row_bytes()) : 0;
    if (!is_part || first + weight.rows() > b.rows())
      fail(ErrorCode::unsupported, "node '{}': {} is used in a way that no adapter can follow", name,
           printable(weight.name));
    return rows_of(b, first, weight.rows());
  }

  void refuse_unused() const {
    for (std::size_t a = 0; a < adapters_.size(); ++a)
      for (const auto& [weight, part] : adapters_[a]->parts())
        if (!used_[a].contains(weight))
          fail(ErrorCode::unsupported,
               "{}: {} is no product of the model's graph: architecture {} has no place for this part of the "
               "adapter",
               printable(adapters_[a]->path(), 1000), printable(part.a.name),
               model_.hyperparameters().architecture);
  }

  // ---- control vectors ----

  bool ends_block(std::size_t i) const {
    const std::int64_t block = block_of(plain_.nodes[i].name);
    return block >= 0 && (i + 1 == plain_.nodes.size() || block_of(plain_.nodes[i + 1].name) != block);
  }

  /// The last value of a block is what the next one reads, and all that it reads of it.
  Value steered(std::size_t i, Value out) {
    const graph::Node& node = plain_.nodes[i];
    const std::int64_t block = block_of(node.name);
    const auto direction = control_->direction(static_cast<std::uint32_t>(block));
    if (!direction) return out;
    std::set<std::uint32_t> inside;
    for (std::size_t j = 0; j < i; ++j)
      if (block_of(plain_.nodes[j].name) == block) inside.insert(plain_.nodes[j].out.id);
    bool passes = plain_.value(node.out).width == model_.hyperparameters().embedding;
    for (std::size_t j = i + 1; j < plain_.nodes.size(); ++j)
      for (const Value input : graph::op_inputs(plain_.nodes[j].op))
        passes = passes && !inside.contains(input.id);
    if (!passes)
      fail(ErrorCode::unsupported, "control vectors are not supported for architecture {}",
           model_.hyperparameters().architecture);
    return g_.at("blk." + std::to_string(block) + ".control").add_vector(out, *direction);
  }

  static constexpr std::string_view kEmbedding = "token_embd.weight", kOutput = "output.weight";
  const graph::Graph& plain_;
  const Model& model_;
  std::span<const std::shared_ptr<const Adapter>> adapters_;
  const ControlVector* control_;
  graph::Builder g_;
  std::vector<Value> now_;  ///< by value of the plain graph: what stands for it
  std::vector<std::set<std::string, std::less<>>> used_;
};

}  // namespace

graph::Graph with_adapters(const graph::Graph& plain, const Model& model,
                           std::span<const std::shared_ptr<const Adapter>> adapters,
                           const ControlVector* control) {
  if (model.has_prompt_encoder())
    fail(ErrorCode::unsupported,
         "adapters and control vectors are not supported for architecture {}: its encoder has no place for "
         "them",
         model.hyperparameters().architecture);
  return Rewriter(plain, model, adapters, control).run();
}

}  // namespace quipu::models

// How far a text is from its end: so that a generation that runs out of tokens can be brought to one.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "text/grammar/expression.hpp"

namespace quipu::text::grammar {

/// Bytes (a control token counts as one) that complete a text in a shortest or nearly shortest way, for the
/// states of one store.
class Completion {
 public:
  static constexpr std::uint32_t kFar = 0x3fffffff;

  /// The store must be finished and outlive this.
  explicit Completion(Store& store) : store_(store) {}

  /// kFar where it is not known.
  std::uint32_t of(Id id);
  std::size_t memory() const { return known_.size() * 24; }
  void forget() { known_.clear(); }

 private:
  void find_rules();
  std::uint32_t compute(Id id);
  std::uint32_t search(Id id);
  std::uint32_t of_until(const Node& node);
  std::uint32_t of_members(const Node& node);

  Store& store_;
  std::unordered_map<Id, std::uint32_t> known_;
  std::vector<std::uint32_t> rules_;
  bool have_rules_ = false;
};

}  // namespace quipu::text::grammar

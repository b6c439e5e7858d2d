#include "text/grammar/completion.hpp"

#include <algorithm>
#include <unordered_set>

namespace quipu::text::grammar {

namespace {

/// Derivatives that the search for an end may take, where the structure does not tell.
constexpr std::size_t kMostSteps = 20'000;
constexpr int kMostRounds = 100;

std::uint32_t plus(std::uint32_t x, std::uint32_t y) { return std::min(x + y, Completion::kFar); }

std::uint32_t multiplied(std::uint32_t x, std::uint32_t count) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{x} * count, Completion::kFar));
}

}  // namespace

/// From rules whose ends are known to those that call them.
void Completion::find_rules() {
  have_rules_ = true;
  rules_.assign(store_.rules(), kFar);
  for (int round = 0; round < kMostRounds; ++round) {
    bool changed = false;
    known_.clear();
    for (std::uint32_t rule = 0; rule < rules_.size(); ++rule) {
      const std::uint32_t least = of(store_.rule_body(rule));
      changed |= least < rules_[rule];
      rules_[rule] = std::min(rules_[rule], least);
    }
    if (!changed) break;
  }
  known_.clear();
}

std::uint32_t Completion::of(Id id) {
  if (!have_rules_) find_rules();
  if (const auto it = known_.find(id); it != known_.end()) return it->second;
  const std::uint32_t least = store_.nullable(id) ? 0 : compute(id);
  known_.emplace(id, least);
  return least;
}

std::uint32_t Completion::compute(Id id) {
  const Node node = store_.node(id);
  switch (node.kind) {
    case Kind::never:
      return kFar;
    case Kind::empty:
      return 0;
    case Kind::bytes:
    case Kind::special:
    case Kind::not_special:
      return 1;
    case Kind::concat: {
      std::uint32_t least = 0;
      for (const Id part : store_.parts_of(id)) least = plus(least, of(part));
      return least;
    }
    case Kind::choice: {
      const auto list = store_.children(node);
      const std::vector<Id> children(list.begin(), list.end());
      std::uint32_t least = kFar;
      for (const Id child : children) least = std::min(least, of(child));
      return least;
    }
    case Kind::repeat:
      return multiplied(of(node.a), node.low);
    case Kind::lexeme:
      return of(node.a);
    case Kind::rule:
      return rules_[node.a];
    case Kind::until:
      return of_until(node);
    case Kind::members:
      return of_members(node);
    case Kind::both:
    case Kind::complement:
    case Kind::modulo:
      return search(id);
  }
  return kFar;
}

/// Breadth first, to the nearest state that may end.
std::uint32_t Completion::search(Id start) {
  std::vector<Id> now{start}, next;
  std::unordered_set<Id> seen{start};
  std::size_t steps = 0;
  for (std::uint32_t length = 1; !now.empty(); ++length) {
    next.clear();
    for (const Id id : now) {
      for (Store::Symbol symbol = 0; symbol < store_.byte_symbols(); ++symbol) {
        if (++steps > kMostSteps) return kFar;
        const Id to = store_.next(id, symbol);
        if (to == kNever || !seen.insert(to).second) continue;
        if (store_.nullable(to)) return length;
        next.push_back(to);
      }
    }
    now.swap(next);
  }
  return kFar;
}

std::uint32_t Completion::of_until(const Node& node) {
  const Tags& tags = store_.tags(node);
  std::vector<std::uint32_t> least(tags.places.size(), kFar);
  std::uint32_t by_special = kFar;
  for (const auto& [name, then] : tags.special) by_special = std::min(by_special, plus(1, of(then)));
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = least.size(); i-- > 0;) {
      std::uint32_t best = std::min(by_special, plus(1, least[0]));
      for (const auto& [byte, to] : tags.places[i].next) {
        const std::int32_t found = tags.places[to].found;
        best =
            std::min(best, plus(1, found >= 0 ? of(tags.then[static_cast<std::size_t>(found)]) : least[to]));
      }
      changed |= best < least[i];
      least[i] = std::min(least[i], best);
    }
  }
  return least[node.b];
}

std::uint32_t Completion::of_members(const Node& node) {
  const Members& members = store_.members(node);
  const Store::MembersPlace place = store_.members_place(node);
  const std::uint32_t comma = of(members.comma), close = of(members.close), others = of(members.others);
  const auto came = [&](std::size_t i) { return ((place.seen[i / 64] >> (i % 64)) & 1) != 0; };
  // After entry `skip` has come too: the entries that must come, and the cheapest others up to `least`.
  const auto rest = [&](std::size_t skip, std::uint32_t count) {
    std::uint32_t total = 0;
    std::vector<std::uint32_t> optional;
    for (std::size_t i = 0; i < members.entries.size(); ++i) {
      if (came(i) || i == skip) continue;
      const Members::Entry& entry = members.entries[i];
      const std::uint32_t cost = plus(static_cast<std::uint32_t>(entry.key.size()), of(entry.rest));
      if (!entry.required) {
        optional.push_back(cost);
        continue;
      }
      total = plus(total, plus(cost, count++ > 0 ? comma : 0));
    }
    std::sort(optional.begin(), optional.end());
    for (std::size_t i = 0; count < members.least; ++i) {
      const std::uint32_t cost = std::min(i < optional.size() ? optional[i] : kFar, others);
      if (cost >= kFar) return kFar;
      total = plus(total, plus(cost, count++ > 0 ? comma : 0));
    }
    return plus(total, count > 0 ? close : 0);
  };
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  if (place.between) return rest(kNone, node.low);
  std::uint32_t missing = 0;
  for (std::size_t i = 0; i < members.entries.size(); ++i) missing += members.entries[i].required && !came(i);
  const bool free = members.most == kUnbounded || node.low + missing < members.most;
  std::uint32_t least = kFar;
  if (place.depth == 0 && free) least = plus(others, rest(kNone, node.low + 1));
  for (std::size_t i = place.begin; i < place.end; ++i) {
    const Members::Entry& entry = members.entries[i];
    if (came(i) || !(free || entry.required)) continue;
    const std::uint32_t key = static_cast<std::uint32_t>(entry.key.size()) - place.depth;
    least = std::min(least, plus(plus(key, of(entry.rest)), rest(i, node.low + 1)));
  }
  return least;
}

}  // namespace quipu::text::grammar

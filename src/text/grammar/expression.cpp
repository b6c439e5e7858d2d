// Storing and simplifying expressions.
#include "text/grammar/expression.hpp"

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "core/error.hpp"

namespace quipu::text::grammar {

namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccd;
  return h ^ (h >> 32);
}

/// Common beginnings are looked for so deep; longer ones are found when the text gets there.
constexpr int kMaxFactoring = 40;

/// Among more ways than these, such that differ in a count alone are not looked for.
constexpr std::size_t kMaxCounts = 200;

}  // namespace

Store::Store() {
  static std::atomic<std::uint64_t> stores{0};
  serial_ = ++stores;
  intern(Node{});
  Node empty;
  empty.kind = Kind::empty;
  empty.nullable = true;
  empty.textual = true;
  intern(empty);
}

std::size_t Store::memory() const {
  return nodes_.size() * (sizeof(Node) + 24) + lists_.size() * 4 + rows_.size() * kRowBlock * symbols_ * 4 +
         sets_.size() * 64 + seen_.size() * 128;
}

// ---- one copy of each ----

std::uint64_t Store::hash(const Node& node, std::span<const Id> list) const {
  std::uint64_t h = mix(static_cast<std::uint64_t>(node.kind), node.low);
  h = mix(h, node.high);
  if (!is_list_kind(node.kind)) return mix(mix(h, node.a), node.b);
  for (const Id id : list) h = mix(h, id);
  return h;
}

bool Store::same(const Node& x, const Node& node, std::span<const Id> list) const {
  if (x.kind != node.kind || x.low != node.low || x.high != node.high) return false;
  if (!is_list_kind(node.kind)) return x.a == node.a && x.b == node.b;
  const auto other = children(x);
  return std::equal(other.begin(), other.end(), list.begin(), list.end());
}

void Store::Table::add(std::uint64_t hash, Id id) {
  Part& part = parts_[hash >> 61];
  const auto put = [&](Slot slot) {
    std::size_t at = slot.hash & (part.slots.size() - 1);
    while (part.slots[at].id != kNone) at = (at + 1) & (part.slots.size() - 1);
    part.slots[at] = slot;
  };
  if (part.used * 2 >= part.slots.size()) {
    std::vector<Slot> old(std::max<std::size_t>(64, part.slots.size() * 2));
    old.swap(part.slots);
    for (const Slot& slot : old)
      if (slot.id != kNone) put(slot);
  }
  put({static_cast<std::uint32_t>(hash), id});
  ++part.used;
}

Id Store::intern(const Node& node, std::span<const Id> list) {
  const std::uint64_t h = hash(node, list);
  const Id found = table_.find(h, [&](Id id) { return same(nodes_[id], node, list); });
  if (found != Table::kNone) return found;
  if (nodes_.size() >= max_nodes)
    fail(ErrorCode::unsupported, "the grammar needs more than {} states", max_nodes);
  if (node.depth > kMaxDepth)
    fail(ErrorCode::unsupported, "the grammar nests deeper than {} levels", kMaxDepth);
  const Id id = static_cast<Id>(nodes_.size());
  table_.add(h, id);
  nodes_.push_back(node);
  if (is_list_kind(node.kind)) {
    nodes_.back().a = static_cast<Id>(lists_.size());
    nodes_.back().b = static_cast<Id>(list.size());
    lists_.insert(lists_.end(), list.begin(), list.end());
  }
  return id;
}

std::uint16_t Store::depth_above(std::span<const Id> children) const {
  std::uint16_t depth = 0;
  for (const Id id : children) depth = std::max(depth, nodes_[id].depth);
  return static_cast<std::uint16_t>(depth + 1);
}

std::uint32_t Store::set_index(const ByteSet& set) {
  std::uint64_t h = 0;
  for (const std::uint64_t word : set.words) h = mix(h, word);
  std::vector<std::uint32_t>& candidates = set_index_[h];
  for (const std::uint32_t index : candidates) {
    if (sets_[index] == set) return index;
  }
  const auto index = static_cast<std::uint32_t>(sets_.size());
  sets_.push_back(set);
  candidates.push_back(index);
  return index;
}

// ---- leaves ----

Id Store::bytes(const ByteSet& set) {
  if (set.empty()) return kNever;
  Node node;
  node.kind = Kind::bytes;
  node.a = set_index(set);
  node.textual = true;
  return intern(node);
}

Id Store::literal(std::string_view text) {
  Id id = kEmpty;
  for (std::size_t i = text.size(); i-- > 0;) id = concat(byte(static_cast<unsigned char>(text[i])), id);
  return id;
}

std::uint32_t Store::name_index(std::string_view name) {
  const auto it = std::find(specials_.begin(), specials_.end(), name);
  const auto index = static_cast<std::uint32_t>(it - specials_.begin());
  if (it == specials_.end()) specials_.emplace_back(name);
  return index;
}

Id Store::special(std::string_view name) {
  Node node;
  node.kind = Kind::special;
  node.a = name_index(name);
  return intern(node);
}

Id Store::not_special(std::string_view name) {
  Node node;
  node.kind = Kind::not_special;
  node.a = name_index(name);
  return intern(node);
}

Id Store::modulo(std::uint32_t divisor, std::uint32_t remainder) {
  Node node;
  node.kind = Kind::modulo;
  node.low = divisor;
  node.high = remainder;
  node.nullable = remainder == 0;
  node.textual = true;
  return intern(node);
}

Id Store::unit(Id body, bool wide, bool universal) {
  if (body <= kEmpty) return body;
  nodes_[body].unit = true;
  nodes_[body].wide |= wide;
  nodes_[body].universal |= universal;
  return body;
}

std::uint32_t Store::new_rule(std::string name) {
  rules_.push_back({std::move(name), kNever, false});
  return static_cast<std::uint32_t>(rules_.size() - 1);
}

Id Store::call(std::uint32_t rule) {
  Node node;
  node.kind = Kind::rule;
  node.a = rule;
  node.nullable = rules_[rule].nullable;
  node.depth = 1;
  return intern(node);
}

Id Store::until(Tags tags) {
  tags_.push_back(std::move(tags));
  return until_at(static_cast<std::uint32_t>(tags_.size() - 1), 0);
}

Id Store::until_at(std::uint32_t tags, std::uint32_t place) {
  Node node;
  node.kind = Kind::until;
  node.a = tags;
  node.b = place;
  node.nullable = tags_[tags].may_end;
  node.wide = true;
  return intern(node);
}

// ---- compositions ----

Id Store::concat(Id first, Id second) {
  if (first == kNever || second == kNever) return kNever;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  // To the right: a(bc), so that equal tails are one node. Loops, as chains may be long.
  std::vector<Id> parts;
  while (nodes_[first].kind == Kind::concat) {
    parts.push_back(nodes_[first].a);
    first = nodes_[first].b;
  }
  parts.push_back(first);
  for (std::size_t i = parts.size(); i-- > 0;) {
    const Node& x = nodes_[parts[i]];
    const Node& y = nodes_[second];
    Node node;
    node.kind = Kind::concat;
    node.a = parts[i];
    node.b = second;
    node.nullable = x.nullable && y.nullable;
    node.intersects = x.intersects || y.intersects;
    node.wide = x.wide || y.wide;
    node.textual = x.textual && y.textual;
    node.depth = std::max(static_cast<std::uint16_t>(x.depth + 1), y.depth);
    second = intern(node);
  }
  return second;
}

Id Store::concat(std::initializer_list<Id> parts) {
  Id id = kEmpty;
  for (auto it = std::rbegin(parts); it != std::rend(parts); ++it) id = concat(*it, id);
  return id;
}

Id Store::list_node(Kind kind, const std::vector<Id>& children) {
  Node node;
  node.kind = kind;
  node.nullable = kind == Kind::both;
  node.intersects = kind == Kind::both;
  node.textual = true;
  for (const Id id : children) {
    const Node& child = nodes_[id];
    node.nullable = kind == Kind::both ? node.nullable && child.nullable : node.nullable || child.nullable;
    node.intersects |= child.intersects;
    node.textual &= child.textual;
    node.wide |= child.wide;
  }
  node.depth = depth_above(children);
  return intern(node, children);
}

/// One node for all children that are single bytes.
Id Store::unite_bytes(std::vector<Id>& children) {
  ByteSet all;
  std::size_t kept = 0, found = 0;
  for (const Id id : children) {
    if (nodes_[id].kind == Kind::bytes) {
      all = all | set(nodes_[id]);
      ++found;
    } else {
      children[kept++] = id;
    }
  }
  children.resize(kept);
  return found == 0 ? kNever : bytes(all);
}

/// a·x | b·x becomes (a|b)·x for bytes a, b, and x·a | x·b becomes x·(a|b). True when something changed.
bool Store::factor(std::vector<Id>& children) {
  struct Part {
    Id key, other;
  };
  bool changed = false;
  for (const bool by_tail : {true, false}) {
    std::vector<Part> parts;
    std::vector<Id> rest;
    for (const Id id : children) {
      const Node& node = nodes_[id];
      const bool fits = node.kind == Kind::concat && (!by_tail || nodes_[node.a].kind == Kind::bytes);
      if (fits)
        parts.push_back(by_tail ? Part{node.b, node.a} : Part{node.a, node.b});
      else
        rest.push_back(id);
    }
    if (parts.size() < 2) continue;
    std::stable_sort(parts.begin(), parts.end(), [](const Part& x, const Part& y) { return x.key < y.key; });
    bool merged = false;
    for (std::size_t i = 0; i < parts.size();) {
      std::size_t j = i;
      std::vector<Id> others;
      for (; j < parts.size() && parts[j].key == parts[i].key; ++j) others.push_back(parts[j].other);
      merged |= others.size() > 1;
      const Id joined = others.size() == 1 ? others[0] : choice(std::move(others));
      rest.push_back(by_tail ? concat(joined, parts[i].key) : concat(parts[i].key, joined));
      i = j;
    }
    if (merged) {
      children = std::move(rest);
      changed = true;
    }
  }
  return changed;
}

/// x{1,4}·y | x{3,9}·y becomes x{1,9}·y: ways to read a text that differ in a count alone are one. True when
/// something changed.
bool Store::unite_counts(std::vector<Id>& children) {
  struct Part {
    Id body, rest;
    std::uint32_t low, high;
    std::size_t place;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < children.size(); ++i) {
    const Node& node = nodes_[children[i]];
    const Node& first = node.kind == Kind::concat ? nodes_[node.a] : node;
    if (first.kind == Kind::repeat)
      parts.push_back({first.a, node.kind == Kind::concat ? node.b : kEmpty, first.low, first.high, i});
  }
  if (parts.size() < 2 || parts.size() > kMaxCounts) return false;
  std::sort(parts.begin(), parts.end(), [](const Part& x, const Part& y) {
    return std::tie(x.body, x.rest, x.low) < std::tie(y.body, y.rest, y.low);
  });
  bool changed = false;
  for (std::size_t i = 0; i < parts.size();) {
    Part all = parts[i];
    std::size_t j = i + 1;
    for (; j < parts.size() && parts[j].body == all.body && parts[j].rest == all.rest; ++j) {
      if (all.high != kUnbounded && parts[j].low > all.high + 1) break;
      all.high = std::max(all.high, parts[j].high);
      children[parts[j].place] = kNever;
    }
    if (j > i + 1) {
      children[all.place] = concat(repeat(all.body, all.low, all.high), all.rest);
      changed = true;
    }
    i = j;
  }
  return changed;
}

Id Store::choice(std::vector<Id> children) {
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (nodes_[children[i]].kind != Kind::choice) continue;
    const auto inner = this->children(nodes_[children[i]]);
    const std::vector<Id> copy(inner.begin(), inner.end());
    children[i] = kNever;
    children.insert(children.end(), copy.begin(), copy.end());
  }
  const auto tidy = [&] {
    std::sort(children.begin(), children.end());
    children.erase(std::unique(children.begin(), children.end()), children.end());
    if (!children.empty() && children.front() == kNever) children.erase(children.begin());
  };
  tidy();
  if (children.size() <= 1) return children.empty() ? kNever : children.front();
  for (const Id id : children) {
    const Node& node = nodes_[id];
    if (node.kind == Kind::complement && node.a == kNever) return id;
    // Every text of the encoding: what else may come is among them.
    const bool every =
        node.kind == Kind::repeat && nodes_[node.a].universal && node.low == 0 && node.high == kUnbounded;
    if (every && std::all_of(children.begin(), children.end(), [&](Id x) { return nodes_[x].textual; }))
      return id;
  }
  if (const Id united = unite_bytes(children); united != kNever) children.push_back(united);
  if (children.size() > 1 && factoring_ < kMaxFactoring) {
    ++factoring_;
    const bool united = unite_counts(children);
    const bool changed = factor(children) || united;
    const Id factored = changed ? choice(std::move(children)) : kNever;
    --factoring_;
    if (changed) return factored;
  }
  tidy();
  if (children.size() == 1) return children.front();
  // x | nothing, with x nullable
  if (children.front() == kEmpty &&
      std::any_of(children.begin() + 1, children.end(), [&](Id id) { return nodes_[id].nullable; })) {
    children.erase(children.begin());
    if (children.size() == 1) return children.front();
  }
  return list_node(Kind::choice, children);
}

/// Any number of any characters, together with a number of certain characters.
bool Store::merge_repeats(std::vector<Id>& children) {
  for (std::size_t i = 0; i < children.size(); ++i) {
    const Node any = nodes_[children[i]];
    if (any.kind != Kind::repeat || !nodes_[any.a].universal) continue;
    for (std::size_t j = 0; j < children.size(); ++j) {
      const Node other = nodes_[children[j]];
      if (i == j || other.kind != Kind::repeat || !nodes_[other.a].unit) continue;
      const std::uint32_t low = std::max(any.low, other.low), high = std::min(any.high, other.high);
      const Id merged = low > high ? kNever : repeat(other.a, low, high);
      children[j] = merged;
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    const bool all = any.low == 0 && any.high == kUnbounded;
    const bool bounded = std::any_of(children.begin(), children.end(), [&](Id id) {
      return id != children[i] && nodes_[id].kind != Kind::complement;
    });
    if (all && bounded) {
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
  }
  return false;
}

Id Store::both(std::vector<Id> children) {
  for (std::size_t i = 0; i < children.size(); ++i) {
    const Node node = nodes_[children[i]];
    if (node.kind == Kind::never) return kNever;
    if (node.kind != Kind::both) continue;
    const auto inner = this->children(node);
    const std::vector<Id> copy(inner.begin(), inner.end());
    children[i] = copy.front();
    children.insert(children.end(), copy.begin() + 1, copy.end());
  }
  std::sort(children.begin(), children.end());
  children.erase(std::unique(children.begin(), children.end()), children.end());
  if (children.size() > 1)
    std::erase_if(children,
                  [&](Id id) { return nodes_[id].kind == Kind::complement && nodes_[id].a == kNever; });
  if (children.size() == 1) return children.front();
  if (children.front() == kEmpty) {  // and something else
    const bool all =
        std::all_of(children.begin(), children.end(), [&](Id id) { return nodes_[id].nullable; });
    return all ? kEmpty : kNever;
  }
  if (merge_repeats(children)) return both(std::move(children));
  // None of all texts of the encoding: nothing is left of an expression of such texts.
  const auto outside = [&](Id id) {
    if (nodes_[id].kind != Kind::complement) return false;
    const Node& body = nodes_[nodes_[id].a];
    return body.kind == Kind::repeat && nodes_[body.a].universal && body.low == 0 && body.high == kUnbounded;
  };
  const auto plain = [&](Id id) { return nodes_[id].kind != Kind::complement; };
  if (std::any_of(children.begin(), children.end(), outside) &&
      std::any_of(children.begin(), children.end(), plain))
    return kNever;
  return list_node(Kind::both, children);
}

Id Store::complement(Id body) {
  if (nodes_[body].kind == Kind::complement) return nodes_[body].a;
  Node node;
  node.kind = Kind::complement;
  node.a = body;
  node.nullable = !nodes_[body].nullable;
  node.intersects = true;
  node.wide = true;
  node.textual = nodes_[body].textual;
  node.depth = static_cast<std::uint16_t>(nodes_[body].depth + 1);
  return intern(node);
}

Id Store::repeat(Id body, std::uint32_t low, std::uint32_t high) {
  if (high == 0 || body == kEmpty) return kEmpty;
  if (body == kNever) return low == 0 ? kEmpty : kNever;
  if (low == 1 && high == 1) return body;
  Node inner = nodes_[body];
  if (inner.nullable) low = 0;  // fewer than `low` are filled up with empty ones
  if (inner.kind == Kind::repeat) {
    // (x*)* and (x*){m,n} are x*; (x?){0,n} is x{0,n}.
    if (inner.low == 0 && inner.high == kUnbounded) return body;
    if (inner.low <= 1 && high == kUnbounded && (low == 0 || inner.low == 1))
      return repeat(inner.a, std::min(inner.low, low), kUnbounded);
    if (inner.low == 0 && inner.high == 1) return repeat(inner.a, 0, high);
  }
  // (x|nothing){m,n} is x{0,n}.
  if (inner.kind == Kind::choice && lists_[inner.a] == kEmpty) {
    const auto list = children(inner);
    return repeat(choice(std::vector<Id>(list.begin() + 1, list.end())), 0, high);
  }
  Node node;
  node.kind = Kind::repeat;
  node.a = body;
  node.low = low;
  node.high = high;
  node.nullable = low == 0;
  node.intersects = inner.intersects;
  node.wide = inner.wide;
  node.textual = inner.textual;
  node.depth = static_cast<std::uint16_t>(inner.depth + 1);
  return intern(node);
}

Id Store::lexeme(Id body) {
  const Node inner = nodes_[body];
  if (body <= kEmpty || inner.kind == Kind::lexeme) return body;
  return inner.intersects && !alive(body) ? kNever : living_lexeme(body);
}

Id Store::living_lexeme(Id body) {
  const Node inner = nodes_[body];
  if (body <= kEmpty || inner.kind == Kind::lexeme) return body;
  Node node;
  node.kind = Kind::lexeme;
  node.a = body;
  node.nullable = inner.nullable;
  node.wide = inner.wide;
  node.textual = inner.textual;
  node.depth = static_cast<std::uint16_t>(inner.depth + 1);
  return intern(node);
}

std::vector<Id> Store::parts_of(Id id) const {
  std::vector<Id> parts;
  for (; nodes_[id].kind == Kind::concat; id = nodes_[id].b) parts.push_back(nodes_[id].a);
  parts.push_back(id);
  return parts;
}

}  // namespace quipu::text::grammar

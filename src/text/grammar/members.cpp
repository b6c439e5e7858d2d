// Entries in any order. A state is the set of those that came, their number as far as a limit needs it, and a
// place in the trie of their keys; states are made as the text gets to them, so that the many sets that are
// possible cost nothing.
#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "text/grammar/expression.hpp"

namespace quipu::text::grammar {

namespace {

constexpr std::uint32_t kBetween = 0, kRoot = 1;

}  // namespace

Id Store::members(Members members) {
  auto& entries = members.entries;
  std::sort(entries.begin(), entries.end(), [](const auto& x, const auto& y) { return x.key < y.key; });
  std::uint32_t required = 0;
  for (const Members::Entry& entry : entries) {
    if (!entry.required) continue;
    ++required;
    if (entry.rest == kNever) return kNever;
  }
  std::erase_if(entries, [](const Members::Entry& entry) { return entry.rest == kNever; });
  if (required > members.most || members.least > members.most) return kNever;
  if (members.others == kNever && members.least > entries.size()) return kNever;

  CompiledMembers compiled;
  auto& places = compiled.places;
  places.resize(2);
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    const std::string& key = entries[i].key;
    if (key.empty() || (i > 0 && key == entries[i - 1].key))
      fail(ErrorCode::internal, "the entries of a grammar have a key that is empty or not their own");
    std::uint32_t at = kRoot;
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      places[at].end = i + 1;
      // Keys are sorted: the last child is the only one that may be this one.
      if (places[at].next.empty() || places[at].next.back().first != byte) {
        places[at].next.emplace_back(byte, static_cast<std::uint32_t>(places.size()));
        const std::uint32_t depth = places[at].depth + 1;
        places.emplace_back();
        places.back().begin = i;
        places.back().depth = depth;
      }
      at = places[at].next.back().second;
    }
    places[at].end = i + 1;
    places[at].found = i;
  }
  compiled.members = std::move(members);
  members_.push_back(std::move(compiled));
  const auto index = static_cast<std::uint32_t>(members_.size() - 1);
  const std::size_t words = (members_[index].members.entries.size() + 63) / 64;
  return members_at(index, seen_index(index, std::vector<std::uint64_t>(words, 0)), 0, kBetween);
}

std::uint32_t Store::seen_index(std::uint32_t index, std::vector<std::uint64_t> words) {
  const auto [it, fresh] = seen_index_.emplace(std::pair(index, words), seen_.size());
  if (fresh) {
    Seen seen{std::move(words), 0};
    const auto& entries = members_[index].members.entries;
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].required && ((seen.words[i / 64] >> (i % 64)) & 1) == 0) ++seen.missing;
    seen_.push_back(std::move(seen));
  }
  return it->second;
}

Id Store::members_at(std::uint32_t index, std::uint32_t seen, std::uint32_t count, std::uint32_t place) {
  const Members& members = members_[index].members;
  Node node;
  node.kind = Kind::members;
  node.a = index;
  node.b = seen;
  node.low = std::min(count, members.most != kUnbounded ? members.most : std::max(members.least, 1u));
  node.high = place;
  node.nullable = place == kBetween && seen_[seen].missing == 0 && node.low >= members.least &&
                  (count == 0 || nodes_[members.close].nullable);
  node.depth = depth_above(std::array{members.others, members.comma, members.close});
  return intern(node);
}

Id Store::derive_members(const Node& node, Symbol symbol) {
  const std::uint32_t index = node.a, count = node.low, missing = seen_[node.b].missing;
  const Id others = members_[index].members.others;
  const std::uint32_t most = members_[index].members.most;
  const bool free = most == kUnbounded || count + missing < most;  // an entry more than those that must come
  std::vector<Id> parts;
  const auto add = [&](Id id) {
    if (const Id next = derive(id, symbol); next != kNever) parts.push_back(next);
  };
  if (node.high == kBetween) {
    const Id close = members_[index].members.close, comma = members_[index].members.comma;
    if (count > 0 && missing == 0 && count >= members_[index].members.least) add(close);
    const bool declared = [&] {
      const auto& words = seen_[node.b].words;
      std::size_t came = 0;
      for (const std::uint64_t word : words) came += static_cast<std::size_t>(__builtin_popcountll(word));
      return came < members_[index].members.entries.size();
    }();
    if (missing > 0 || (free && (declared || others != kNever))) {
      const Id root = members_at(index, node.b, count, kRoot);
      add(count > 0 ? concat(comma, root) : root);
    }
    return choice(std::move(parts));
  }
  if (node.high == kRoot && others != kNever && free)
    add(concat(others, members_at(index, node.b, count + 1, kBetween)));
  if (symbol >= classes_) return choice(std::move(parts));
  const unsigned char byte = representative_[symbol];
  const auto& next = members_[index].places[node.high].next;
  const auto it = std::lower_bound(next.begin(), next.end(), std::pair(byte, std::uint32_t{0}));
  if (it == next.end() || it->first != byte) return choice(std::move(parts));
  const CompiledMembers::Place& place = members_[index].places[it->second];
  const auto& entries = members_[index].members.entries;
  const auto may_come = [&](std::uint32_t i) {
    ++work_;
    return ((seen_[node.b].words[i / 64] >> (i % 64)) & 1) == 0 && (free || entries[i].required);
  };
  bool below = false;
  for (std::uint32_t i = place.begin; i < place.end && !below; ++i) below = i != place.found && may_come(i);
  const std::uint32_t found = place.found;
  if (below) parts.push_back(members_at(index, node.b, count, it->second));
  if (found != kUnknown && may_come(found)) {
    std::vector<std::uint64_t> words = seen_[node.b].words;
    words[found / 64] |= std::uint64_t{1} << (found % 64);
    const Id rest = entries[found].rest;
    parts.push_back(
        concat(rest, members_at(index, seen_index(index, std::move(words)), count + 1, kBetween)));
  }
  return choice(std::move(parts));
}

Store::MembersPlace Store::members_place(const Node& node) const {
  const CompiledMembers::Place& place = members_[node.a].places[node.high];
  return {seen_[node.b].words, place.begin, place.end, place.depth, node.high == kBetween};
}

Id Store::import_members(const Store& from, const Node& node, const std::vector<Id>& map) {
  const auto [it, fresh] = members_map_.emplace(std::pair(from.serial_, node.a), 0);
  if (fresh) {
    CompiledMembers compiled = from.members_[node.a];
    for (Members::Entry& entry : compiled.members.entries) entry.rest = map[entry.rest];
    for (Id* part : {&compiled.members.others, &compiled.members.comma, &compiled.members.close})
      *part = map[*part];
    members_.push_back(std::move(compiled));
    it->second = static_cast<std::uint32_t>(members_.size() - 1);
  }
  return members_at(it->second, seen_index(it->second, from.seen_[node.b].words), node.low, node.high);
}

}  // namespace quipu::text::grammar

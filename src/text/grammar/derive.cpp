// The automaton: derivatives, and whether anything is left of a language.
#include <algorithm>
#include <bit>
#include <unordered_set>

#include "core/error.hpp"
#include "text/grammar/expression.hpp"

namespace quipu::text::grammar {

void Store::freeze(std::vector<NamedToken> names) {
  // Bytes that are in the same sets behave alike: each set divides the groups that it has a part of.
  std::array<std::uint32_t, 256> group{}, size{}, inside{}, part{};
  size[0] = 256;
  std::uint32_t groups = 1;
  const auto split = [&](const ByteSet& set) {
    std::array<unsigned char, 256> members;
    std::size_t count = 0;
    for (std::size_t i = 0; i < set.words.size(); ++i)
      for (std::uint64_t word = set.words[i]; word != 0; word &= word - 1)
        members[count++] =
            static_cast<unsigned char>(i * 64 + static_cast<std::size_t>(std::countr_zero(word)));
    for (std::size_t i = 0; i < count; ++i) ++inside[group[members[i]]];
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t whole = group[members[i]];
      if (inside[whole] == 0 || inside[whole] == size[whole]) continue;
      part[whole] = groups;
      size[groups++] = inside[whole];
      size[whole] -= inside[whole];
      inside[whole] = 0;  // divided; its members move below
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t& own = group[members[i]];
      if (part[own] != 0) own = part[own];
    }
    part.fill(0);
    inside.fill(0);
  };
  for (const ByteSet& set : sets_) {
    if (groups == 256) break;
    split(set);
  }
  bool digits = false;
  bool excludes = false;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    digits |= nodes_[i].kind == Kind::modulo;
    excludes |= nodes_[i].kind == Kind::not_special;
    nodes_[i].life = Life::unknown;
  }
  if (digits)
    for (const unsigned b : {'.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'})
      split(ByteSet::one(static_cast<unsigned char>(b)));
  for (const Tags& tags : tags_)
    for (const Tags::Place& place : tags.places)
      for (const auto& [byte, next] : place.next) split(ByteSet::one(byte));
  ByteSet keys;
  for (const CompiledMembers& members : members_)
    for (const CompiledMembers::Place& place : members.places)
      for (const auto& [byte, next] : place.next) keys.add(byte);
  for (unsigned b = 0; b < 256; ++b)
    if (keys.has(b)) split(ByteSet::one(static_cast<unsigned char>(b)));
  // Numbered by their first bytes.
  part.fill(kUnknown);
  std::uint32_t next = 0;
  for (unsigned b = 0; b < 256; ++b) {
    if (part[group[b]] == kUnknown) part[group[b]] = next++;
    class_of_[b] = part[group[b]];
  }
  classes_ = groups;
  representative_.assign(groups, 0);
  for (unsigned b = 256; b-- > 0;) representative_[class_of_[b]] = static_cast<unsigned char>(b);
  symbols_ = classes_ + static_cast<Symbol>(specials_.size()) + 2;
  names_ = std::move(names);
  while (names_.size() < specials_.size())
    names_.push_back({.same_as = static_cast<std::uint32_t>(names_.size())});
  reads_text_tokens_ =
      excludes || std::any_of(names_.begin(), names_.end(), [](const NamedToken& name) { return name.text; });
  rows_.clear();
  row_count_ = 0;
  row_.clear();
}

bool Store::is_text(Symbol symbol) const {
  if (symbol < classes_ || symbol == other_special()) return false;
  return symbol == other_text() || names_[symbol - classes_].text;
}

bool Store::is_end(Symbol symbol) const {
  return symbol >= classes_ && symbol < other_special() && names_[symbol - classes_].end;
}

Id Store::derive(Id id, Symbol symbol) {
  const Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::never:
    case Kind::empty:
      return kNever;
    case Kind::bytes:
      return symbol < classes_ && sets_[node.a].has(representative_[symbol]) ? kEmpty : kNever;
    case Kind::special:
      return symbol == special_symbol(node.a) ? kEmpty : kNever;
    case Kind::not_special:
      return symbol >= classes_ && symbol != special_symbol(node.a) && !is_end(symbol) ? kEmpty : kNever;
    case Kind::concat:
      if (const Node& first = nodes_[node.a]; first.kind == Kind::bytes)
        return symbol < classes_ && sets_[first.a].has(representative_[symbol]) ? node.b : kNever;
      break;
    default:
      break;
  }
  if (row_.size() <= id) row_.resize(std::max(nodes_.size(), row_.size() * 2), nullptr);
  if (row_[id] == nullptr) row_[id] = new_row();
  Id& slot = row_[id][symbol];
  if (slot == kUnknown) slot = compute(id, symbol);
  return slot;
}

Id* Store::new_row() {
  if (row_count_ % kRowBlock == 0) {
    const std::size_t size = kRowBlock * symbols_;
    rows_.emplace_back(new Id[size]);
    std::fill_n(rows_.back().get(), size, kUnknown);
  }
  return rows_.back().get() + row_count_++ % kRowBlock * symbols_;
}

Id Store::derive_concat(Id id, Symbol symbol) {
  // A loop over the chain, as long as what was passed may be empty.
  std::vector<Id> parts;
  while (true) {
    ++work_;
    const Node node = nodes_[id];
    if (node.kind != Kind::concat) {
      if (const Id rest = derive(id, symbol); rest != kNever) parts.push_back(rest);
      break;
    }
    if (const Id first = derive(node.a, symbol); first != kNever) parts.push_back(concat(first, node.b));
    if (!nodes_[node.a].nullable) break;
    id = node.b;
  }
  return choice(std::move(parts));
}

Id Store::derive_until(const Node& node, Symbol symbol) {
  const Tags& tags = tags_[node.a];
  if (symbol >= classes_) {
    for (const auto& [name, then] : tags.special) {
      if (symbol == special_symbol(name) && (tags.otherwise == kNever || node.b == 0)) return then;
    }
    // What writes text is read by its bytes, and what ends the generation is no text.
    if (is_text(symbol) || is_end(symbol)) return kNever;
    return tags.otherwise != kNever ? derive(tags.otherwise, symbol) : until_at(node.a, 0);
  }
  const unsigned char byte = representative_[symbol];
  const auto step = [&](std::uint32_t place) {
    const auto& next = tags.places[place].next;
    const auto it = std::lower_bound(next.begin(), next.end(), std::pair(byte, std::uint32_t{0}));
    return it != next.end() && it->first == byte ? it->second : 0;
  };
  const std::uint32_t place = step(node.b);
  if (place == 0 && tags.otherwise != kNever) return derive(tags.otherwise, symbol);
  const std::int32_t found = tags.places[place].found;
  return found >= 0 ? tags.then[static_cast<std::size_t>(found)] : until_at(node.a, place);
}

Id Store::compute(Id id, Symbol symbol) {
  const Node node = nodes_[id];
  work_ += is_list_kind(node.kind) ? node.b : 1;
  if (work_ > max_work) fail(ErrorCode::unsupported, "the grammar reads this text in too many ways at once");
  switch (node.kind) {
    case Kind::concat:
      return derive_concat(id, symbol);
    case Kind::choice: {
      std::vector<Id> parts;
      for (std::uint32_t i = 0; i < node.b; ++i) {
        const Id part = derive(lists_[node.a + i], symbol);
        if (part != kNever) parts.push_back(part);
      }
      return choice(std::move(parts));
    }
    case Kind::both: {
      std::vector<Id> parts;
      for (std::uint32_t i = 0; i < node.b; ++i) {
        const Id part = derive(lists_[node.a + i], symbol);
        if (part == kNever) return kNever;
        parts.push_back(part);
      }
      return both(std::move(parts));
    }
    case Kind::complement:
      return complement(derive(node.a, symbol));
    case Kind::repeat: {
      const Id first = derive(node.a, symbol);
      if (first == kNever) return kNever;
      const std::uint32_t high = node.high == kUnbounded ? kUnbounded : node.high - 1;
      return concat(first, repeat(node.a, node.low > 0 ? node.low - 1 : 0, high));
    }
    case Kind::lexeme:
      // No control token is part of a lexeme (and a complement must not let one in).
      return symbol < classes_ ? lexeme(derive(node.a, symbol)) : kNever;
    case Kind::rule:
      return derive(rules_[node.a].body, symbol);
    case Kind::modulo: {
      if (symbol >= classes_) return kNever;
      const unsigned char byte = representative_[symbol];
      if (byte == '.') return id;
      if (byte < '0' || byte > '9') return kNever;
      const std::uint64_t value = std::uint64_t{node.high} * 10 + (byte - '0');
      return modulo(node.low, static_cast<std::uint32_t>(value % node.low));
    }
    case Kind::until:
      return derive_until(node, symbol);
    case Kind::members:
      return derive_members(node, symbol);
    default:
      return kNever;
  }
}

Life Store::known_life(Id id) const {
  const Node& node = nodes_[id];
  if (id == kNever) return Life::dead;
  if (node.nullable || !node.intersects) return Life::alive;
  return node.life;
}

bool Store::alive(Id start) {
  if (!nodes_[start].intersects) return start != kNever;
  if (!frozen()) {
    // Only a finished store has derivatives: search in a copy.
    Store copy;
    copy.max_search = max_search;
    std::vector<Id> map(size(), kUnknown);
    const Id id = copy.import(*this, start, map);
    copy.freeze();
    return copy.alive(id);
  }
  if (const Life life = known_life(start); life != Life::unknown) return life == Life::alive;
  // Depth first to any text; what leads to it is alive too. When there is none, all that was seen is dead.
  // Each depth begins with another symbol: with the same one, a run of white space that may be thousands long
  // would be gone through to its end.
  struct Frame {
    Id id;
    Symbol tried;
  };
  std::vector<Frame> path;
  std::vector<Id> seen;
  std::unordered_set<Id> entered;
  std::uint64_t steps = 0;
  const auto enter = [&](Id id) {
    if (!entered.insert(id).second) return;
    seen.push_back(id);
    path.push_back({id, 0});
  };
  enter(start);
  while (!path.empty()) {
    if (path.back().tried == classes_) {
      path.pop_back();
      continue;
    }
    const auto begin = static_cast<Symbol>(path.size() * 0x9e3779b97f4a7c15 >> 40);
    const Symbol symbol = (begin + path.back().tried++) % classes_;
    if (++steps > max_search)
      fail(ErrorCode::unsupported,
           "the limits on one text are too many to find out whether they can be met together");
    const Id next = derive(path.back().id, symbol);
    const Life life = known_life(next);
    if (life == Life::alive) {
      for (const Frame& frame : path) nodes_[frame.id].life = Life::alive;
      return true;
    }
    if (life == Life::unknown) enter(next);
  }
  for (const Id id : seen) nodes_[id].life = Life::dead;
  return false;
}

Id Store::import(const Store& from, Id id, std::vector<Id>& map) {
  // Children first, without recursion. Continuations of tags are carried over with them.
  std::vector<Id> work{id};
  const auto need = [&](Id child) {
    if (map[child] == kUnknown) work.push_back(child);
    return map[child] != kUnknown;
  };
  while (!work.empty()) {
    const Id current = work.back();
    if (map[current] != kUnknown) {
      work.pop_back();
      continue;
    }
    const Node& node = from.nodes_[current];
    bool ready = true;
    switch (node.kind) {
      case Kind::concat:
        ready = need(node.a) & static_cast<int>(need(node.b));
        break;
      case Kind::choice:
      case Kind::both:
        for (const Id child : from.children(node)) ready &= need(child);
        break;
      case Kind::complement:
      case Kind::repeat:
      case Kind::lexeme:
        ready = need(node.a);
        break;
      case Kind::until:
        for (const Id then : from.tags_[node.a].then) ready &= need(then);
        for (const auto& [name, then] : from.tags_[node.a].special) ready &= need(then);
        for (const Id forced : from.tags_[node.a].forced) ready &= need(forced);
        ready &= need(from.tags_[node.a].otherwise);
        break;
      case Kind::members: {
        const Members& members = from.members(node);
        for (const Members::Entry& entry : members.entries) ready &= need(entry.rest);
        for (const Id part : {members.others, members.comma, members.close}) ready &= need(part);
        break;
      }
      default:
        break;
    }
    if (!ready) continue;
    work.pop_back();
    Id made = kNever;
    std::vector<Id> list;
    if (is_list_kind(node.kind))
      for (const Id child : from.children(node)) list.push_back(map[child]);
    switch (node.kind) {
      case Kind::never:
      case Kind::empty:
        made = current;
        break;
      case Kind::bytes:
        made = bytes(from.sets_[node.a]);
        break;
      case Kind::special:
        made = special(from.specials_[node.a]);
        break;
      case Kind::not_special:
        made = not_special(from.specials_[node.a]);
        break;
      case Kind::concat:
        made = concat(map[node.a], map[node.b]);
        break;
      case Kind::choice:
        made = choice(std::move(list));
        break;
      case Kind::both:
        made = both(std::move(list));
        break;
      case Kind::complement:
        made = complement(map[node.a]);
        break;
      case Kind::repeat:
        made = repeat(map[node.a], node.low, node.high);
        break;
      case Kind::lexeme:
        made = living_lexeme(map[node.a]);
        break;
      case Kind::rule:
        made = call(node.a);
        break;
      case Kind::modulo:
        made = modulo(node.low, node.high);
        break;
      case Kind::until: {
        const auto [it, fresh] = tags_map_.emplace(std::pair(from.serial_, node.a), 0);
        if (fresh) {
          Tags tags = from.tags_[node.a];
          for (Id& then : tags.then) then = map[then];
          for (Id& forced : tags.forced) forced = map[forced];
          tags.otherwise = map[tags.otherwise];
          for (auto& [name, then] : tags.special) {
            then = map[then];
            name = name_index(from.specials_[name]);
          }
          tags_.push_back(std::move(tags));
          it->second = static_cast<std::uint32_t>(tags_.size() - 1);
        }
        made = until_at(it->second, node.b);
        break;
      }
      case Kind::members:
        made = import_members(from, node, map);
        break;
    }
    if (node.unit) unit(made, node.wide, node.universal);
    map[current] = made;
  }
  return map[id];
}

Id Store::import_grammar(const Store& from, Id start, std::vector<Id>& map) {
  for (const Rule& rule : from.rules_) {
    new_rule(rule.name);
    rules_.back().nullable = rule.nullable;
  }
  for (const std::string& name : from.specials_) name_index(name);
  for (std::uint32_t rule = 0; rule < from.rules(); ++rule)
    set_rule(rule, import(from, from.rule_body(rule), map));
  return import(from, start, map);
}

}  // namespace quipu::text::grammar

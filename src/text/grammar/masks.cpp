#include "text/grammar/masks.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace quipu::text::grammar {

namespace {

/// Parts of the trie this large are passed over where that can be.
constexpr std::uint32_t kWorthIt = 8;

constexpr std::size_t kMaxMaskBytes = std::size_t{64} << 20;

void unite(Bits& out, const Bits& other) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] |= other[i];
}

}  // namespace

// ---- masks ----

Masks::Masks(Store& store, const TokenTable& table)
    : store_(store),
      table_(table),
      completion_(store),
      path_(table.max_depth() + 1),
      path2_(table.max_depth() + 1) {
  for (std::size_t i = 0; i < store.specials().size(); ++i) {
    if (const auto token = table.find(store.specials()[i])) named_.emplace(*token, store.special_symbol(i));
  }
}

std::optional<Store::Symbol> Masks::named(Token token) const {
  const auto it = named_.find(token);
  return it == named_.end() ? std::nullopt : std::optional(it->second);
}

/// Whether all bytes of some kinds lead from a state to itself. Asks for no more kinds than it must: where
/// characters are counted, each derivative is a state more.
bool Masks::stays(Id state, std::uint16_t kinds) {
  traits_.grow(store_.size());
  if ((kinds & traits_[state].leave) != 0) return false;
  if (kind_symbols_.empty()) {
    kind_symbols_.resize(TokenTable::kByteKinds);
    for (unsigned b = 0; b < 256; ++b) {
      auto& symbols = kind_symbols_[TokenTable::byte_kind(static_cast<unsigned char>(b))];
      const Store::Symbol symbol = store_.symbol(static_cast<unsigned char>(b));
      if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) symbols.push_back(symbol);
    }
  }
  for (unsigned open = kinds & ~unsigned{traits_[state].stay}; open != 0; open &= open - 1) {
    const auto kind = static_cast<unsigned>(std::countr_zero(open));
    const auto& symbols = kind_symbols_[kind];
    const bool all = std::all_of(symbols.begin(), symbols.end(),
                                 [&](Store::Symbol symbol) { return store_.next(state, symbol) == state; });
    auto& found = all ? traits_[state].stay : traits_[state].leave;
    found = static_cast<std::uint16_t>(found | (1u << kind));
    if (!all) return false;
  }
  return true;
}

/// See any_characters.
bool Masks::takes_any(Id state) {
  traits_.grow(store_.size());
  if (!traits_[state].any) traits_[state].any = any_characters(state) != kNever;
  return *traits_[state].any;
}

/// Visits the trie below `from` as far as the text can go on: visit(node, state), which returns whether to go
/// on below.
template <class F>
void Masks::walk(Id start, std::uint32_t from, F&& visit) {
  const auto& nodes = table_.nodes();
  const std::uint32_t end = nodes[from].end;
  path_[nodes[from].depth] = start;
  for (std::uint32_t i = from + 1; i < end;) {
    const TokenTable::TrieNode node = nodes[i];
    const Id state = store_.next(path_[node.depth - 1], store_.symbol(node.byte));
    if (state == kNever || !visit(i, state)) {
      i = node.end;
      continue;
    }
    path_[node.depth] = state;
    ++i;
  }
}

std::shared_ptr<const Bits> Masks::of(Id state) {
  const auto it = masks_.find(state);
  if (it != masks_.end()) return it->second;
  auto bits = std::make_shared<Bits>(table_.words(), 0);
  add(state, *bits);
  add_tokens(state, *bits);
  const std::size_t bytes = table_.words() * 8 + 64;
  if (bytes_ + bytes > kMaxMaskBytes) {
    masks_.clear();
    prefixes_.clear();
    traits_.clear();
    completion_.forget();
    bytes_ = 0;
  }
  bytes_ += bytes;
  masks_.emplace(state, bits);
  return bits;
}

std::shared_ptr<const Bits> Masks::closing(Id state) {
  auto bits = std::make_shared<Bits>(table_.words(), 0);
  if (store_.nullable(state)) {
    for (const Token token : table_.ends()) set_bit(*bits, static_cast<std::size_t>(token));
    return bits;
  }
  const std::uint32_t far = completion_.of(state);
  std::vector<std::uint32_t> places;
  std::uint16_t longest = 0;
  walk(state, 0, [&](std::uint32_t place, Id next) {
    const TokenTable::TrieNode& node = table_.nodes()[place];
    if (completion_.of(next) + node.depth > far) return false;
    if (node.token) {
      places.push_back(place);
      longest = std::max(longest, node.depth);
    }
    return true;
  });
  // Not by small steps: tokens are what runs out.
  for (const std::uint32_t place : places)
    if (table_.nodes()[place].depth * 2 >= longest)
      table_.for_each_token(place, [&](std::size_t token) { set_bit(*bits, token); });
  for (const auto& [token, symbol] : named_)
    if (completion_.of(store_.next(state, symbol)) < far && table_.is_used(token))
      set_bit(*bits, static_cast<std::size_t>(token));
  if (store_.reads_text_tokens() && completion_.of(store_.next(state, store_.other_text())) < far)
    unite(*bits, unnamed_texts());
  return bits;
}

const Bits& Masks::unnamed_texts() {
  if (!unnamed_texts_.empty()) return unnamed_texts_;
  unnamed_texts_ = table_.texts();
  for (const auto& [token, symbol] : named_) clear_bit(unnamed_texts_, static_cast<std::size_t>(token));
  return unnamed_texts_;
}

/// The tokens that are read as wholes.
void Masks::add_tokens(Id state, Bits& out) {
  if (store_.nullable(state))
    for (const Token token : table_.ends()) set_bit(out, static_cast<std::size_t>(token));
  for (const auto& [token, symbol] : named_)
    if (store_.next(state, symbol) != kNever && table_.is_used(token))
      set_bit(out, static_cast<std::size_t>(token));
  if (store_.reads_text_tokens() && store_.next(state, store_.other_text()) != kNever)
    unite(out, unnamed_texts());
  if (store_.next(state, store_.other_special()) == kNever) return;
  for (const Token token : table_.controls())
    if (!named_.contains(token)) set_bit(out, static_cast<std::size_t>(token));
}

/// Whether most tokens may come at once: then what is known about the first part is used instead of a walk.
bool Masks::starts_wide(Id id) const {
  const Node& node = store_.node(id);
  if (!node.wide) return false;
  switch (node.kind) {
    case Kind::lexeme:
    case Kind::until:
      return true;
    case Kind::concat:
      return starts_wide(node.a);
    case Kind::choice: {
      const auto list = store_.children(node);
      return std::any_of(list.begin(), list.end(), [&](Id child) { return starts_wide(child); });
    }
    default:
      return false;
  }
}

/// The children of a choice: those that start wide; the others become one.
std::vector<Id> Masks::split(const Node& choice, Id& narrow) {
  std::vector<Id> wide, others;
  for (const Id child : store_.children(choice)) (starts_wide(child) ? wide : others).push_back(child);
  narrow = store_.choice(std::move(others));
  return wide;
}

void Masks::add(Id state, Bits& out) {
  const auto mark = [&](std::uint32_t place, Id) {
    if (table_.nodes()[place].token)
      table_.for_each_token(place, [&](std::size_t token) { set_bit(out, token); });
    return true;
  };
  if (!starts_wide(state)) return walk(state, 0, mark);
  const Node node = store_.node(state);
  if (node.kind == Kind::choice) {
    Id narrow = kNever;
    for (const Id child : split(node, narrow)) add(child, out);
    walk(narrow, 0, mark);
    return;
  }
  if (node.kind != Kind::concat) return unite(out, prefix(state)->inside);
  const std::shared_ptr<const Prefix> first = prefix(node.a);
  unite(out, first->inside);
  for (const std::uint32_t exit : first->exits) walk(node.b, exit, mark);
  if (store_.nullable(node.a)) add(node.b, out);
}

// ---- prefixes ----

std::shared_ptr<const Prefix> Masks::prefix(Id id) {
  const auto it = prefixes_.find(id);
  if (it != prefixes_.end()) return it->second;
  std::shared_ptr<const Prefix> made = make_prefix(id);
  bytes_ += made->inside.size() * 8 + made->exits.size() * 4;
  prefixes_.emplace(id, made);
  return made;
}

std::shared_ptr<const Prefix> Masks::make_prefix(Id id) {
  if (!starts_wide(id)) return walked_prefix(id);
  const Node node = store_.node(id);
  if (node.kind == Kind::choice || node.kind == Kind::concat) return joined_prefix(node);
  if (node.kind != Kind::lexeme || !node.wide) return walked_prefix(id);
  Id repeat = 0, rest = 0;
  if (run_parts(id, repeat, rest)) {
    if (const auto table = run_table(repeat, rest))
      return from_run(*table, store_.node(repeat).low, store_.node(repeat).high);
  }
  if (const Id simpler = without_far_limit(id); simpler != id) return prefix(simpler);
  const Fingerprint key = fingerprint(id);
  if (auto known = table_.cache().find_prefix(key)) return known;
  const Id simpler = reference(id);
  std::shared_ptr<const Prefix> made = simpler != kNever ? from_reference(id, simpler) : walked_prefix(id);
  table_.cache().add_prefix(key, made, made->inside.size() * 8 + made->exits.size() * 4);
  return made;
}

/// Of a choice or a concatenation, from those of its parts.
std::shared_ptr<const Prefix> Masks::joined_prefix(const Node& node) {
  auto made = std::make_shared<Prefix>();
  made->inside.assign(table_.words(), 0);
  const auto take = [&](Id part) {
    const std::shared_ptr<const Prefix> one = prefix(part);
    unite(made->inside, one->inside);
    made->exits.insert(made->exits.end(), one->exits.begin(), one->exits.end());
  };
  if (node.kind == Kind::choice) {
    Id narrow = kNever;
    for (const Id child : split(node, narrow)) take(child);
    if (narrow != kNever) take(narrow);
  } else {
    const std::shared_ptr<const Prefix> first = prefix(node.a);
    unite(made->inside, first->inside);
    for (const std::uint32_t exit : first->exits) {
      if (store_.nullable(node.b)) made->exits.push_back(exit);
      walk(node.b, exit, [&](std::uint32_t place, Id state) {
        if (table_.nodes()[place].token)
          table_.for_each_token(place, [&](std::size_t token) { set_bit(made->inside, token); });
        if (store_.nullable(state)) made->exits.push_back(place);
        return true;
      });
    }
    if (store_.nullable(node.a)) take(node.b);
  }
  std::sort(made->exits.begin(), made->exits.end());
  made->exits.erase(std::unique(made->exits.begin(), made->exits.end()), made->exits.end());
  return made;
}

/// All tokens that write text but those of some ranges, in order.
void Masks::fill_inside(std::span<const std::pair<std::uint32_t, std::uint32_t>> outside,
                        Bits& inside) const {
  std::size_t left = table_.below(0).second;
  for (const auto& [begin, end] : outside) left -= end - begin;
  if (left * 2 > table_.below(0).second) {
    inside = table_.texts();
    for (const auto& [begin, end] : outside)
      for (std::uint32_t i = begin; i < end; ++i)
        clear_bit(inside, static_cast<std::size_t>(table_.ordered(i)));
    return;
  }
  inside.assign(table_.words(), 0);
  std::uint32_t next = 0;
  const auto set = [&](std::uint32_t end) {
    for (; next < end; ++next) set_bit(inside, static_cast<std::size_t>(table_.ordered(next)));
  };
  for (const auto& [begin, end] : outside) {
    set(begin);
    next = end;
  }
  set(table_.below(0).second);
}

/// Most tokens stay inside: what is noted are the parts of the trie that do not, and parts in which the text
/// stays in one state that may not end are passed over.
std::shared_ptr<const Prefix> Masks::walked_prefix(Id id) {
  auto made = std::make_shared<Prefix>();
  const auto& nodes = table_.nodes();
  const auto size = static_cast<std::uint32_t>(nodes.size());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> outside;
  path_[0] = id;
  for (std::uint32_t i = 1; i < size;) {
    const TokenTable::TrieNode node = nodes[i];
    const Id state = store_.next(path_[node.depth - 1], store_.symbol(node.byte));
    if (state == kNever) {
      outside.push_back(table_.below(i));
      i = node.end;
      continue;
    }
    path_[node.depth] = state;
    if (store_.nullable(state))
      made->exits.push_back(i++);
    else
      i = node.end - i > kWorthIt && stays(state, table_.kinds_below(i)) ? node.end : i + 1;
  }
  fill_inside(outside, made->inside);
  return made;
}

// ---- runs of characters ----

/// Whether a lexeme is a counted run of characters of a class, then a rest.
bool Masks::run_parts(Id lexeme, Id& repeat, Id& rest) const {
  Id body = store_.node(lexeme).a;
  rest = kEmpty;
  if (store_.node(body).kind == Kind::concat) {
    rest = store_.node(body).b;
    body = store_.node(body).a;
  }
  repeat = body;
  const Node& node = store_.node(body);
  return node.kind == Kind::repeat && store_.node(node.a).unit && store_.node(node.a).wide &&
         !store_.node(rest).intersects;
}

std::shared_ptr<const RunTable> Masks::run_table(Id repeat, Id rest) {
  const Id unit = store_.node(repeat).a;
  const Fingerprint a = fingerprint(unit), b = fingerprint(rest);
  const Fingerprint key = joined(a, b);
  if (auto known = table_.cache().find_run(key)) return known;
  // The end of the run must show at its first byte.
  for (Store::Symbol symbol = 0; symbol < store_.other_special(); ++symbol) {
    if (store_.derive(unit, symbol) != kNever && store_.derive(rest, symbol) != kNever) return nullptr;
  }
  const auto made = make_run_table(unit, rest);
  table_.cache().add_run(key, made, made->inside.size() * 8 + table_.words() * 8 + made->exits.size() * 8);
  return made;
}

std::shared_ptr<const RunTable> Masks::make_run_table(Id unit, Id rest) {
  auto made = std::make_shared<RunTable>();
  std::vector<std::vector<std::uint32_t>> by_length(table_.max_depth() + 1);
  const Id boundary = store_.concat(store_.repeat(unit, 0, kUnbounded), rest);
  struct Place {
    std::uint32_t characters;
    enum : std::uint8_t { between, within, behind } where;  // characters, or behind the run
  };
  std::vector<Place> places(table_.max_depth() + 1, Place{0, Place::between});
  const auto& nodes = table_.nodes();
  walk(boundary, 0, [&](std::uint32_t i, Id state) {
    const std::size_t depth = nodes[i].depth;
    const Place before = places[depth - 1];
    Place& here = places[depth];
    here = before;
    if (before.where == Place::between && store_.next(unit, store_.symbol(nodes[i].byte)) == kNever)
      here.where = Place::behind;
    if (here.where != Place::behind) {
      here.where = state == boundary ? Place::between : Place::within;
      if (here.where == Place::between) ++here.characters;
    }
    if (nodes[i].token) {
      table_.for_each_token(i, [&](std::size_t token) {
        const auto number = static_cast<std::uint32_t>(token);
        if (here.where == Place::behind)
          made->tails.push_back({here.characters, number});
        else
          by_length[here.characters + (here.where == Place::within ? 1 : 0)].push_back(number);
      });
    }
    const bool complete = here.where == Place::behind ? store_.nullable(state)
                                                      : here.where == Place::between && store_.nullable(rest);
    if (complete) made->exits.push_back({here.characters, i});
    return true;
  });
  made->all.assign(table_.words(), 0);
  for (std::size_t length = 0; length < by_length.size(); ++length) {
    for (const std::uint32_t token : by_length[length]) {
      made->inside.push_back({static_cast<std::uint32_t>(length), token});
      set_bit(made->all, token);
    }
  }
  return made;
}

std::shared_ptr<const Prefix> Masks::from_run(const RunTable& table, std::uint32_t low,
                                              std::uint32_t high) const {
  auto made = std::make_shared<Prefix>();
  // Few tokens are longer than a count that is not small, few are shorter than a small one.
  const auto longer = std::upper_bound(
      table.inside.begin(), table.inside.end(), high,
      [](std::uint32_t count, const RunTable::Tail& token) { return count < token.characters; });
  if (longer - table.inside.begin() > table.inside.end() - longer) {
    made->inside = table.all;
    for (auto it = longer; it != table.inside.end(); ++it) clear_bit(made->inside, it->place);
  } else {
    made->inside.assign(table_.words(), 0);
    for (auto it = table.inside.begin(); it != longer; ++it) set_bit(made->inside, it->place);
  }
  const auto fits = [&](const RunTable::Tail& tail) {
    return tail.characters >= low && tail.characters <= high;
  };
  for (const RunTable::Tail& tail : table.tails)
    if (fits(tail)) set_bit(made->inside, tail.place);
  for (const RunTable::Tail& exit : table.exits)
    if (fits(exit)) made->exits.push_back(exit.place);
  return made;
}

// ---- restricted runs ----

/// Bytes of the shortest text of a regular expression, and of the shortest way to complete any beginning.
Masks::Lengths Masks::lengths(Id id) {
  constexpr std::uint64_t kUnknownLength = std::uint64_t{1} << 40;
  if (const auto it = lengths_.find(id); it != lengths_.end()) return it->second;
  const Node node = store_.node(id);
  Lengths result{kUnknownLength, kUnknownLength};
  switch (node.kind) {
    case Kind::empty:
      result = {0, 0};
      break;
    case Kind::bytes:
      result = {1, 1};
      break;
    case Kind::concat: {
      std::vector<Id> parts = store_.parts_of(id);
      result = lengths(parts.back());
      parts.pop_back();
      for (std::size_t i = parts.size(); i-- > 0;) {
        const Lengths part = lengths(parts[i]);
        result = {part.least + result.least, std::max(part.completion + result.least, result.completion)};
      }
      break;
    }
    case Kind::choice: {
      result.completion = 0;
      const auto list = store_.children(node);
      const std::vector<Id> children(list.begin(), list.end());
      for (const Id child : children) {
        const Lengths part = lengths(child);
        result = {std::min(result.least, part.least), std::max(result.completion, part.completion)};
      }
      break;
    }
    case Kind::repeat: {
      const Lengths body = lengths(node.a);
      result = {node.low * body.least, body.completion + node.low * body.least};
      break;
    }
    default:
      break;
  }
  result = {std::min(result.least, kUnknownLength), std::min(result.completion, kUnknownLength)};
  lengths_.emplace(id, result);
  return result;
}

/// A lexeme as it is for a single token: a limit on its length is left out when no token can come near it,
/// with whatever must still follow.
Id Masks::without_far_limit(Id lexeme) {
  const Id body = store_.node(lexeme).a;
  const Node whole = store_.node(body);
  const Id first = whole.kind == Kind::concat ? whole.a : body;
  const Node node = store_.node(first);
  if (node.kind != Kind::both) return lexeme;
  const auto list = store_.children(node);
  std::vector<Id> parts(list.begin(), list.end());
  if (parts.size() != 2) return lexeme;
  const auto is_limit = [&](Id child) {
    const Node& part = store_.node(child);
    return part.kind == Kind::repeat && store_.node(part.a).universal && part.low == 0 &&
           part.high != kUnbounded;
  };
  const auto limit = std::find_if(parts.begin(), parts.end(), is_limit);
  if (limit == parts.end()) return lexeme;
  const std::uint64_t high = store_.node(*limit).high;
  parts.erase(limit);
  if (high <= table_.max_depth() + lengths(parts.front()).completion) return lexeme;
  const Id rest = whole.kind == Kind::concat ? whole.b : kEmpty;
  return store_.living_lexeme(store_.concat(parts.front(), rest));
}

/// The part of a lexeme's first expression that lets any characters come, such as what stands before an
/// unanchored pattern; kNever when there is none.
Id Masks::any_characters(Id lexeme) const {
  const Node& node = store_.node(lexeme);
  if (node.kind != Kind::lexeme) return kNever;
  const Node& body = store_.node(node.a);
  const auto begins = [&](Id id) {
    const Node& part = store_.node(id);
    const Id first = part.kind == Kind::concat ? part.a : id;
    const Node& run = store_.node(first);
    const bool any =
        run.kind == Kind::repeat && store_.node(run.a).universal && run.low == 0 && run.high == kUnbounded;
    return any ? first : kNever;
  };
  const Id first = body.kind == Kind::concat ? body.a : node.a;
  if (const Id found = begins(first); found != kNever) return found;
  if (store_.node(first).kind != Kind::choice) return kNever;
  for (const Id child : store_.children(store_.node(first)))
    if (const Id found = begins(child); found != kNever) return found;
  return kNever;
}

/// For a run with further restrictions: the same run without them. Most tokens behave alike in both.
Id Masks::reference(Id lexeme) const {
  Id body = store_.node(lexeme).a;
  Id rest = kEmpty;
  if (store_.node(body).kind == Kind::concat) {
    rest = store_.node(body).b;
    body = store_.node(body).a;
  }
  const Node node = store_.node(body);
  // (Where the rest follows the run at once, there is nothing simpler.)
  if (const Id any = any_characters(lexeme); any != kNever && node.kind == Kind::choice && rest != kEmpty)
    return store_.living_lexeme(store_.concat(any, rest));
  if (node.kind != Kind::both) return kNever;
  for (const Id child : store_.children(node)) {
    const Node& part = store_.node(child);
    if (part.kind != Kind::repeat || !store_.node(part.a).unit || !store_.node(part.a).wide) continue;
    return store_.living_lexeme(store_.concat(child, rest));
  }
  return kNever;
}

std::shared_ptr<const Prefix> Masks::from_reference(Id id, Id reference) {
  const std::shared_ptr<const Prefix> whole = prefix(reference);
  auto made = std::make_shared<Prefix>();
  made->inside = whole->inside;
  const auto& nodes = table_.nodes();
  auto exit = whole->exits.begin();
  const auto pass = [&](std::uint32_t end, bool kept) {
    for (; exit != whole->exits.end() && *exit < end; ++exit)
      if (kept) made->exits.push_back(*exit);
  };
  path_[0] = id;
  path2_[0] = reference;
  const auto size = static_cast<std::uint32_t>(nodes.size());
  for (std::uint32_t i = 1; i < size;) {
    const TokenTable::TrieNode node = nodes[i];
    const Store::Symbol symbol = store_.symbol(node.byte);
    const Id free = store_.next(path2_[node.depth - 1], symbol);
    const Id bound = free == kNever ? kNever : store_.next(path_[node.depth - 1], symbol);
    if (free == bound) {  // alike from here on, or both at an end
      pass(node.end, true);
      i = node.end;
      continue;
    }
    if (bound == kNever) {
      const auto [begin, end] = table_.below(i);
      for (std::uint32_t place = begin; place < end; ++place)
        clear_bit(made->inside, static_cast<std::size_t>(table_.ordered(place)));
      pass(node.end, false);
      i = node.end;
      continue;
    }
    pass(i, true);
    // Where any characters may follow in both, only the run's end can tell them apart.
    if (takes_any(bound) && (exit == whole->exits.end() || *exit >= node.end)) {
      i = node.end;
      continue;
    }
    const bool ends = store_.nullable(bound);
    if (!ends && node.end - i > kWorthIt && !store_.nullable(free) && stays(bound, table_.kinds_below(i)) &&
        stays(free, table_.kinds_below(i))) {
      i = node.end;  // all of it in both
      continue;
    }
    pass(i + 1, false);
    if (ends) made->exits.push_back(i);
    path_[node.depth] = bound;
    path2_[node.depth] = free;
    ++i;
  }
  pass(size, true);
  return made;
}

}  // namespace quipu::text::grammar

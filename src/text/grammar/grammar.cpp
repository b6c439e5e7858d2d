#include "text/grammar/grammar.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "text/grammar/code_points.hpp"
#include "text/grammar/finish.hpp"
#include "text/grammar/gbnf.hpp"
#include "text/grammar/pattern.hpp"

namespace quipu::text::grammar {

Grammar Grammar::from(const std::function<Id(Store&)>& build) {
  Store draft;
  const Id root = build(draft);
  auto store = std::make_shared<Store>();
  Grammar grammar;
  grammar.start_ = finish(draft, root, *store);
  grammar.store_ = std::move(store);
  return grammar;
}

Grammar Grammar::from_gbnf(std::string_view source, std::string_view root) {
  return from([&](Store& store) { return gbnf(store, source, root); });
}

Grammar Grammar::from_json_schema(std::string_view schema, const SchemaOptions& options) {
  return from([&](Store& store) { return json_schema(store, schema, options); });
}

Grammar Grammar::from_regex(std::string_view source) {
  return from([&](Store& store) {
    Encoder encoder(store, Encoding::utf8);
    const Id id = store.lexeme(pattern(encoder, source, Anchoring::whole));
    if (id == kNever)
      fail(ErrorCode::invalid_argument, "the pattern \"{}\" matches no text", printable(source, 100));
    return id;
  });
}

Grammar Grammar::from_choices(std::span<const std::string> choices) {
  if (choices.empty()) fail(ErrorCode::invalid_argument, "the list of choices is empty");
  return from([&](Store& store) { return one_of_texts(store, {choices.begin(), choices.end()}); });
}

Grammar Grammar::any_json_object() { return from_json_schema(R"({"type":"object"})"); }

bool matches(const Grammar& grammar, std::string_view text) {
  Store store;
  std::vector<Id> map(grammar.store().size(), Store::kUnknown);
  Id state = store.import_grammar(grammar.store(), grammar.start(), map);
  store.freeze();
  for (const char c : text) {
    store.begin_work();
    state = store.derive(state, store.symbol(static_cast<unsigned char>(c)));
    if (state == kNever) return false;
  }
  return store.nullable(state);
}

// ---- constraint ----

Constraint::Constraint(const Grammar& grammar, std::shared_ptr<const TokenTable> table)
    : grammar_(grammar), table_(std::move(table)) {
  const std::vector<std::string>& specials = grammar_.store().specials();
  std::vector<Token> tokens;
  for (const std::string& name : specials) {
    const auto token = table_->find(name);
    if (!token)
      fail(ErrorCode::invalid_argument,
           "the grammar asks for the token {}, which the vocabulary of {} tokens has not",
           printable(name, 80), table_->size());
    const auto first = std::find(tokens.begin(), tokens.end(), *token);
    const TokenTable::Use use = table_->entry(*token).use;
    names_.push_back({.same_as = static_cast<std::uint32_t>(first - tokens.begin()),
                      .text = use == TokenTable::Use::text,
                      .end = use == TokenTable::Use::end});
    tokens.push_back(*token);
  }
  for (Id id = 0; id < grammar_.store().size(); ++id)
    if (const Node& node = grammar_.store().node(id);
        node.kind == Kind::special && !table_->is_used(tokens[node.a]))
      fail(ErrorCode::invalid_argument, "the grammar asks for the token {}, which is never generated",
           printable(specials[node.a], 80));
  current_ = make();
}

std::shared_ptr<Constraint::Generation> Constraint::make() const {
  auto made = std::make_shared<Generation>();
  const Store& from = grammar_.store();
  std::vector<Id> map(from.size(), Store::kUnknown);
  made->start = made->store.import_grammar(from, grammar_.start(), map);
  made->store.freeze(names_);
  made->masks = std::make_unique<Masks>(made->store, *table_);
  return made;
}

// ---- matcher ----

Matcher::Matcher(std::shared_ptr<Constraint> constraint) : constraint_(std::move(constraint)) {
  const std::lock_guard lock(constraint_->mutex_);
  generation_ = constraint_->current_;
  now_.state = generation_->start;
}

/// When the states have become too many, moves to a store without those that nobody is in.
void Matcher::renew() {
  if (generation_->store.memory() > constraint_->max_memory && constraint_->current_ == generation_)
    constraint_->current_ = constraint_->make();
  if (constraint_->current_ == generation_) return;
  const std::shared_ptr<Constraint::Generation> next = constraint_->current_;
  std::vector<Id> map(generation_->store.size(), Store::kUnknown);
  now_.state = next->store.import(generation_->store, now_.state, map);
  for (Place& place : before_) place.state = next->store.import(generation_->store, place.state, map);
  generation_ = next;
}

std::shared_ptr<const Bits> Matcher::allowed() {
  const std::lock_guard lock(constraint_->mutex_);
  renew();
  if (now_.finished) return std::make_shared<Bits>(constraint_->table_->words(), 0);
  generation_->store.begin_work();
  std::shared_ptr<const Bits> bits = generation_->masks->of(now_.state);
  if (std::none_of(bits->begin(), bits->end(), [](std::uint64_t word) { return word != 0; }))
    fail(ErrorCode::unsupported, "the vocabulary has no token for what the grammar wants after {} tokens",
         accepted());
  return bits;
}

std::size_t Matcher::tokens_to_end() {
  const std::lock_guard lock(constraint_->mutex_);
  if (now_.finished) return 0;
  generation_->store.begin_work();
  const std::uint32_t bytes = generation_->masks->to_end(now_.state);
  if (bytes >= Completion::kFar) return 0;
  // Long ways are mostly names and values of several bytes a token.
  constexpr std::uint32_t kShort = 160;
  return bytes <= kShort ? bytes : kShort + (bytes - kShort) / 4 * 3;
}

std::shared_ptr<const Bits> Matcher::closing() {
  const std::lock_guard lock(constraint_->mutex_);
  renew();
  if (now_.finished) return std::make_shared<Bits>(constraint_->table_->words(), 0);
  generation_->store.begin_work();
  return generation_->masks->closing(now_.state);
}

bool Matcher::accept(Token token) {
  const std::lock_guard lock(constraint_->mutex_);
  const TokenTable& table = *constraint_->table_;
  if (now_.finished || token < 0 || static_cast<std::size_t>(token) >= table.size()) return false;
  renew();
  Store& store = generation_->store;
  store.begin_work();
  const TokenTable::Entry& entry = table.entry(token);
  Place next = now_;
  switch (entry.use) {
    case TokenTable::Use::never:
      return false;
    case TokenTable::Use::text:
      for (const char c : entry.text) {
        next.state = store.next(next.state, store.symbol(static_cast<unsigned char>(c)));
        if (next.state == kNever) break;
      }
      if (store.reads_text_tokens()) {
        const Store::Symbol whole = generation_->masks->named(token).value_or(store.other_text());
        next.state = store.choice(next.state, store.next(now_.state, whole));
      }
      if (next.state == kNever) return false;
      break;
    case TokenTable::Use::control:
    case TokenTable::Use::end: {
      const auto symbol = generation_->masks->named(token);
      const bool is_end = entry.use == TokenTable::Use::end;
      const Id state = symbol   ? store.next(now_.state, *symbol)
                       : is_end ? kNever
                                : store.next(now_.state, store.other_special());
      if (state == kNever && !(is_end && store.nullable(now_.state))) return false;
      next.state = state == kNever ? kEmpty : state;
      next.finished = state == kNever;
      break;
    }
  }
  apply_budget(next);
  before_.push_back(now_);
  now_ = next;
  return true;
}

std::vector<std::shared_ptr<const Bits>> Matcher::allowed_along(std::span<const Token> draft) {
  const std::size_t start = accepted();
  std::vector<std::shared_ptr<const Bits>> masks;
  try {
    masks.push_back(allowed());
    for (const Token token : draft) {
      if (!accept(token)) break;
      masks.push_back(allowed());
    }
  } catch (...) {
    rollback(accepted() - start);
    throw;
  }
  rollback(accepted() - start);
  return masks;
}

std::size_t Matcher::accept_prefix(std::span<const Token> tokens) {
  std::size_t taken = 0;
  while (taken < tokens.size() && accept(tokens[taken])) ++taken;
  return taken;
}

/// A free text with a budget of tokens ends by force when they are used up. Where the text may also be read
/// as one without a budget, that reading ends with it.
void Matcher::apply_budget(Place& place) {
  Store& store = generation_->store;
  const auto limited = [&](Id id) {
    const Node node = store.node(id);
    const Node first = node.kind == Kind::concat ? store.node(node.a) : node;
    return first.kind == Kind::until && store.tags(first).budget > 0;
  };
  const auto limited_part = [&](Id state) {
    if (limited(state)) return state;
    if (const Node node = store.node(state); node.kind == Kind::choice) {
      const auto list = store.children(node);
      if (const auto it = std::find_if(list.begin(), list.end(), limited); it != list.end()) return *it;
    }
    return kNever;
  };
  const Id found = limited_part(place.state);
  // The token that opens the text is not one of it.
  if (found == kNever || limited_part(now_.state) == kNever) {
    place.free_tokens = 0;
    return;
  }
  const Node node = store.node(found);
  const bool chained = node.kind == Kind::concat;
  const Node first = chained ? store.node(node.a) : node;
  const Tags& tags = store.tags(first);
  if (++place.free_tokens < tags.budget) return;
  const Id forced = tags.forced[std::min<std::size_t>(first.b, tags.forced.size() - 1)];
  place.state = chained ? store.concat(forced, node.b) : forced;
  place.free_tokens = 0;
}

bool Matcher::is_accepting() const {
  const std::lock_guard lock(constraint_->mutex_);
  return now_.finished || generation_->store.nullable(now_.state);
}

bool Matcher::is_complete() {
  const std::lock_guard lock(constraint_->mutex_);
  return now_.finished || now_.state == kEmpty;
}

void Matcher::rollback(std::size_t tokens) {
  if (tokens > before_.size())
    fail(ErrorCode::invalid_argument, "cannot take {} tokens back, only {} were accepted", tokens,
         before_.size());
  if (tokens == 0) return;
  now_ = before_[before_.size() - tokens];
  before_.resize(before_.size() - tokens);
}

}  // namespace quipu::text::grammar

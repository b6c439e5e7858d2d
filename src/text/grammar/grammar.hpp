// Structured output: a grammar, what it allows over a vocabulary, and where one sequence is in it.
//
//   auto grammar = Grammar::from_json_schema(R"({"type":"object"})");
//   auto constraint = std::make_shared<Constraint>(grammar, TokenTable::of(tokenizer));
//   Matcher matcher(constraint);           // one a sequence; copies are cheap
//   matcher.allowed();                     // one bit a token
//   matcher.accept(token);                 // false: not allowed, nothing changed
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/expression.hpp"
#include "text/grammar/json_schema.hpp"
#include "text/grammar/masks.hpp"
#include "text/grammar/token_table.hpp"

namespace quipu::text::grammar {

/// An immutable language of texts. Copies share it. Constructors throw `Error` (invalid_argument,
/// unsupported) that names the line and column, the offset in the pattern, or the JSON path and keyword.
class Grammar {
 public:
  /// A grammar file of llama.cpp; see gbnf.hpp.
  static Grammar from_gbnf(std::string_view source, std::string_view root = "root");
  /// A JSON Schema as text; see json_schema.hpp and docs/structured-output.md.
  static Grammar from_json_schema(std::string_view schema, const SchemaOptions& options = {});
  /// A regular expression that the whole text must match; see pattern.hpp.
  static Grammar from_regex(std::string_view pattern);
  /// One of some texts.
  static Grammar from_choices(std::span<const std::string> choices);
  /// Any JSON object (OpenAI's json_object).
  static Grammar any_json_object();
  /// Whatever `build` makes in a store: for compositions of the above.
  static Grammar from(const std::function<Id(Store&)>& build);

  const Store& store() const { return *store_; }
  Id start() const { return start_; }

 private:
  Grammar() = default;
  std::shared_ptr<const Store> store_;
  Id start_ = kNever;
};

/// Whether the grammar has this text, byte by byte: without a vocabulary. Tokens that a grammar names are no
/// text: what asks for one has none here.
bool matches(const Grammar& grammar, std::string_view text);

/// A grammar over a vocabulary, with all that was computed for it. Shared by its matchers; any thread.
class Constraint {
 public:
  /// Throws `Error` (invalid_argument): the grammar names a token that the vocabulary has not or never
  /// writes.
  Constraint(const Grammar& grammar, std::shared_ptr<const TokenTable> table);

  const TokenTable& table() const { return *table_; }
  /// Bytes that states may take before they are made anew, without those that nobody is in.
  std::size_t max_memory = std::size_t{128} << 20;

 private:
  friend class Matcher;
  struct Generation {
    Store store;
    Id start = kNever;
    std::unique_ptr<Masks> masks;
  };
  std::shared_ptr<Generation> make() const;

  std::mutex mutex_;
  Grammar grammar_;
  std::shared_ptr<const TokenTable> table_;
  std::vector<NamedToken> names_;
  std::shared_ptr<Generation> current_;
};

/// The place of one sequence in a constraint. One thread at a time; copies are independent.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Constraint> constraint);

  /// One bit a token: those that may come next; end tokens where the text may end. Throws `Error`
  /// (unsupported) when the grammar gets too large on this text.
  std::shared_ptr<const Bits> allowed();
  /// How many tokens the shortest way to the text's end takes, if each writes a byte or two; 0 where that is
  /// not known.
  std::size_t tokens_to_end();
  /// Of the tokens allowed now, those that lead to the text's end on a shortest way. May be none.
  std::shared_ptr<const Bits> closing();
  /// Goes on by one token. False when it is not allowed: nothing changes then.
  bool accept(Token token);
  /// The masks before each token of a draft and after its last one, up to the first token that is not
  /// allowed: one to draft.size() + 1 masks. The place stays where it is.
  std::vector<std::shared_ptr<const Bits>> allowed_along(std::span<const Token> draft);
  /// Goes on by the tokens up to the first that is not allowed; how many those are.
  std::size_t accept_prefix(std::span<const Token> tokens);
  /// The text so far is complete; an end token is allowed.
  bool is_accepting() const;
  /// The text is complete and nothing but its end may follow.
  bool is_complete();
  /// An end token was accepted.
  bool is_finished() const { return now_.finished; }
  /// Takes the last `tokens` back, at most those accepted since the start. Throws `Error` (invalid_argument).
  void rollback(std::size_t tokens);
  std::size_t accepted() const { return before_.size(); }

 private:
  struct Place {
    Id state = kNever;
    std::uint32_t free_tokens = 0;  ///< of the free text so far
    bool finished = false;
  };
  void renew();
  void apply_budget(Place& place);

  std::shared_ptr<Constraint> constraint_;
  std::shared_ptr<Constraint::Generation> generation_;
  Place now_;
  std::vector<Place> before_;
};

}  // namespace quipu::text::grammar

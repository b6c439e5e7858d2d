// Which tokens may come next in a state of the automaton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/grammar/completion.hpp"
#include "text/grammar/expression.hpp"
#include "text/grammar/token_table.hpp"

namespace quipu::text::grammar {

/// What the tokens do in one expression, whatever follows it: those that stay inside, and the places of the
/// trie where it is complete and the next expression begins.
struct Prefix {
  Bits inside;
  std::vector<std::uint32_t> exits;  ///< ascending
};

/// The tokens in any number of characters of one class and what ends them, by the number of characters: gives
/// the Prefix for every count without another walk.
struct RunTable {
  struct Tail {
    std::uint32_t characters;  ///< before the end begins, a last unfinished one included
    std::uint32_t place;       ///< token or trie node
  };
  std::vector<Tail> inside;  ///< tokens within the run, with their characters; ascending by these
  Bits all;                  ///< those of `inside`
  std::vector<Tail> tails;   ///< tokens that end inside of what follows the run
  std::vector<Tail> exits;   ///< trie nodes where what follows is complete
};

/// A digest of an expression's structure, the same in every store.
using Fingerprint = std::pair<std::uint64_t, std::uint64_t>;
Fingerprint joined(const Fingerprint& x, const Fingerprint& y);

/// Prefixes and run tables by fingerprint, for all grammars of a vocabulary. Any thread.
class PrefixCache {
 public:
  std::shared_ptr<const RunTable> find_run(const Fingerprint& key) const;
  void add_run(const Fingerprint& key, std::shared_ptr<const RunTable> table, std::size_t bytes);
  std::shared_ptr<const Prefix> find_prefix(const Fingerprint& key) const;
  void add_prefix(const Fingerprint& key, std::shared_ptr<const Prefix> prefix, std::size_t bytes);

 private:
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  void make_room(std::size_t bytes);
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::map<Fingerprint, std::shared_ptr<const RunTable>> runs_;
  std::map<Fingerprint, std::shared_ptr<const Prefix>> prefixes_;
};

/// The masks of one store and one vocabulary, made when asked for and kept by state.
class Masks {
 public:
  /// Both must outlive this.
  Masks(Store& store, const TokenTable& table);

  /// One bit a token of the vocabulary: those that may come in `state`, end tokens where it may end.
  std::shared_ptr<const Bits> of(Id state);
  /// The tokens of `of` with which the text gets nearer to its end with every byte, the longer ones.
  std::shared_ptr<const Bits> closing(Id state);
  /// Bytes to the text's end; Completion::kFar where that is not known.
  std::uint32_t to_end(Id state) { return completion_.of(state); }
  std::size_t memory() const { return bytes_ + completion_.memory(); }
  /// The symbol of a token that the grammar names.
  std::optional<Store::Symbol> named(Token token) const;

 private:
  void add(Id state, Bits& out);
  void add_tokens(Id state, Bits& out);
  const Bits& unnamed_texts();
  std::shared_ptr<const Prefix> prefix(Id id);
  std::shared_ptr<const Prefix> make_prefix(Id id);
  std::shared_ptr<const Prefix> walked_prefix(Id id);
  std::shared_ptr<const Prefix> joined_prefix(const Node& node);
  bool starts_wide(Id id) const;
  std::vector<Id> split(const Node& choice, Id& narrow);
  bool run_parts(Id lexeme, Id& repeat, Id& rest) const;
  std::shared_ptr<const RunTable> run_table(Id repeat, Id rest);
  std::shared_ptr<const RunTable> make_run_table(Id unit, Id rest);
  std::shared_ptr<const Prefix> from_run(const RunTable& table, std::uint32_t low, std::uint32_t high) const;
  struct Lengths {
    std::uint64_t least, completion;
  };
  Lengths lengths(Id id);
  Id without_far_limit(Id lexeme);
  Id any_characters(Id lexeme) const;
  Id reference(Id lexeme) const;
  std::shared_ptr<const Prefix> from_reference(Id id, Id reference);
  Fingerprint fingerprint(Id id);
  template <class F>
  void walk(Id start, std::uint32_t from, F&& visit);
  bool stays(Id state, std::uint16_t kinds);
  bool takes_any(Id state);
  void fill_inside(std::span<const std::pair<std::uint32_t, std::uint32_t>> outside, Bits& inside) const;

  Store& store_;
  const TokenTable& table_;
  Completion completion_;
  std::vector<Id> path_, path2_;
  std::unordered_map<Id, std::shared_ptr<const Bits>> masks_;
  std::unordered_map<Id, std::shared_ptr<const Prefix>> prefixes_;
  std::unordered_map<Id, Fingerprint> fingerprints_;
  std::unordered_map<Id, Lengths> lengths_;
  std::unordered_map<Token, Store::Symbol> named_;
  Bits unnamed_texts_;
  /// What walks ask of a state again and again.
  struct Traits {
    std::uint16_t stay = 0, leave = 0;  // kinds of bytes that all lead back to it, or not
    std::optional<bool> any;            // see any_characters
  };
  Growing<Traits> traits_;                                // by state
  std::vector<std::vector<Store::Symbol>> kind_symbols_;  // by kind of byte
  std::size_t bytes_ = 0;
};

}  // namespace quipu::text::grammar

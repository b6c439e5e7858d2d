// A vocabulary as a trie over the bytes of its tokens, laid out so that a walk is a scan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer.hpp"

namespace quipu::text::grammar {

/// One bit a token.
using Bits = std::vector<std::uint64_t>;
inline void set_bit(Bits& bits, std::size_t i) { bits[i / 64] |= std::uint64_t{1} << (i % 64); }
inline void clear_bit(Bits& bits, std::size_t i) { bits[i / 64] &= ~(std::uint64_t{1} << (i % 64)); }
inline bool has_bit(const Bits& bits, std::size_t i) { return (bits[i / 64] >> (i % 64)) & 1; }

class PrefixCache;

class TokenTable {
 public:
  enum class Use : std::uint8_t {
    text,     ///< writes its bytes
    control,  ///< has a name, writes nothing
    end,      ///< ends the generation
    never,    ///< unknown and unused tokens, and those that write nothing
  };
  struct Entry {
    std::string text;  ///< the bytes, or the name of a token that writes none
    Use use = Use::text;
  };

  explicit TokenTable(std::vector<Entry> entries);
  static std::shared_ptr<const TokenTable> of(const Tokenizer& tokenizer);

  std::size_t size() const { return entries_.size(); }
  std::size_t words() const { return (entries_.size() + 63) / 64; }
  const Entry& entry(Token token) const { return entries_[static_cast<std::size_t>(token)]; }
  const std::vector<Token>& controls() const { return controls_; }
  const std::vector<Token>& ends() const { return ends_; }
  /// Those that write text.
  const Bits& texts() const { return texts_; }
  /// Whether it is ever generated.
  bool is_used(Token token) const { return entry(token).use != Use::never; }
  /// The token of that name that writes no text.
  std::optional<Token> find_control(std::string_view name) const;
  /// As grammars name tokens: <[id]> by its number; a control or end token by its name; any other by its
  /// text, the last one where several have it.
  std::optional<Token> find(std::string_view name) const;

  /// Depth first; node 0 is the root.
  struct TrieNode {
    std::uint32_t end;    ///< behind the last node below
    std::uint16_t depth;  ///< bytes from the root
    unsigned char byte;
    bool token;  ///< some token ends here
  };
  const std::vector<TrieNode>& nodes() const { return nodes_; }
  std::size_t max_depth() const { return max_depth_; }
  template <class F>
  void for_each_token(std::uint32_t node, F&& f) const {
    for (std::uint32_t i = first_[node]; i < first_[node + 1]; ++i) f(static_cast<std::size_t>(ordered_[i]));
  }

  /// The tokens that end at a node or below it, as places in the order of texts: from `first` to before
  /// `second`.
  std::pair<std::uint32_t, std::uint32_t> below(std::uint32_t node) const {
    return {first_[node], first_[nodes_[node].end]};
  }
  Token ordered(std::uint32_t place) const { return ordered_[place]; }
  /// Bytes in kinds that grammars often treat alike: a number below kByteKinds.
  static constexpr unsigned kByteKinds = 16;
  static unsigned byte_kind(unsigned char byte);
  /// One bit for each kind of the bytes below a node.
  std::uint16_t kinds_below(std::uint32_t node) const { return kinds_below_[node]; }

  /// What grammars over this vocabulary share.
  PrefixCache& cache() const { return *cache_; }

 private:
  std::vector<Entry> entries_;
  std::vector<Token> controls_, ends_;
  std::unordered_map<std::string, Token> names_;
  std::vector<TrieNode> nodes_;
  std::vector<std::uint16_t> kinds_below_;
  std::vector<std::uint32_t> first_;  // by node, into ordered_
  std::vector<Token> ordered_;
  Bits texts_;
  std::size_t max_depth_ = 0;
  std::shared_ptr<PrefixCache> cache_;
};

}  // namespace quipu::text::grammar

// SentencePiece's compiled normaliser: a map from byte sequences to replacements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::text {

/// Layout of tokenizer.ggml.precompiled_charsmap: the byte length of a double-array trie (u32,
/// little-endian), the trie (u32 units as the Darts-clone library writes them), then the replacements, each
/// closed by a NUL; the trie's values are offsets into them.
class Charsmap {
 public:
  Charsmap() = default;  ///< maps nothing
  /// Throws `Error` (bad_file) when the lengths contradict each other.
  Charsmap(std::vector<std::uint8_t> blob, std::string_view origin);

  /// `text` with the longest match at each position replaced and invalid UTF-8 as U+FFFD. Reads nothing
  /// outside of the blob; a trie that points outside throws `Error` (bad_file).
  std::string normalize(std::string_view text) const;

 private:
  struct Match {
    std::size_t length = 0;
    std::uint32_t value = 0;
  };
  std::uint32_t unit(std::size_t index) const;
  Match longest(std::string_view text) const;
  std::string_view replacement(std::uint32_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
  std::string origin_;
};

}  // namespace quipu::text

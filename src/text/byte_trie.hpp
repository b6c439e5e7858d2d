// A trie over byte strings, immutable after construction: children of a node are contiguous and sorted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace quipu::text {

class ByteTrie {
 public:
  using Value = std::int32_t;
  static constexpr std::uint32_t kNone = 0xffffffff;

  ByteTrie() { root_.fill(kNone); }
  /// Keys must not be empty; of equal keys the first one counts. The views are not kept.
  explicit ByteTrie(std::vector<std::pair<std::string_view, Value>> entries);

  bool empty() const { return nodes_.empty(); }
  /// Node after one byte from the root, or from `node`; kNone when there is no such path.
  std::uint32_t start(unsigned char byte) const { return root_[byte]; }
  std::uint32_t next(std::uint32_t node, unsigned char byte) const;
  /// Value of the key that ends at this node, or -1.
  Value value(std::uint32_t node) const { return nodes_[node].value; }

  struct Match {
    Value value = -1;
    std::size_t length = 0;  ///< 0: no match
  };
  /// The longest key that is a prefix of text[position..].
  Match longest(std::string_view text, std::size_t position) const;

 private:
  struct Node {
    std::uint32_t first_child = 0;
    Value value = -1;
    std::uint16_t children = 0;
    unsigned char byte = 0;
  };
  std::array<std::uint32_t, 256> root_;
  std::vector<Node> nodes_;
};

}  // namespace quipu::text

// A set of byte values.
#pragma once

#include <array>
#include <cstdint>

namespace quipu::text::grammar {

struct ByteSet {
  std::array<std::uint64_t, 4> words{};

  static ByteSet range(unsigned low, unsigned high) {
    ByteSet set;
    for (unsigned b = low; b <= high; ++b) set.add(b);
    return set;
  }
  static ByteSet one(unsigned char byte) { return range(byte, byte); }

  void add(unsigned byte) { words[byte / 64] |= std::uint64_t{1} << (byte % 64); }
  bool has(unsigned byte) const { return (words[byte / 64] >> (byte % 64)) & 1; }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  ByteSet operator|(const ByteSet& other) const {
    ByteSet result = *this;
    for (std::size_t i = 0; i < 4; ++i) result.words[i] |= other.words[i];
    return result;
  }
  bool operator==(const ByteSet&) const = default;
};

}  // namespace quipu::text::grammar

// Token text -> id: a flat hash table of ids; the texts stay in the vocabulary's own array.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace quipu::text {

class TextIndex {
 public:
  TextIndex() = default;
  /// Of equal texts the first one is found.
  explicit TextIndex(const std::vector<std::string>& texts) {
    reserve(texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) insert(texts, static_cast<std::uint32_t>(i));
  }

  /// Index of `text` in `texts`, the array this index was built over; -1 when absent.
  std::int32_t find(const std::vector<std::string>& texts, std::string_view text) const {
    if (slots_.empty()) return -1;
    const std::uint64_t hash = std::hash<std::string_view>{}(text);
    for (std::uint64_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.index_plus_one == 0) return -1;
      if (slot.tag == tag(hash) && texts[slot.index_plus_one - 1] == text)
        return static_cast<std::int32_t>(slot.index_plus_one - 1);
    }
  }

  /// Adds texts[index]; returns its index, or that of an equal text that was there before.
  std::uint32_t insert(const std::vector<std::string>& texts, std::uint32_t index) {
    if (2 * (used_ + 1) > slots_.size()) {
      slots_.clear();
      used_ = 0;
      reserve(2 * (index + std::size_t{1}));
      for (std::uint32_t i = 0; i < index; ++i) insert(texts, i);
    }
    const std::string_view text = texts[index];
    const std::uint64_t hash = std::hash<std::string_view>{}(text);
    std::uint64_t i = hash & mask_;
    while (slots_[i].index_plus_one != 0) {
      if (slots_[i].tag == tag(hash) && texts[slots_[i].index_plus_one - 1] == text)
        return slots_[i].index_plus_one - 1;
      i = (i + 1) & mask_;
    }
    slots_[i] = {index + 1, tag(hash)};
    ++used_;
    return index;
  }

 private:
  struct Slot {
    std::uint32_t index_plus_one = 0;  // 0: free
    std::uint32_t tag = 0;
  };
  static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  void reserve(std::size_t count) {
    std::size_t size = 16;
    while (size < 2 * count + 2) size *= 2;
    slots_.assign(size, Slot{});
    mask_ = size - 1;
  }

  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
  std::size_t used_ = 0;
};

struct Tokenizer::Index : TextIndex {
  using TextIndex::TextIndex;
};

}  // namespace quipu::text

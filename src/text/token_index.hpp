// Token text -> id: a flat hash table of ids; the texts stay in the vocabulary's own list.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/text_list.hpp"
#include "text/tokenizer.hpp"

namespace quipu::text {

/// A slot holds the number of a text and, in the bits that this leaves, some of the text's hash, so that few
/// texts are compared in vain.
class TextIndex {
 public:
  /// So many texts are looked up in turns, `prefetch` for all of them first.
  static constexpr std::size_t kTogether = 16;

  TextIndex() = default;
  /// Of equal texts the first one is found.
  explicit TextIndex(const TextList& texts) { fill(texts, texts.size(), texts.size()); }

  static std::uint64_t hash_of(std::string_view text) { return std::hash<std::string_view>{}(text); }
  /// Index of `text` in `texts`, the list this index was built over; -1 when absent.
  std::int32_t find(const TextList& texts, std::string_view text) const {
    return find(texts, text, hash_of(text));
  }
  std::int32_t find(const TextList& texts, std::string_view text, std::uint64_t hash) const {
    if (slots_.empty()) return -1;
    for (std::uint64_t i = hash & mask_;; i = (i + 1) & mask_) {
      if (slots_[i] == kFree) return -1;
      if (is(texts, slots_[i], hash, text)) return static_cast<std::int32_t>(number_of(slots_[i]) - 1);
    }
  }

  /// Asks for the memory that `find` will look at first: texts looked up together wait for it once.
  void prefetch(std::uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & mask_]);
  }
  /// How many texts differ from all before them.
  std::size_t distinct() const { return used_; }

  /// Adds texts[index]; returns its index, or that of an equal text that was there before.
  std::uint32_t insert(const TextList& texts, std::uint32_t index) {
    if (4 * (used_ + 1) > 3 * slots_.size() || index >= slots_.size())
      fill(texts, index, 2 * (index + std::size_t{1}));
    return insert(texts, index, hash_of(texts[index]));
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  std::uint32_t number_of(std::uint32_t slot) const { return slot & numbers_; }  // from 1
  std::uint32_t tag(std::uint64_t hash) const { return static_cast<std::uint32_t>(hash >> 32) & ~numbers_; }
  bool is(const TextList& texts, std::uint32_t slot, std::uint64_t hash, std::string_view text) const {
    return (slot & ~numbers_) == tag(hash) && texts[number_of(slot) - 1] == text;
  }
  std::uint32_t insert(const TextList& texts, std::uint32_t index, std::uint64_t hash) {
    std::uint64_t i = hash & mask_;
    while (slots_[i] != kFree) {
      if (is(texts, slots_[i], hash, texts[index])) return number_of(slots_[i]) - 1;
      i = (i + 1) & mask_;
    }
    slots_[i] = tag(hash) | (index + 1);
    ++used_;
    return index;
  }
  /// Holds the first `count` texts, with room for `expected`.
  void fill(const TextList& texts, std::size_t count, std::size_t expected) {
    reserve(expected);
    std::array<std::uint64_t, kTogether> hashes;
    for (std::size_t begin = 0; begin < count; begin += kTogether) {
      const std::size_t end = std::min(count, begin + kTogether);
      for (std::size_t i = begin; i < end; ++i) {
        hashes[i - begin] = hash_of(texts[i]);
        prefetch(hashes[i - begin]);
      }
      for (std::size_t i = begin; i < end; ++i)
        insert(texts, static_cast<std::uint32_t>(i), hashes[i - begin]);
    }
  }
  /// Empties it; at most three of four slots will be taken by `count` texts.
  void reserve(std::size_t count) {
    std::size_t size = 16;
    while (3 * size < 4 * count) size *= 2;
    slots_.assign(size, kFree);
    used_ = 0;
    mask_ = size - 1;
    numbers_ = static_cast<std::uint32_t>(2 * size - 1);
  }

  std::vector<std::uint32_t> slots_;
  std::uint64_t mask_ = 0;
  std::uint32_t numbers_ = 0;  // the bits of a slot that hold a number
  std::size_t used_ = 0;
};

struct Tokenizer::Index : TextIndex {
  using TextIndex::TextIndex;
};

}  // namespace quipu::text

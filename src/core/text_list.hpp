// Many short texts in one piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace quipu {

/// A list of texts that only grows: their bytes one after the other, and four bytes more a text. A vector of
/// strings takes 32 bytes for each, and 16 and more for the longer ones again.
class TextList {
 public:
  using value_type = std::string_view;
  class const_iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = std::string_view;
    const_iterator(const TextList& list, std::size_t at) : list_(&list), at_(at) {}
    std::string_view operator*() const { return (*list_)[at_]; }
    const_iterator& operator++() { return ++at_, *this; }
    const_iterator operator++(int) { return {*list_, at_++}; }
    bool operator==(const const_iterator& other) const { return at_ == other.at_; }

   private:
    const TextList* list_;
    std::size_t at_;
  };
  using iterator = const_iterator;

  TextList() = default;
  /// Throws `Error` (bad_file) when the texts have 4 GiB and more together.
  explicit TextList(const std::vector<std::string>& texts) {
    std::size_t bytes = 0;
    for (const std::string& text : texts) bytes += text.size();
    reserve(texts.size(), bytes);
    for (const std::string& text : texts) push_back(text);
  }
  bool operator==(const TextList&) const = default;

  std::size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  /// Valid until the list grows.
  std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {bytes_.data() + begin, ends_[i] - begin};
  }
  const_iterator begin() const { return {*this, 0}; }
  const_iterator end() const { return {*this, size()}; }
  std::vector<std::string> strings() const { return {begin(), end()}; }

  void reserve(std::size_t texts, std::size_t bytes) {
    ends_.reserve(texts);
    bytes_.reserve(bytes);
  }
  /// Whether there is room for a text of that length: all together have less than 4 GiB.
  bool fits(std::size_t length) const {
    return length <= std::numeric_limits<std::uint32_t>::max() - bytes_.size();
  }
  void push_back(std::string_view text) {
    if (!fits(text.size())) fail(ErrorCode::bad_file, "the texts of a list have more than 4 GiB together");
    bytes_.append(text);
    ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }

 private:
  std::string bytes_;
  std::vector<std::uint32_t> ends_;  // where each text ends
};

}  // namespace quipu

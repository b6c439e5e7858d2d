// Many short texts in one piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace quipu::text {

/// A list of texts that only grows: their bytes one after the other, and four bytes more a text. A vector of
/// strings takes 32 bytes for each, and 16 and more for the longer ones again.
class TextList {
 public:
  TextList() : ends_{0} {}
  /// Throws `Error` (bad_file) when the texts have 4 GiB and more together.
  explicit TextList(const std::vector<std::string>& texts) : TextList() {
    std::size_t bytes = 0;
    for (const std::string& text : texts) bytes += text.size();
    bytes_.reserve(bytes);
    ends_.reserve(texts.size() + 1);
    for (const std::string& text : texts) push_back(text);
  }

  std::size_t size() const { return ends_.size() - 1; }
  /// Valid until the list grows.
  std::string_view operator[](std::size_t i) const {
    return std::string_view(bytes_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }
  void push_back(std::string_view text) {
    if (text.size() > std::numeric_limits<std::uint32_t>::max() - bytes_.size())
      fail(ErrorCode::bad_file, "the texts of a vocabulary have more than 4 GiB together");
    bytes_.append(text);
    ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }

 private:
  std::string bytes_;
  std::vector<std::uint32_t> ends_;  // where the text before ends, from 0 on
};

}  // namespace quipu::text

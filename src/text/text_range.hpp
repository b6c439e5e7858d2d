// Texts that remember which of their bytes a template wrote.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace quipu::text {

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

/// A rendered prompt. `trusted` lists, ascending, apart and not empty, the bytes that come from the
/// template's own literals and from the model's special tokens; only they may become control tokens. All
/// other bytes come from people and tools, or their origin is not certain.
struct Rendered {
  std::string text;
  std::vector<TextRange> trusted;
};

}  // namespace quipu::text

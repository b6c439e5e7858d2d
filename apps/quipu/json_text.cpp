#include "json_text.hpp"

#include "text/unicode.hpp"

namespace quipu::app {

std::string valid_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t valid = text::valid_prefix(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    result += text::kReplacement;
    text.remove_prefix(text::decode_utf8(text, 0).length);
  }
  return result;
}

}  // namespace quipu::app

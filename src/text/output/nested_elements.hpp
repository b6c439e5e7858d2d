// Arguments as elements inside of elements, each tag behind one mark, as MiniMax M3 writes them:
// MARK<key>text MARK</key>, objects by the names of their members, lists as elements "item".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/jinja.hpp"

namespace quipu::text {

/// Finds, byte by byte, the closing tag of a call around such elements.
class NestedScanner {
 public:
  enum class Status { more, done, failed };
  NestedScanner() = default;
  /// `closing`: name of the element around the arguments.
  NestedScanner(std::string_view mark, std::string_view closing) : mark_(mark), closing_(closing) {}
  /// `done`: this byte ends the closing tag. `read` is all that was read, this byte included.
  Status push(std::string_view read);
  /// When done: what was read without the closing tag and its mark.
  std::string_view inside(std::string_view read) const {
    return read.substr(0, read.size() - mark_.size() - closing_.size() - 3);
  }
  const std::string& mark() const { return mark_; }

 private:
  std::string mark_, closing_;
  std::vector<std::string> open_;
  std::size_t tag_ = 0;  ///< where a tag begins behind its mark; 0: outside of tags
};

/// What stands between a call's tags as a JSON object. `schema` (of the parameters; may be null) says which
/// values are texts, lists and objects; elsewhere elements named "item" are a list, other elements an object,
/// and a text that is JSON counts as that. None: no such elements.
std::optional<std::string> nested_to_json(std::string_view text, std::string_view mark,
                                          const jinja::Data* schema);

}  // namespace quipu::text

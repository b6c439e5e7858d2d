// Values as models write them outside of JSON: Python literals, and Gemma's own notation.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quipu::text {

/// Appends `bytes` as the inside of a JSON text, without the quotes. Bytes from 0x80 on pass as they are.
void append_json_escaped(std::string& out, std::string_view bytes);

/// A Python literal (text, number, True, False, None, list, tuple, dict; at most 100 deep) as JSON with
/// ", " and ": " between its parts; JSON's own words are taken too. None: it is no such literal.
std::optional<std::string> python_to_json(std::string_view text);
/// The inside of a call's parentheses as a JSON object: keyword arguments, and positional ones under
/// `names` in turn. None: something else.
std::optional<std::string> python_arguments_to_json(std::string_view text,
                                                    std::span<const std::string> names);
/// {key:<|"|>text<|"|>,other:[1,true,null]}, the notation of Gemma 4. None: something else.
std::optional<std::string> gemma_to_json(std::string_view text);
/// True when `text` is one JSON value.
bool is_json(std::string_view text);

/// Finds, byte by byte, where the arguments of a Python call end.
class PythonScanner {
 public:
  enum class Status { more, done, failed };
  /// `done`: this byte is the call's closing parenthesis.
  Status push(char byte);

 private:
  std::string open_;
  char quote_ = 0;
  int run_ = 0;  ///< quotes in a row, at the start or inside of a triple quoted text
  bool triple_ = false, escaped_ = false, opening_ = false;
};

/// Finds, byte by byte, the end of {…} in Gemma's notation.
class GemmaScanner {
 public:
  enum class Status { more, done, failed };
  /// `done`: this byte completes the value.
  Status push(char byte);

 private:
  std::size_t depth_ = 0;
  std::size_t matched_ = 0;  ///< bytes of the quote mark
  bool in_text_ = false;
};

}  // namespace quipu::text

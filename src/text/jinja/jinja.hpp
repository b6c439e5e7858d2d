// Jinja templates as Hugging Face chat templates use them: compile once, render often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.hpp"
#include "text/text_range.hpp"

namespace quipu::text::jinja {

/// A value given to a template. Mappings keep their order.
struct Data {
  struct Text {
    std::string bytes;
    /// True for texts that may become control tokens, such as the model's own BOS; false for what people and
    /// tools wrote.
    bool trusted = false;
    /// Where only parts are such: these bytes, ascending, apart and not empty.
    std::vector<TextRange> trusted_parts = {};
  };
  using List = std::vector<Data>;
  using Mapping = std::vector<std::pair<std::string, Data>>;

  std::variant<std::nullptr_t, bool, std::int64_t, double, Text, List, Mapping> value = nullptr;

  Data() = default;
  Data(std::nullptr_t) {}
  Data(bool flag) : value(flag) {}
  Data(int number) : value(std::int64_t{number}) {}
  Data(std::int64_t number) : value(number) {}
  Data(double number) : value(number) {}
  Data(std::string text, bool trusted = false) : value(Text{std::move(text), trusted}) {}
  Data(Rendered text) : value(Text{std::move(text.text), false, std::move(text.trusted)}) {}
  Data(const char* text) : value(Text{text, false}) {}
  Data(List list) : value(std::move(list)) {}
  Data(Mapping mapping) : value(std::move(mapping)) {}
};

/// The value of a JSON text (RFC 8259). Integers outside of int64 become floats; of equal keys the last value
/// counts, at the place of the first. Throws `Error` (invalid_argument) that names `what` and the byte
/// offset; nesting deeper than 100 is refused.
Data parse_json(std::string_view text, std::string_view what);

/// What a template may use, whatever its author intended; beyond, rendering throws.
struct Limits {
  std::uint64_t steps = 8'000'000;  ///< nodes evaluated and elements or bytes handled
  std::size_t memory = 64 << 20;    ///< bytes of values alive at once, beside the given variables
  std::size_t output = 32 << 20;    ///< bytes of rendered text
  int depth = 500;                  ///< nested evaluations, macro calls included
  std::size_t stack = 160 << 10;    ///< bytes of machine stack, where `depth` is not reached before
};

/// The longest template source, in bytes.
inline constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
/// The deepest nesting of expressions and blocks in a source.
inline constexpr int kMaxNesting = 200;

/// What a template can do wrong. `message()` is a sentence with the line; `detail()` the bare reason, which
/// for `raised` is exactly the text given to raise_exception.
class TemplateError : public Error {
 public:
  enum class Kind {
    syntax,     ///< does not parse
    raised,     ///< raise_exception: the template refuses the conversation
    undefined,  ///< use of a value that is not there
    type,       ///< an operation on values of the wrong type
    security,   ///< a method that would change a list or mapping
    limit,      ///< ran into a limit
  };
  TemplateError(Kind kind, std::string detail, std::uint32_t line);
  Kind kind() const noexcept { return kind_; }
  const std::string& detail() const noexcept { return detail_; }
  std::uint32_t line() const noexcept { return line_; }

 private:
  Kind kind_;
  std::string detail_;
  std::uint32_t line_;
};

struct Program;

/// An immutable compiled template; may be rendered from several threads at once.
///
/// The environment is that of transformers' apply_chat_template: Jinja 3.1, immutable sandbox, trim_blocks,
/// lstrip_blocks, no autoescape, loop controls, `generation` blocks, tojson as json.dumps, raise_exception,
/// strftime_now. Beyond it: integers are 64 bits wide and an overflow is an error.
class Template {
 public:
  /// Throws `TemplateError` (syntax).
  explicit Template(std::string_view source);

  using Variables = std::vector<std::pair<std::string, Data>>;
  using Clock = std::function<std::tm()>;
  /// Of equal variables the last one counts. `clock` gives local time to strftime_now; none: the machine's.
  /// Throws `TemplateError`.
  Rendered render(const Variables& variables, const Limits& limits = {}, const Clock& clock = {}) const;

 private:
  std::shared_ptr<const Program> program_;
};

}  // namespace quipu::text::jinja

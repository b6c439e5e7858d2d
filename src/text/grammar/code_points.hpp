// Classes of characters and the bytes that write them.
#pragma once

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/expression.hpp"

namespace quipu::text::grammar {

/// A set of code points as ascending ranges, ends included. Surrogates are never members.
class CodePoints {
 public:
  using Range = std::pair<char32_t, char32_t>;
  CodePoints() = default;
  CodePoints(std::initializer_list<Range> ranges);
  explicit CodePoints(std::vector<Range> ranges);
  static CodePoints all();
  /// All but the line ends of ECMA-262: what its dot matches.
  static CodePoints dot();
  static CodePoints digits(), word(), space();  ///< \d, \w, \s of ECMA-262
  /// A general category of Unicode such as "L" or "Lu"; empty when there is none of that name.
  static CodePoints category(std::string_view name);

  void add(const CodePoints& other);
  CodePoints complement() const;
  CodePoints intersection(const CodePoints& other) const;
  bool has(char32_t value) const;
  bool empty() const { return ranges_.empty(); }
  std::size_t size() const;
  const std::vector<Range>& ranges() const { return ranges_; }
  auto operator<=>(const CodePoints&) const = default;

 private:
  void normalise();
  std::vector<Range> ranges_;
};

/// How characters become bytes.
enum class Encoding {
  utf8,
  json,        ///< inside a JSON string: raw, or any of JSON's escapes for the character
  json_usual,  ///< inside a JSON string: raw where JSON allows it, else its escape
};

/// Makes expressions for characters, of one store and one encoding.
class Encoder {
 public:
  Encoder(Store& store, Encoding encoding) : store_(&store), encoding_(encoding) {}

  Store& store() { return *store_; }
  Encoding encoding() const { return encoding_; }
  /// One character of a class: all of its spellings.
  Id one_of(const CodePoints& set);
  Id any() { return one_of(CodePoints::all()); }
  Id any_text() { return store_->repeat(any(), 0, kUnbounded); }
  /// A text with all of its spellings. Invalid UTF-8 is U+FFFD.
  Id text(std::string_view utf8);

 private:
  Id utf8(const CodePoints& set);
  Id utf8_range(char32_t low, char32_t high);
  Id escapes(const CodePoints& set);
  Id hexadecimal(std::uint32_t low, std::uint32_t high);
  Id surrogates(char32_t low, char32_t high);

  Store* store_;
  Encoding encoding_;
  std::map<CodePoints, Id> made_;
};

/// The usual spelling of a text inside a JSON string: raw wherever JSON allows it, else the short escape,
/// else \u00xx.
std::string json_escaped(std::string_view utf8);

}  // namespace quipu::text::grammar

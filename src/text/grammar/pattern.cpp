#include "text/grammar/pattern.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "text/unicode.hpp"

namespace quipu::text::grammar {

namespace {

constexpr int kMaxPatternGroups = 100;  // nested

struct Piece {
  enum class Kind { set, sequence, alternation, repeat, start, end, lookahead } kind = Kind::sequence;
  CodePoints set;
  std::vector<Piece> parts;
  std::uint32_t low = 1, high = 1;
  bool negative = false;    // lookahead
  bool assertions = false;  // an anchor or a lookahead inside
  std::size_t offset = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {}

  Piece run() {
    if (source_.size() > kMaxPattern)
      fail(ErrorCode::unsupported, "a pattern of {} bytes is too long, at most {} are possible",
           source_.size(), kMaxPattern);
    Piece piece = alternation(0);
    if (!done()) refuse("a ')' without a group");
    return piece;
  }

  [[noreturn]] void refuse(std::string_view what, ErrorCode code = ErrorCode::invalid_argument) const {
    refuse_at(position_, what, code);
  }
  [[noreturn]] void refuse_at(std::size_t offset, std::string_view what, ErrorCode code) const {
    fail(code, "the pattern \"{}\" has {} at offset {}", printable(source_, 100), what, offset);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    refuse(fmt::format("{}, which is not supported,", what), ErrorCode::unsupported);
  }

 private:
  bool done() const { return position_ >= source_.size(); }
  char peek() const { return done() ? '\0' : source_[position_]; }
  bool accept(std::string_view text) {
    if (source_.compare(position_, text.size(), text) != 0) return false;
    position_ += text.size();
    return true;
  }
  char32_t character() {
    if (done()) refuse("its end where a character is due");
    const DecodedChar next = decode_utf8(source_, position_);
    if (!next.valid) refuse("invalid UTF-8");
    position_ += next.length;
    return next.value;
  }

  Piece alternation(int depth) {
    if (depth > kMaxPatternGroups) refuse("groups nested too deep", ErrorCode::unsupported);
    Piece result;
    result.kind = Piece::Kind::alternation;
    result.parts.push_back(sequence(depth));
    while (accept("|")) result.parts.push_back(sequence(depth));
    if (result.parts.size() == 1) return std::move(result.parts.front());
    for (const Piece& part : result.parts) result.assertions |= part.assertions;
    return result;
  }

  Piece sequence(int depth) {
    Piece result;
    while (!done() && peek() != '|' && peek() != ')') {
      const std::size_t offset = position_;
      Piece piece = atom(depth);
      piece.offset = offset;
      result.parts.push_back(quantified(std::move(piece)));
      result.assertions |= result.parts.back().assertions;
    }
    return result;
  }

  std::optional<std::uint32_t> number() {
    const std::size_t begin = position_;
    std::uint64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++position_)
      value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(peek() - '0'), kUnbounded);
    if (position_ == begin) return std::nullopt;
    if (value >= kUnbounded) refuse("a count beyond 32 bits", ErrorCode::unsupported);
    return static_cast<std::uint32_t>(value);
  }

  /// {m}, {m,}, {m,n}; nothing (and no move) when the brace is an ordinary character.
  bool braces(std::uint32_t& low, std::uint32_t& high) {
    const std::size_t begin = position_;
    ++position_;
    if (const auto first = number()) {
      low = high = *first;
      if (accept(",")) high = number().value_or(kUnbounded);
      if (accept("}")) {
        if (low > high) refuse("counts out of order");
        return true;
      }
    }
    position_ = begin;
    return false;
  }

  Piece quantified(Piece piece) {
    std::uint32_t low = 1, high = 1;
    if (accept("*")) {
      low = 0, high = kUnbounded;
    } else if (accept("+")) {
      high = kUnbounded;
    } else if (accept("?")) {
      low = 0;
    } else if (peek() != '{' || !braces(low, high)) {
      return piece;
    }
    if (piece.kind == Piece::Kind::start || piece.kind == Piece::Kind::end)
      refuse_at(piece.offset, "an anchor with a count", ErrorCode::invalid_argument);
    accept("?");  // lazy: the same texts
    if (peek() == '*' || peek() == '+' || peek() == '?') refuse("nothing to repeat");
    Piece result;
    result.kind = Piece::Kind::repeat;
    result.low = low;
    result.high = high;
    result.assertions = piece.assertions;
    result.offset = piece.offset;
    result.parts.push_back(std::move(piece));
    return result;
  }

  static Piece of(CodePoints set) {
    Piece piece;
    piece.kind = Piece::Kind::set;
    piece.set = std::move(set);
    return piece;
  }
  static Piece assertion(Piece::Kind kind) {
    Piece piece;
    piece.kind = kind;
    piece.assertions = true;
    return piece;
  }

  Piece atom(int depth) {
    if (accept("^")) return assertion(Piece::Kind::start);
    if (accept("$")) return assertion(Piece::Kind::end);
    if (accept(".")) return of(CodePoints::dot());
    if (peek() == '(') return group(depth);
    if (peek() == '[') return of(char_class());
    if (peek() == '\\') return of(escape(false).first);
    if (peek() == '*' || peek() == '+' || peek() == '?') refuse("nothing to repeat");
    if (std::uint32_t low = 0, high = 0; peek() == '{' && braces(low, high)) refuse("nothing to repeat");
    const char32_t c = character();
    return of({{c, c}});
  }

  Piece group(int depth) {
    ++position_;
    Piece result;
    if (accept("?=") || accept("?!")) {
      const bool negative = source_[position_ - 1] == '!';
      result = assertion(Piece::Kind::lookahead);
      result.negative = negative;
      result.parts.push_back(alternation(depth + 1));
    } else if (accept("?<=") || accept("?<!")) {
      unsupported("lookbehind");
    } else {
      if (accept("?<") || accept("?P<")) {
        while (!done() && peek() != '>') ++position_;
        if (!accept(">")) refuse("a group name without an end");
      } else if (!accept("?:") && peek() == '?') {
        unsupported("a group of this kind");
      }
      result = alternation(depth + 1);
    }
    if (!accept(")")) refuse("a group without an end");
    return result;
  }

  CodePoints char_class() {
    ++position_;
    const bool negative = accept("^");
    std::vector<CodePoints::Range> ranges;
    const auto add = [&](const CodePoints& set) {
      ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
    };
    while (!accept("]")) {
      if (done()) refuse("a class without an end");
      const auto [first, single] = class_atom();
      const bool range = peek() == '-' && position_ + 1 < source_.size() && source_[position_ + 1] != ']';
      if (!range || !single) {  // in [\w-x] the hyphen is itself
        add(first);
        continue;
      }
      ++position_;
      const auto [last, last_single] = class_atom();
      if (!last_single) {
        add(first);
        add({{'-', '-'}});
        add(last);
        continue;
      }
      const char32_t low = first.ranges().front().first, high = last.ranges().front().first;
      if (low > high) refuse("a range out of order");
      ranges.emplace_back(low, high);
    }
    const CodePoints set(std::move(ranges));
    return negative ? set.complement() : set;
  }

  /// A member of a class, and whether it is one character.
  std::pair<CodePoints, bool> class_atom() {
    if (peek() == '\\') return escape(true);
    const char32_t c = character();
    return {{{c, c}}, true};
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++position_) {
      const char c = peek();
      if (c >= '0' && c <= '9')
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
      else
        refuse("an escape without its hexadecimal digits");
    }
    return value;
  }

  char32_t unicode_escape() {
    if (accept("{")) {
      char32_t value = 0;
      do value = value * 16 + hex(1);
      while (value <= 0x10ffff && !done() && peek() != '}');
      if (value > 0x10ffff || !accept("}")) refuse("no code point");
      return value;
    }
    char32_t value = hex(4);
    if (value >= 0xd800 && value < 0xdc00 && accept("\\u")) {
      const char32_t low = hex(4);
      if (low < 0xdc00 || low > 0xdfff) refuse("half of a surrogate pair");
      value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
    }
    return value;
  }

  CodePoints property() {
    if (!accept("{")) refuse("a property without its name");
    const std::size_t end = source_.find('}', position_);
    if (end == std::string_view::npos) refuse("a property without its end");
    std::string_view name = source_.substr(position_, end - position_);
    for (const std::string_view prefix : {"General_Category=", "gc="})
      if (name.substr(0, prefix.size()) == prefix) name.remove_prefix(prefix.size());
    struct Long {
      std::string_view name, category;
    };
    constexpr Long kLong[] = {
        {"Letter", "L"},          {"Lowercase_Letter", "Ll"}, {"Uppercase_Letter", "Lu"},
        {"Number", "N"},          {"Decimal_Number", "Nd"},   {"Punctuation", "P"},
        {"Symbol", "S"},          {"Separator", "Z"},         {"Mark", "M"},
        {"Space_Separator", "Zs"}};
    for (const Long& known : kLong)
      if (name == known.name) name = known.category;
    CodePoints set = CodePoints::category(name);
    if (set.empty()) unsupported(fmt::format("the property {}", printable(name, 40)));
    position_ = end + 1;
    return set;
  }

  std::pair<CodePoints, bool> escape(bool in_class) {
    ++position_;
    if (done()) refuse("a backslash at the end");
    const char32_t c = character();
    const auto one = [](char32_t value) { return std::pair<CodePoints, bool>{{{value, value}}, true}; };
    switch (c) {
      case 'd':
        return {CodePoints::digits(), false};
      case 'D':
        return {CodePoints::digits().complement(), false};
      case 'w':
        return {CodePoints::word(), false};
      case 'W':
        return {CodePoints::word().complement(), false};
      case 's':
        return {CodePoints::space(), false};
      case 'S':
        return {CodePoints::space().complement(), false};
      case 'p':
        return {property(), false};
      case 'P':
        return {property().complement(), false};
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'x':
        return one(hex(2));
      case 'u': {
        const char32_t value = unicode_escape();
        if (value >= 0xd800 && value <= 0xdfff) return {CodePoints(), false};  // never in a text
        return one(value);
      }
      case 'c': {
        const char32_t letter = character();
        if ((letter | 0x20) < 'a' || (letter | 0x20) > 'z') refuse("no control letter");
        return one(letter & 0x1f);
      }
      case 'b':
        if (in_class) return one('\b');
        unsupported("a word boundary");
      case 'B':
        unsupported("a word boundary");
      case 'k':
        unsupported("a backreference");
      default:
        break;
    }
    if (c >= '1' && c <= '9') unsupported("a backreference");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) refuse("an escape that does not exist");
    return one(c);
  }

  std::string_view source_;
  std::size_t position_ = 0;
};

/// Compiles from the right: `rest` is the language of what follows, which assertions look at.
class Compiler {
 public:
  Compiler(Encoder& encoder, const Parser& parser)
      : encoder_(encoder), store_(encoder.store()), parser_(parser) {}

  /// What is certain about the place in the text.
  enum class Place { start, unknown, inside };

  Id compile(const Piece& piece, Id rest, Place place) {
    switch (piece.kind) {
      case Piece::Kind::set:
        return store_.concat(encoder_.one_of(piece.set), rest);
      case Piece::Kind::sequence:
        return sequence(piece, rest, place);
      case Piece::Kind::alternation: {
        std::vector<Id> parts;
        for (const Piece& part : piece.parts) parts.push_back(compile(part, rest, place));
        return store_.choice(std::move(parts));
      }
      case Piece::Kind::repeat:
        return repeat(piece, rest, place);
      case Piece::Kind::start:
        if (place == Place::unknown)
          parser_.refuse_at(piece.offset, "a '^' after something optional, which is not supported,",
                            ErrorCode::unsupported);
        return place == Place::start ? rest : kNever;
      case Piece::Kind::end:
        return store_.nullable(rest) ? kEmpty : kNever;
      case Piece::Kind::lookahead: {
        const Id ahead = compile(piece.parts.front(), encoder_.any_text(), place);
        return store_.both(piece.negative ? store_.complement(ahead) : ahead, rest);
      }
    }
    return kNever;
  }

 private:
  Id sequence(const Piece& piece, Id rest, Place place) {
    std::vector<Place> places;
    for (const Piece& part : piece.parts) {
      places.push_back(place);
      const Width width = width_of(part);
      if (width == Width::some) place = Place::inside;
      if (width == Width::perhaps && place == Place::start) place = Place::unknown;
    }
    for (std::size_t i = piece.parts.size(); i-- > 0;) rest = compile(piece.parts[i], rest, places[i]);
    return rest;
  }

  Id repeat(const Piece& piece, Id rest, Place place) {
    const Piece& body = piece.parts.front();
    if (!body.assertions)
      return store_.concat(store_.repeat(compile(body, kEmpty, place), piece.low, piece.high), rest);
    if (piece.high == 0) return rest;
    if (piece.high > 1)
      parser_.refuse_at(piece.offset, "an anchor or lookahead in a repeat, which is not supported,",
                        ErrorCode::unsupported);
    const Id once = compile(body, rest, place);
    return piece.low == 0 ? store_.choice(once, rest) : once;
  }

  enum class Width { none, perhaps, some };
  static Width width_of(const Piece& piece) {
    switch (piece.kind) {
      case Piece::Kind::set:
        return Width::some;
      case Piece::Kind::start:
      case Piece::Kind::end:
      case Piece::Kind::lookahead:
        return Width::none;
      case Piece::Kind::repeat: {
        if (piece.high == 0) return Width::none;
        const Width body = width_of(piece.parts.front());
        return piece.low == 0 && body == Width::some ? Width::perhaps : body;
      }
      case Piece::Kind::sequence: {
        Width width = Width::none;
        for (const Piece& part : piece.parts) width = std::max(width, width_of(part));
        return width;
      }
      case Piece::Kind::alternation: {
        Width least = Width::some, most = Width::none;
        for (const Piece& part : piece.parts) {
          least = std::min(least, width_of(part));
          most = std::max(most, width_of(part));
        }
        return least == most ? least : Width::perhaps;
      }
    }
    return Width::perhaps;
  }

  Encoder& encoder_;
  Store& store_;
  const Parser& parser_;
};

}  // namespace

Id pattern(Encoder& encoder, std::string_view source, Anchoring anchoring) {
  Parser parser(source);
  const Piece piece = parser.run();
  Compiler compiler(encoder, parser);
  using Place = Compiler::Place;
  if (anchoring == Anchoring::whole) return compiler.compile(piece, kEmpty, Place::start);
  Store& store = encoder.store();
  const Id any = encoder.any_text();
  const Id at_start = compiler.compile(piece, any, Place::start);
  const Id later = compiler.compile(piece, any, Place::inside);
  if (later == at_start) return store.concat(any, at_start);
  return store.choice(at_start, store.concat({encoder.any(), any, later}));
}

}  // namespace quipu::text::grammar

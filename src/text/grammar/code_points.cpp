#include "text/grammar/code_points.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "text/unicode.hpp"

namespace quipu::text::grammar {

namespace {

constexpr char32_t kLast = 0x10ffff, kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;
/// More characters than this make a class a large one.
constexpr std::size_t kWide = 20;

struct ShortEscape {
  char32_t value;
  unsigned char letter;
};
constexpr std::array<ShortEscape, 8> kShortEscapes{
    {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

/// Numbers from low to high, written with `digits` digits of `bits` bits each, every digit by `write`.
template <class Write>
Id digit_range(Store& store, std::uint32_t low, std::uint32_t high, unsigned digits, unsigned bits,
               const Write& write) {
  if (digits == 0) return kEmpty;
  const unsigned shift = (digits - 1) * bits;
  const std::uint32_t rest = (std::uint32_t{1} << shift) - 1;
  const std::uint32_t first = low >> shift, last = high >> shift;
  const auto below = [&](std::uint32_t l, std::uint32_t h) {
    return digit_range(store, l & rest, h & rest, digits - 1, bits, write);
  };
  if (first == last) return store.concat(write(digits, first, first), below(low, high));
  std::vector<Id> parts;
  std::uint32_t begin = first, end = last;
  if ((low & rest) != 0) parts.push_back(store.concat(write(digits, begin++, first), below(low, rest)));
  if ((high & rest) != rest) parts.push_back(store.concat(write(digits, end--, last), below(0, high)));
  if (begin <= end) parts.push_back(store.concat(write(digits, begin, end), below(0, rest)));
  return store.choice(std::move(parts));
}

ByteSet hex_digits(std::uint32_t low, std::uint32_t high) {
  ByteSet set;
  for (std::uint32_t d = low; d <= high; ++d) {
    set.add(d < 10 ? '0' + d : 'a' + d - 10);
    set.add(d < 10 ? '0' + d : 'A' + d - 10);
  }
  return set;
}

}  // namespace

// ---- sets ----

CodePoints::CodePoints(std::initializer_list<Range> ranges) : ranges_(ranges) { normalise(); }
CodePoints::CodePoints(std::vector<Range> ranges) : ranges_(std::move(ranges)) { normalise(); }

CodePoints CodePoints::all() { return {{0, kLast}}; }
CodePoints CodePoints::dot() { return CodePoints{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.complement(); }
CodePoints CodePoints::digits() { return {{'0', '9'}}; }
CodePoints CodePoints::word() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CodePoints CodePoints::space() {
  return {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
          {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
}

CodePoints CodePoints::category(std::string_view name) {
  CodePoints set;
  if (name.empty() || name.size() > 2) return set;
  const auto matches = [&](char32_t value) {
    const std::string_view category = utf8proc_category_string(static_cast<utf8proc_int32_t>(value));
    return category.substr(0, name.size()) == name;
  };
  char32_t begin = 0;
  bool inside = false;
  for (char32_t value = 0; value <= kLast + 1; ++value) {
    const bool in = value <= kLast && matches(value);
    if (in && !inside) begin = value;
    if (!in && inside) set.ranges_.emplace_back(begin, value - 1);
    inside = in;
  }
  set.normalise();
  return set;
}

void CodePoints::normalise() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<Range> merged;
  for (const auto& [low, high] : ranges_) {
    if (!merged.empty() && low <= merged.back().second + 1)
      merged.back().second = std::max(merged.back().second, high);
    else
      merged.emplace_back(low, high);
  }
  ranges_.clear();
  for (const auto& [low, high] : merged) {
    if (low < kFirstSurrogate) ranges_.emplace_back(low, std::min<char32_t>(high, kFirstSurrogate - 1));
    if (high > kLastSurrogate) ranges_.emplace_back(std::max<char32_t>(low, kLastSurrogate + 1), high);
  }
}

void CodePoints::add(const CodePoints& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalise();
}

CodePoints CodePoints::complement() const {
  CodePoints result;
  char32_t next = 0;
  for (const auto& [low, high] : ranges_) {
    if (low > next) result.ranges_.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kLast) result.ranges_.emplace_back(next, kLast);
  result.normalise();
  return result;
}

CodePoints CodePoints::intersection(const CodePoints& other) const {
  CodePoints result = complement();
  result.add(other.complement());
  return result.complement();
}

bool CodePoints::has(char32_t value) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& r) { return r.first <= value && value <= r.second; });
}

std::size_t CodePoints::size() const {
  std::size_t count = 0;
  for (const auto& [low, high] : ranges_) count += high - low + 1;
  return count;
}

// ---- bytes ----

Id Encoder::utf8_range(char32_t low, char32_t high) {
  struct Form {
    char32_t last;
    unsigned digits, lead;
  };
  constexpr std::array<Form, 4> kForms{{{0x7f, 1, 0}, {0x7ff, 2, 0xc0}, {0xffff, 3, 0xe0}, {kLast, 4, 0xf0}}};
  std::vector<Id> parts;
  for (const Form& form : kForms) {
    if (low > form.last || low > high) continue;
    const char32_t end = std::min(high, form.last);
    if (form.digits == 1) {
      parts.push_back(store_->bytes(ByteSet::range(low, end)));
    } else {
      parts.push_back(digit_range(*store_, low, end, form.digits, 6,
                                  [&](unsigned digit, std::uint32_t first, std::uint32_t last) {
                                    const unsigned base = digit == form.digits ? form.lead : 0x80;
                                    return store_->bytes(ByteSet::range(base + first, base + last));
                                  }));
    }
    low = end + 1;
  }
  return store_->choice(std::move(parts));
}

Id Encoder::utf8(const CodePoints& set) {
  std::vector<Id> parts;
  for (const auto& [low, high] : set.ranges()) parts.push_back(utf8_range(low, high));
  return store_->choice(std::move(parts));
}

Id Encoder::hexadecimal(std::uint32_t low, std::uint32_t high) {
  return digit_range(*store_, low, high, 4, 4, [&](unsigned, std::uint32_t first, std::uint32_t last) {
    return store_->bytes(hex_digits(first, last));
  });
}

Id Encoder::surrogates(char32_t low, char32_t high) {
  const std::uint32_t first = low - 0x10000, last = high - 0x10000;
  return digit_range(*store_, first, last, 2, 10, [&](unsigned digit, std::uint32_t l, std::uint32_t h) {
    return digit == 2 ? hexadecimal(0xd800 + l, 0xd800 + h)
                      : store_->concat(store_->literal("\\u"), hexadecimal(0xdc00 + l, 0xdc00 + h));
  });
}

Id Encoder::escapes(const CodePoints& set) {
  if (set.empty()) return kNever;
  ByteSet letters;
  for (const ShortEscape& escape : kShortEscapes) {
    if (set.has(escape.value)) letters.add(escape.letter);
  }
  std::vector<Id> codes;
  for (const auto& [low, high] : set.ranges()) {
    if (low <= 0xffff) codes.push_back(hexadecimal(low, std::min<char32_t>(high, 0xffff)));
    if (high > 0xffff) codes.push_back(surrogates(std::max<char32_t>(low, 0x10000), high));
  }
  return store_->concat(store_->byte('\\'),
                        store_->choice(store_->bytes(letters),
                                       store_->concat(store_->byte('u'), store_->choice(std::move(codes)))));
}

Id Encoder::one_of(const CodePoints& set) {
  const auto [it, fresh] = made_.emplace(set, kNever);
  if (!fresh || set.empty()) return it->second;
  Id id = kNever;
  if (encoding_ == Encoding::utf8) {
    id = utf8(set);
  } else {
    static const CodePoints must_escape{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    const CodePoints escaped = encoding_ == Encoding::json ? set : set.intersection(must_escape);
    id = store_->choice(utf8(set.intersection(must_escape.complement())), escapes(escaped));
  }
  return it->second = store_->unit(id, set.size() > kWide, set == CodePoints::all());
}

Id Encoder::text(std::string_view utf8) {
  std::vector<char32_t> characters;
  for (std::size_t i = 0; i < utf8.size();) {
    const DecodedChar next = decode_utf8(utf8, i);
    characters.push_back(next.value);
    i += next.length;
  }
  Id id = kEmpty;
  for (std::size_t i = characters.size(); i-- > 0;)
    id = store_->concat(one_of({{characters[i], characters[i]}}), id);
  return id;
}

std::string json_escaped(std::string_view utf8) {
  std::string out;
  for (const char c : utf8) {
    const auto value = static_cast<unsigned char>(c);
    const auto it = std::find_if(kShortEscapes.begin(), kShortEscapes.end(), [&](const ShortEscape& escape) {
      return escape.value == value && value != '/';
    });
    if (it != kShortEscapes.end()) {
      out += '\\';
      out += static_cast<char>(it->letter);
    } else if (value < 0x20) {
      out += fmt::format("\\u{:04x}", value);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace quipu::text::grammar

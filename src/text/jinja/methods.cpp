// Methods of strings, mappings and lists.
#include <algorithm>

#include "text/jinja/arguments.hpp"
#include "text/jinja/lexer.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

namespace {

using C = Context;
using A = Arguments;

/// [begin, end) in bytes of the optional arguments `start` and `end` at `index`.
TextRange bounds(C& c, const Text& text, const A& a, std::size_t index) {
  const auto clamp = [&](const Value& value, std::int64_t otherwise) {
    if (!given(value) || value.is(Kind::none)) return otherwise;
    std::int64_t i = int_argument(c, value, 0);
    if (i < 0) i = std::max<std::int64_t>(0, i + text.length);
    return i;
  };
  const std::int64_t from = clamp(a.positional[index], 0);
  const std::int64_t to = std::min(clamp(a.positional[index + 1], text.length), text.length);
  if (from > to) return {1, 0};
  return {c.byte_offset(text, from), c.byte_offset(text, to)};
}

bool affix(C& c, const Value& self, const A& a, bool at_end) {
  const TextRange range = bounds(c, self.text(), a, 1);
  if (range.begin > range.end) return false;
  const std::string_view part =
      std::string_view(self.text().bytes).substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& value) {
    const std::string& other = text_argument(c, value).bytes;
    return at_end ? part.ends_with(other) : part.starts_with(other);
  };
  const Value& wanted = argument(a, 0);
  if (!wanted.is(Kind::list) || !wanted.list().tuple) return matches(wanted);
  return std::any_of(wanted.list().items.begin(), wanted.list().items.end(), matches);
}
Value startswith(C& c, const Value& s, A& a) { return Value(affix(c, s, a, false)); }
Value endswith(C& c, const Value& s, A& a) { return Value(affix(c, s, a, true)); }

Value strip_both(C& c, const Value& s, A& a) { return strip(c, s, argument(a, 0), true, true); }
Value strip_left(C& c, const Value& s, A& a) { return strip(c, s, argument(a, 0), true, false); }
Value strip_right(C& c, const Value& s, A& a) { return strip(c, s, argument(a, 0), false, true); }
Value lower(C& c, const Value& s, A&) { return change_case(c, s, Case::lower); }
Value upper(C& c, const Value& s, A&) { return change_case(c, s, Case::upper); }
Value capital(C& c, const Value& s, A&) { return capitalize(c, s); }

bool is_cased(char32_t ch) { return map_case(ch, Case::lower) != ch || map_case(ch, Case::upper) != ch; }

Value rewrite_case(C& c, const Value& s, bool title) {
  const std::string& bytes = s.text().bytes;
  c.step(bytes.size() / 8);
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i < bytes.size();) {
    const DecodedChar next = decode_utf8(bytes, i);
    const char32_t low = map_case(next.value, Case::lower);
    const char32_t high = map_case(next.value, Case::upper);
    char32_t to = title ? (inside ? low : high) : (next.value == low ? high : low);
    inside = is_cased(next.value);
    if (next.valid)
      append_utf8(out, to);
    else
      out.append(bytes, i, next.length);
    i += next.length;
  }
  return c.text(std::move(out));
}
Value title(C& c, const Value& s, A&) { return rewrite_case(c, s, true); }
Value swapcase(C& c, const Value& s, A&) { return rewrite_case(c, s, false); }

Value split_white(C& c, const Value& s, std::int64_t limit, bool from_right) {
  const std::string& bytes = s.text().bytes;
  std::vector<TextRange> parts;
  for (std::size_t i = skip_space(bytes, 0); i < bytes.size();) {
    std::size_t end = i;
    while (end < bytes.size()) {
      const DecodedChar next = decode_utf8(bytes, end);
      if (next.valid && is_python_space(next.value)) break;
      end += next.length;
    }
    parts.push_back({i, end});
    i = skip_space(bytes, end);
  }
  c.step(bytes.size() / 4 + parts.size() * 4);
  // What is beyond the limit stays one part, with the white space inside.
  const auto most = static_cast<std::size_t>(limit < 0 ? 0 : limit) + 1;
  if (limit >= 0 && parts.size() >= most) {
    if (from_right) {
      const std::size_t joined = parts.size() - most;
      parts[joined].begin = 0;
      parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(joined));
    } else {
      parts.resize(most);
      parts.back().end = bytes.size();
    }
  }
  std::vector<Value> items;
  for (const TextRange& part : parts) items.push_back(c.slice(s, part.begin, part.end));
  return c.list(std::move(items));
}

Value split_any(C& c, const Value& s, const A& a, bool from_right) {
  const std::int64_t limit = int_argument(c, argument(a, 1), -1);
  if (!given(argument(a, 0)) || argument(a, 0).is(Kind::none)) return split_white(c, s, limit, from_right);
  const std::string& separator = text_argument(c, argument(a, 0)).bytes;
  if (separator.empty()) c.fail_type("split() got an empty separator");
  const std::string& bytes = s.text().bytes;
  c.step(bytes.size() / 16);
  std::vector<std::size_t> places;
  if (from_right) {
    for (std::size_t end = bytes.size(); limit < 0 || static_cast<std::int64_t>(places.size()) < limit;) {
      if (end < separator.size()) break;
      const std::size_t found = bytes.rfind(separator, end - separator.size());
      if (found == std::string::npos) break;
      places.push_back(found);
      end = found;
    }
    std::reverse(places.begin(), places.end());
  } else {
    for (std::size_t i = 0; limit < 0 || static_cast<std::int64_t>(places.size()) < limit;) {
      const std::size_t found = bytes.find(separator, i);
      if (found == std::string::npos) break;
      places.push_back(found);
      i = found + separator.size();
    }
  }
  c.step(places.size() * 5);
  std::vector<Value> items;
  std::size_t begin = 0;
  for (const std::size_t place : places) {
    items.push_back(c.slice(s, begin, place));
    begin = place + separator.size();
  }
  items.push_back(c.slice(s, begin, bytes.size()));
  return c.list(std::move(items));
}
Value split(C& c, const Value& s, A& a) { return split_any(c, s, a, false); }
Value rsplit(C& c, const Value& s, A& a) { return split_any(c, s, a, true); }

Value splitlines(C& c, const Value& s, A& a) {
  std::vector<Value> items;
  c.step(s.text().bytes.size() / 4);
  for (const TextRange& line : split_lines(s.text().bytes, flag_argument(c, argument(a, 0), false)))
    items.push_back(c.slice(s, line.begin, line.end));
  return c.list(std::move(items));
}

Value partition_at(C& c, const Value& s, const A& a, bool last) {
  const std::string& separator = text_argument(c, argument(a, 0)).bytes;
  const std::string& bytes = s.text().bytes;
  if (separator.empty()) c.fail_type("partition() got an empty separator");
  const std::size_t found = last ? bytes.rfind(separator) : bytes.find(separator);
  std::vector<Value> items;
  if (found == std::string::npos) {
    items =
        last ? std::vector<Value>{c.text(""), c.text(""), s} : std::vector<Value>{s, c.text(""), c.text("")};
  } else {
    items.push_back(c.slice(s, 0, found));
    items.push_back(argument(a, 0));
    items.push_back(c.slice(s, found + separator.size(), bytes.size()));
  }
  return c.list(std::move(items), true);
}
Value partition(C& c, const Value& s, A& a) { return partition_at(c, s, a, false); }
Value rpartition(C& c, const Value& s, A& a) { return partition_at(c, s, a, true); }

Value do_replace(C& c, const Value& s, A& a) {
  return replace(c, s, text_argument(c, argument(a, 0)), argument(a, 1), int_argument(c, argument(a, 2), -1));
}
Value join_elements(C& c, const Value& s, A& a) { return join(c, s, c.elements(argument(a, 0)), false); }
Value format(C& c, const Value& s, A& a) { return c.brace_format(s.text(), a); }

Value find_in(C& c, const Value& s, const A& a, bool last, bool must) {
  const TextRange range = bounds(c, s.text(), a, 1);
  const std::string& wanted = text_argument(c, argument(a, 0)).bytes;
  c.step(s.text().bytes.size() / 16);
  if (range.begin <= range.end) {
    const std::string_view part =
        std::string_view(s.text().bytes).substr(range.begin, range.end - range.begin);
    const std::size_t found = last ? part.rfind(wanted) : part.find(wanted);
    if (found != std::string_view::npos) {
      std::int64_t index = 0;
      for (std::size_t i = 0; i < range.begin + found; ++index) i += decode_utf8(s.text().bytes, i).length;
      return Value(index);
    }
  }
  if (must) c.fail_type("the substring was not found");
  return Value(std::int64_t{-1});
}
Value find(C& c, const Value& s, A& a) { return find_in(c, s, a, false, false); }
Value rfind(C& c, const Value& s, A& a) { return find_in(c, s, a, true, false); }
Value index(C& c, const Value& s, A& a) { return find_in(c, s, a, false, true); }
Value rindex(C& c, const Value& s, A& a) { return find_in(c, s, a, true, true); }

Value count(C& c, const Value& s, A& a) {
  const TextRange range = bounds(c, s.text(), a, 1);
  const std::string& wanted = text_argument(c, argument(a, 0)).bytes;
  c.step(s.text().bytes.size() / 16);
  if (range.begin > range.end) return Value(std::int64_t{0});
  const std::string_view part = std::string_view(s.text().bytes).substr(range.begin, range.end - range.begin);
  if (wanted.empty()) return Value(s.text().length + 1);
  std::int64_t found = 0;
  for (std::size_t i = part.find(wanted); i != std::string_view::npos;
       i = part.find(wanted, i + wanted.size()))
    ++found;
  return Value(found);
}

Value remove_prefix(C& c, const Value& s, A& a) {
  const std::string& prefix = text_argument(c, argument(a, 0)).bytes;
  const std::string& bytes = s.text().bytes;
  return bytes.starts_with(prefix) ? c.slice(s, prefix.size(), bytes.size()) : s;
}
Value remove_suffix(C& c, const Value& s, A& a) {
  const std::string& suffix = text_argument(c, argument(a, 0)).bytes;
  const std::string& bytes = s.text().bytes;
  return bytes.ends_with(suffix) ? c.slice(s, 0, bytes.size() - suffix.size()) : s;
}

Value justified(C& c, const Value& s, const A& a, char align) {
  const std::string fill = given(argument(a, 1)) ? text_argument(c, argument(a, 1)).bytes : " ";
  return justify(c, s, int_argument(c, argument(a, 0), 0), fill, align);
}
Value center(C& c, const Value& s, A& a) { return justified(c, s, a, '^'); }
Value ljust(C& c, const Value& s, A& a) { return justified(c, s, a, '<'); }
Value rjust(C& c, const Value& s, A& a) { return justified(c, s, a, '>'); }
Value zfill(C& c, const Value& s, A& a) {
  const std::string& bytes = s.text().bytes;
  const std::int64_t width = int_argument(c, argument(a, 0), 0);
  if (bytes.empty() || (bytes[0] != '-' && bytes[0] != '+')) return justify(c, s, width, "0", '>');
  const Value rest = justify(c, c.slice(s, 1, bytes.size()), width - 1, "0", '>');
  return c.concat(c.slice(s, 0, 1), rest, false);
}

/// True when the text is not empty and every character is of the class.
template <class Is>
Value all_characters(C& c, const Value& s, Is is) {
  const std::string& bytes = s.text().bytes;
  c.step(bytes.size() / 8);
  for (std::size_t i = 0; i < bytes.size();) {
    const DecodedChar next = decode_utf8(bytes, i);
    if (!is(next.value)) return Value(false);
    i += next.length;
  }
  return Value(!bytes.empty());
}
bool digit(char32_t ch) { return ch >= '0' && ch <= '9'; }
bool letter(char32_t ch) {
  return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
         (ch >= 0xc0 && !is_white_space(ch) && (ch < 0x2000 || ch > 0x206f));
}
Value isdigit(C& c, const Value& s, A&) { return all_characters(c, s, digit); }
Value isalpha(C& c, const Value& s, A&) { return all_characters(c, s, letter); }
Value isalnum(C& c, const Value& s, A&) {
  return all_characters(c, s, [](char32_t ch) { return digit(ch) || letter(ch); });
}
Value isspace(C& c, const Value& s, A&) { return all_characters(c, s, is_python_space); }
Value isascii(C&, const Value& s, A&) {
  const std::string& bytes = s.text().bytes;
  return Value(
      std::all_of(bytes.begin(), bytes.end(), [](char b) { return static_cast<unsigned char>(b) < 0x80; }));
}
Value is_case(C& c, const Value& s, Case wanted) {
  const std::string& bytes = s.text().bytes;
  c.step(bytes.size() / 8);
  bool cased = false;
  for (std::size_t i = 0; i < bytes.size();) {
    const DecodedChar next = decode_utf8(bytes, i);
    if (map_case(next.value, wanted) != next.value) return Value(false);
    cased = cased || is_cased(next.value);
    i += next.length;
  }
  return Value(cased);
}
Value islower(C& c, const Value& s, A&) { return is_case(c, s, Case::lower); }
Value isupper(C& c, const Value& s, A&) { return is_case(c, s, Case::upper); }

// Mappings.

Value get(C& c, const Value& s, A& a) {
  c.hash(argument(a, 0));
  c.step(s.mapping().entries.size() / 8);
  if (const Value* found = c.find(s.mapping(), argument(a, 0))) return *found;
  return given(argument(a, 1)) ? argument(a, 1) : Value::none();
}
Value view(C& c, const Value& s, View::Part part) {
  auto* made = c.make<View>(0, s.object()->depth + 1);
  const Value value(Kind::view, made);
  made->part = part;
  made->mapping = s;
  return value;
}
Value item_view(C& c, const Value& s, A&) { return view(c, s, View::Part::items); }
Value keys(C& c, const Value& s, A&) { return view(c, s, View::Part::keys); }
Value values(C& c, const Value& s, A&) { return view(c, s, View::Part::values); }
Value copy(C&, const Value& s, A&) { return s; }

// Lists and tuples.

Value list_count(C& c, const Value& s, A& a) {
  std::int64_t found = 0;
  for (const Value& item : s.list().items) found += c.equal(item, argument(a, 0)) ? 1 : 0;
  return Value(found);
}
Value list_index(C& c, const Value& s, A& a) {
  const auto& all = s.list().items;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (c.equal(all[i], argument(a, 0))) return Value(static_cast<std::int64_t>(i));
  c.fail_type("the value is not in the list");
}

// Loops.

Value cycle(C& c, const Value& s, A& a) {
  if (a.positional.empty()) c.fail_type("cycle() needs at least one item");
  return a.positional[s.as<Loop>().index % a.positional.size()];
}
Value changed(C& c, const Value& s, A& a) {
  auto& loop = s.as<Loop>();
  // Kept as one tuple, so that its depth is bounded as that of every value.
  const Value now = c.list(a.positional, true);
  const bool differs = loop.changed.is(Kind::undefined) || !c.equal(loop.changed, now);
  for (const Value& value : now.list().items)
    if (value.is(Kind::loop) || value.is(Kind::callable)) c.fail_type("changed() compares plain values");
  loop.changed = now;
  return Value(differs);
}

constexpr Native kText[] = {
    {"capitalize", capital},
    {"casefold", lower},
    {"center", center, "width fillchar?"},
    {"count", count, "sub start? end?"},
    {"endswith", endswith, "suffix start? end?"},
    {"find", find, "sub start? end?"},
    {"format", format, "*"},
    {"index", index, "sub start? end?"},
    {"isalnum", isalnum},
    {"isalpha", isalpha},
    {"isascii", isascii},
    {"isdecimal", isdigit},
    {"isdigit", isdigit},
    {"islower", islower},
    {"isnumeric", isdigit},
    {"isspace", isspace},
    {"isupper", isupper},
    {"join", join_elements, "iterable"},
    {"ljust", ljust, "width fillchar?"},
    {"lower", lower},
    {"lstrip", strip_left, "chars?"},
    {"partition", partition, "sep"},
    {"removeprefix", remove_prefix, "prefix"},
    {"removesuffix", remove_suffix, "suffix"},
    {"replace", do_replace, "old new count?"},
    {"rfind", rfind, "sub start? end?"},
    {"rindex", rindex, "sub start? end?"},
    {"rjust", rjust, "width fillchar?"},
    {"rpartition", rpartition, "sep"},
    {"rsplit", rsplit, "sep? maxsplit?"},
    {"rstrip", strip_right, "chars?"},
    {"split", split, "sep? maxsplit?"},
    {"splitlines", splitlines, "keepends?"},
    {"startswith", startswith, "prefix start? end?"},
    {"strip", strip_both, "chars?"},
    {"swapcase", swapcase},
    {"title", title},
    {"upper", upper},
    {"zfill", zfill, "width"},
};
constexpr Native kMapping[] = {
    {"copy", copy}, {"get", get, "key default?"}, {"items", item_view}, {"keys", keys}, {"values", values},
};
constexpr Native kList[] = {{"copy", copy}, {"count", list_count, "value"}, {"index", list_index, "value"}};
constexpr Native kLoop[] = {{"changed", changed, "*"}, {"cycle", cycle, "*"}};

template <std::size_t N>
const Native* entry_of(const Native (&table)[N], std::string_view name) {
  for (const Native& entry : table)
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace

const Native* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::string:
      return entry_of(kText, name);
    case Kind::mapping:
      return entry_of(kMapping, name);
    case Kind::list:
      return entry_of(kList, name);
    case Kind::loop:
      return entry_of(kLoop, name);
    default:
      return nullptr;
  }
}

bool is_forbidden_method(Kind kind, std::string_view name) {
  constexpr std::string_view kListChanges[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  constexpr std::string_view kMappingChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (kind == Kind::list)
    return std::find(std::begin(kListChanges), std::end(kListChanges), name) != std::end(kListChanges);
  return kind == Kind::mapping &&
         std::find(std::begin(kMappingChanges), std::end(kMappingChanges), name) != std::end(kMappingChanges);
}

}  // namespace quipu::text::jinja

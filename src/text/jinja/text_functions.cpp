// What string filters and string methods share; every result keeps the origin of the bytes it copies.
#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/arguments.hpp"
#include "text/jinja/lexer.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

namespace {

/// A text of one origin throughout, when `source` has one.
Value like(Context& context, std::string bytes, const Text& source) {
  TextBuilder builder;
  const bool whole = source.trusted.size() == 1 && source.trusted[0] == TextRange{0, source.bytes.size()};
  builder.append(bytes, whole);
  return context.text(std::move(builder), source.markup);
}

}  // namespace

char32_t map_case(char32_t c, Case to) {
  const auto point = static_cast<utf8proc_int32_t>(c);
  return static_cast<char32_t>(to == Case::lower ? utf8proc_tolower(point) : utf8proc_toupper(point));
}

namespace {

void append_case(std::string& out, std::string_view bytes, std::size_t begin, std::size_t end, Case to) {
  for (std::size_t i = begin; i < end;) {
    const DecodedChar next = decode_utf8(bytes, i);
    if (!next.valid)
      out.append(bytes, i, next.length);
    else if (to == Case::upper && next.value == 0xdf)
      out += "SS";
    else
      append_utf8(out, map_case(next.value, to));
    i += next.length;
  }
}

}  // namespace

Value change_case(Context& context, const Value& value, Case to) {
  const Value shown = context.str(value);
  const Text& source = shown.text();
  context.step(source.bytes.size() / 8);
  std::string out;
  append_case(out, source.bytes, 0, source.bytes.size(), to);
  return like(context, std::move(out), source);
}

Value capitalize(Context& context, const Value& value) {
  const Value shown = context.str(value);
  const Text& source = shown.text();
  if (source.bytes.empty()) return shown;
  context.step(source.bytes.size() / 8);
  const std::size_t first = decode_utf8(source.bytes, 0).length;
  std::string out;
  append_case(out, source.bytes, 0, first, Case::upper);
  append_case(out, source.bytes, first, source.bytes.size(), Case::lower);
  return like(context, std::move(out), source);
}

std::vector<TextRange> split_lines(std::string_view text, bool keep_ends) {
  std::vector<TextRange> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedChar next = decode_utf8(text, i);
    const char32_t c = next.value;
    const bool ends =
        (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    std::size_t after = i + next.length;
    if (ends) {
      if (c == '\r' && after < text.size() && text[after] == '\n') ++after;
      lines.push_back({begin, keep_ends ? after : i});
      begin = after;
    }
    i = after;
  }
  if (begin < text.size()) lines.push_back({begin, text.size()});
  return lines;
}

Value strip(Context& context, const Value& value, const Value& set, bool left, bool right) {
  const std::string& bytes = value.text().bytes;
  std::u32string members;
  const bool white = !given(set) || set.is(Kind::none);
  if (!white)
    for (std::size_t i = 0; i < text_argument(context, set).bytes.size();) {
      const DecodedChar next = decode_utf8(set.text().bytes, i);
      members += next.value;
      i += next.length;
    }
  const auto goes = [&](char32_t c) {
    return white ? is_python_space(c) : members.find(c) != std::u32string::npos;
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (left && begin < end) {
    const DecodedChar next = decode_utf8(bytes, begin);
    if (!next.valid || !goes(next.value)) break;
    begin += next.length;
  }
  while (right && end > begin) {
    std::size_t at = end - 1;
    while (at > begin && end - at < 4 && (static_cast<unsigned char>(bytes[at]) & 0xc0) == 0x80) --at;
    const DecodedChar last = decode_utf8(bytes, at);
    if (!last.valid || at + last.length != end || !goes(last.value)) break;
    end = at;
  }
  context.step((bytes.size() - (end - begin)) / 8);
  return context.slice(value, begin, end);
}

Value replace(Context& context, const Value& value, const Text& old, const Value& with, std::int64_t count) {
  const Text& source = value.text();
  const Text& fresh = text_argument(context, with);
  context.step(source.bytes.size() / 16);
  TextBuilder out;
  const auto put = [&] {
    context.step();
    context.heap().require(out.bytes.size() + fresh.bytes.size());
    out.append(fresh);
  };
  std::size_t i = 0;
  if (old.bytes.empty()) {
    // Before every character, and at the end.
    while (count != 0 && i < source.bytes.size()) {
      put();
      --count;
      const std::size_t length = decode_utf8(source.bytes, i).length;
      out.append(source, i, i + length);
      i += length;
    }
    out.append(source, i, source.bytes.size());
    if (count != 0) put();
    return context.text(std::move(out), source.markup);
  }
  while (count != 0) {
    const std::size_t found = source.bytes.find(old.bytes, i);
    if (found == std::string::npos) break;
    out.append(source, i, found);
    put();
    --count;
    i = found + old.bytes.size();
  }
  if (i == 0) return value;
  out.append(source, i, source.bytes.size());
  return context.text(std::move(out), source.markup);
}

Value justify(Context& context, const Value& value, std::int64_t width, std::string_view fill, char align) {
  const Text& source = value.text();
  const std::int64_t missing = width - source.length;
  if (missing <= 0) return value;
  context.heap().require(static_cast<std::uint64_t>(missing) * fill.size());
  context.step(static_cast<std::uint64_t>(missing));
  // An odd gap of str.center is larger on the left when the width is odd.
  const std::int64_t left = align == '>' ? missing : align == '<' ? 0 : missing / 2 + (missing & width & 1);
  TextBuilder out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(source);
  for (std::int64_t i = left; i < missing; ++i) out.append(fill);
  return context.text(std::move(out), source.markup);
}

Value join(Context& context, const Value& separator, const std::vector<Value>& items, bool convert) {
  TextBuilder out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    context.step();
    if (i > 0) out.append(separator.text());
    const Value part = convert ? context.str(items[i]) : items[i];
    const Text& bytes = text_argument(context, part);
    context.heap().require(out.bytes.size() + bytes.bytes.size());
    out.append(bytes);
  }
  return context.text(std::move(out));
}

}  // namespace quipu::text::jinja

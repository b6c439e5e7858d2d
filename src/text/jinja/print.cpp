// str, repr and JSON of values, as Python prints them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/context.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto shortest = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view written(buffer, static_cast<std::size_t>(shortest.ptr - buffer));
  const std::size_t e = written.find('e');
  int exponent = 0;
  const char* digits = written.data() + e + (written[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits, shortest.ptr, exponent);
  if (exponent < -4 || exponent >= 16)
    return fmt::format("{}e{}{:02}", written.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace {

/// What Python's repr escapes beyond ASCII: separators, formats, private and unassigned; the common ones.
bool printable_character(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  if (c < 0xa1 || c == 0xad) return false;
  if (is_white_space(c)) return false;
  if ((c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f))
    return false;
  if (c == 0xfeff || (c >= 0xe000 && c <= 0xf8ff) || (c >= 0xfff0 && c <= 0xfffb)) return false;
  return c < 0xe0000 && (c & 0xfffe) != 0xfffe;
}

void repr_text(std::string_view bytes, std::string& out) {
  const bool single = bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const char quote = single ? '"' : '\'';
  out += quote;
  for (std::size_t i = 0; i < bytes.size();) {
    const DecodedChar next = decode_utf8(bytes, i);
    const char32_t c = next.value;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (!next.valid || printable_character(c)) {
      out.append(bytes, i, next.length);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
    i += next.length;
  }
  out += quote;
}

void json_text(std::string_view bytes, bool ascii, std::string& out) {
  out += '"';
  for (std::size_t i = 0; i < bytes.size();) {
    const DecodedChar next = decode_utf8(bytes, i);
    const char32_t c = next.value;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000)) {
          if (c == 0x7f)
            out += '\x7f';
          else
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else if (ascii && c >= 0x10000) {
          const auto rest = static_cast<unsigned>(c - 0x10000);
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
        } else {
          out.append(bytes, i, next.length);
        }
    }
    i += next.length;
  }
  out += '"';
}

}  // namespace

Value Context::str(const Value& value) {
  if (value.is(Kind::string)) return value;
  if (value.is(Kind::undefined)) {
    return text("");
  }
  return text(repr(value));
}

std::string Context::repr(const Value& value) {
  std::string out;
  repr(value, out);
  return out;
}

void Context::repr(const Value& value, std::string& out) {
  step();
  heap_.require(out.size());
  const auto sequence = [&](const std::vector<Value>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      repr(items[i], out);
    }
  };
  switch (value.kind()) {
    case Kind::undefined:
      out += "Undefined";
      return;
    case Kind::none:
      out += "None";
      return;
    case Kind::boolean:
      out += value.flag() ? "True" : "False";
      return;
    case Kind::integer:
      out += std::to_string(value.integer());
      return;
    case Kind::real:
      out += float_text(value.real());
      return;
    case Kind::string:
      if (value.text().markup) out += "Markup(";
      repr_text(value.text().bytes, out);
      if (value.text().markup) out += ')';
      step(value.text().bytes.size() / 4);
      return;
    case Kind::list: {
      const List& list = value.list();
      out += list.tuple ? '(' : '[';
      sequence(list.items);
      if (list.tuple && list.items.size() == 1) out += ',';
      out += list.tuple ? ')' : ']';
      return;
    }
    case Kind::mapping: {
      out += '{';
      bool first = true;
      for (const auto& [key, held] : value.mapping().entries) {
        if (!first) out += ", ";
        first = false;
        repr(key, out);
        out += ": ";
        repr(held, out);
      }
      out += '}';
      return;
    }
    case Kind::range: {
      const auto& range = value.as<Range>();
      out += fmt::format("range({}, {}", range.start, range.stop);
      if (range.step != 1) out += fmt::format(", {}", range.step);
      out += ')';
      return;
    }
    case Kind::view: {
      const auto part = value.as<View>().part;
      out += part == View::Part::keys     ? "dict_keys(["
             : part == View::Part::values ? "dict_values(["
                                          : "dict_items([";
      sequence(elements(value));
      out += "])";
      return;
    }
    case Kind::generator:
      out += "<generator object>";
      return;
    case Kind::name_space:
      out += "<Namespace>";
      return;
    case Kind::callable:
      out += "<function>";
      return;
    case Kind::loop:
      out += "<LoopContext>";
      return;
  }
}

void Context::json(const Value& value, const JsonStyle& style, int level, std::string& out) {
  step();
  heap_.require(out.size());
  const auto line = [&](int depth) {
    if (!style.pretty) return;
    heap_.require(out.size() + style.indent.size() * static_cast<std::size_t>(depth));
    out += '\n';
    for (int i = 0; i < depth; ++i) out += style.indent;
  };
  const auto number = [](const Value& v) -> std::string {
    if (v.is(Kind::integer)) return std::to_string(v.integer());
    if (std::isnan(v.real())) return "NaN";
    if (std::isinf(v.real())) return v.real() < 0 ? "-Infinity" : "Infinity";
    return float_text(v.real());
  };
  switch (value.kind()) {
    case Kind::none:
      out += "null";
      return;
    case Kind::boolean:
      out += value.flag() ? "true" : "false";
      return;
    case Kind::integer:
    case Kind::real:
      out += number(value);
      return;
    case Kind::string:
      step(value.text().bytes.size() / 4);
      json_text(value.text().bytes, style.ascii, out);
      return;
    case Kind::list: {
      const auto& items = value.list().items;
      out += '[';
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += style.comma;
        line(level + 1);
        json(items[i], style, level + 1, out);
      }
      if (!items.empty()) line(level);
      out += ']';
      return;
    }
    case Kind::mapping: {
      const auto& entries = value.mapping().entries;
      std::vector<std::size_t> order(entries.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      if (style.sort_keys)
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
          return less(entries[a].first, entries[b].first);
        });
      out += '{';
      for (std::size_t i = 0; i < order.size(); ++i) {
        const auto& [key, held] = entries[order[i]];
        if (i > 0) out += style.comma;
        line(level + 1);
        if (key.is(Kind::string))
          json_text(key.text().bytes, style.ascii, out);
        else if (key.is(Kind::none))
          out += "\"null\"";
        else if (key.is(Kind::boolean))
          out += key.flag() ? "\"true\"" : "\"false\"";
        else if (key.is_number())
          out += '"' + number(key) + '"';
        else
          fail_type("a JSON key cannot be of type {}", type_name(key));
        out += style.colon;
        json(held, style, level + 1, out);
      }
      if (!entries.empty()) line(level);
      out += '}';
      return;
    }
    default:
      fail_type("{} has no form in JSON", type_name(value));
  }
}

}  // namespace quipu::text::jinja

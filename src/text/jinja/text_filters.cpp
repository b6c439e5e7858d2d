// Filters whose result is a text or a number.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/arguments.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/lexer.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

namespace filters {  // many are named as methods are
namespace {

using C = Context;
using A = Arguments;

Value lower(C& c, const Value& s, A&) { return change_case(c, s, Case::lower); }
Value upper(C& c, const Value& s, A&) { return change_case(c, s, Case::upper); }
Value capital(C& c, const Value& s, A&) { return capitalize(c, s); }
Value string(C& c, const Value& s, A&) { return c.str(s); }
Value trim(C& c, const Value& s, A& a) { return strip(c, c.str(s), argument(a, 0), true, true); }

Value marked(C& c, const Value& s, std::string_view escaped, bool escape) {
  TextBuilder builder;
  if (escape)
    builder.append(escaped);
  else
    builder.append(s.text());
  return c.text(std::move(builder), true);
}
Value safe(C& c, const Value& s, A&) { return marked(c, c.str(s), {}, false); }
Value escape(C& c, const Value& s, A&) {
  if (s.is(Kind::string) && s.text().markup) return s;
  return marked(c, s, escape_html(c.str(s).text().bytes), true);
}
Value force_escape(C& c, const Value& s, A&) {
  return marked(c, s, escape_html(c.str(s).text().bytes), true);
}

Value title(C& c, const Value& s, A&) {
  const Value shown = c.str(s);
  const std::string& bytes = shown.text().bytes;
  c.step(bytes.size() / 8);
  std::string out;
  bool start = true;
  for (std::size_t i = 0; i < bytes.size();) {
    const DecodedChar next = decode_utf8(bytes, i);
    if (next.valid)
      append_utf8(out, map_case(next.value, start ? Case::upper : Case::lower));
    else
      out.append(bytes, i, next.length);
    start = is_python_space(next.value) ||
            std::u32string_view(U"-({[<").find(next.value) != std::u32string_view::npos;
    i += next.length;
  }
  return c.text(std::move(out));
}

Value do_replace(C& c, const Value& s, A& a) {
  const Value old = c.str(argument(a, 0));
  const std::int64_t count =
      given(argument(a, 2)) && argument(a, 2).is(Kind::none) ? -1 : int_argument(c, argument(a, 2), -1);
  const Value result = replace(c, c.str(s), old.text(), c.str(argument(a, 1)), count);
  if (!result.text().markup) return result;
  TextBuilder plain;
  plain.append(result.text());
  return c.text(std::move(plain));
}

Value indent(C& c, const Value& s, A& a) {
  const Value shown = c.str(s);
  const Text& source = shown.text();
  Value margin = argument(a, 0);
  if (!margin.is(Kind::string)) {
    const std::int64_t width = std::max<std::int64_t>(0, int_argument(c, margin, 4));
    c.heap().require(static_cast<std::uint64_t>(width));
    margin = c.text(std::string(static_cast<std::size_t>(width), ' '));
  }
  const bool first = flag_argument(c, argument(a, 1), false);
  const bool blank = flag_argument(c, argument(a, 2), false);
  c.step(source.bytes.size() / 4);
  // A newline at the end makes an empty last line, which Jinja keeps.
  std::vector<TextRange> lines = split_lines(source.bytes + "\n", false);
  TextBuilder out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    c.heap().require(out.bytes.size() + margin.text().bytes.size());
    if (i > 0) out.append("\n", true);
    if (i == 0 ? first : (blank || lines[i].end > lines[i].begin)) out.append(margin.text());
    out.append(source, lines[i].begin, lines[i].end);
  }
  return c.text(std::move(out), source.markup);
}

Value center(C& c, const Value& s, A& a) {
  return justify(c, c.str(s), int_argument(c, argument(a, 0), 80), " ", '^');
}

Value truncate(C& c, const Value& s, A& a) {
  const Value shown = c.str(s);
  const Text& source = shown.text();
  const std::int64_t length = int_argument(c, argument(a, 0), 255);
  const bool kill = flag_argument(c, argument(a, 1), false);
  const Value end = given(argument(a, 2)) ? c.str(argument(a, 2)) : c.text("...", true);
  const std::int64_t leeway = int_argument(c, argument(a, 3), 5);
  if (length < end.text().length || leeway < 0) c.fail_type("truncate() got unusable lengths");
  if (source.length <= length + leeway) return shown;
  std::size_t cut = c.byte_offset(source, length - end.text().length);
  if (!kill) {
    const std::size_t space = cut == 0 ? std::string::npos : source.bytes.rfind(' ', cut - 1);
    if (space != std::string::npos) cut = space;
  }
  return c.concat(c.slice(shown, 0, cut), end, source.markup);
}

Value word_count(C& c, const Value& s, A&) {
  std::int64_t words = 0;
  bool inside = false;
  for (const char b : c.str(s).text().bytes) {
    const bool word = (b >= '0' && b <= '9') || (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') ||
                      b == '_' || static_cast<unsigned char>(b) >= 0x80;
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value(words);
}

std::string quoted(std::string_view bytes, bool in_query = false) {
  std::string out;
  for (const char b : bytes) {
    const bool plain = (b >= '0' && b <= '9') || (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') ||
                       std::string_view(in_query ? "_.-~" : "_.-~/").find(b) != std::string_view::npos;
    if (in_query && b == ' ')
      out += '+';
    else
      out += plain ? std::string(1, b) : fmt::format("%{:02X}", static_cast<unsigned char>(b));
  }
  return out;
}
Value urlencode(C& c, const Value& s, A&) {
  if (!s.is(Kind::mapping)) return c.text(quoted(c.str(s).text().bytes));
  std::string out;
  for (const auto& [key, value] : s.mapping().entries) {
    if (!out.empty()) out += '&';
    out += quoted(c.str(key).text().bytes, true) + "=" + quoted(c.str(value).text().bytes, true);
  }
  return c.text(std::move(out));
}

Value format(C& c, const Value& s, A& a) {
  const Value shown = c.str(s);
  if (!a.named.empty() && !a.positional.empty())
    c.fail_type("format() takes either positional or keyword arguments");
  if (a.named.empty()) return c.percent_format(shown.text(), c.list(std::move(a.positional), true));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : a.named) entries.emplace_back(c.text(key), value);
  return c.percent_format(shown.text(), c.mapping(std::move(entries)));
}

Value to_json(C& c, const Value& s, A& a) {
  Context::JsonStyle style;
  style.ascii = flag_argument(c, argument(a, 0), false);
  const Value& indentation = argument(a, 1);
  if (given(indentation) && !indentation.is(Kind::none)) {
    style.pretty = true;
    style.comma = ",";
    if (indentation.is(Kind::string)) {
      style.indent = indentation.text().bytes;
    } else {
      const std::int64_t width = int_argument(c, indentation, 0);
      if (width > 1000) c.fail_limit("columns of indentation");
      style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' ');
    }
  }
  if (const Value& separators = argument(a, 2); given(separators) && !separators.is(Kind::none)) {
    const std::vector<Value> two = c.elements(separators);
    if (two.size() != 2) c.fail_type("tojson: separators must be a pair");
    style.comma = text_argument(c, two[0]).bytes;
    style.colon = text_argument(c, two[1]).bytes;
  }
  style.sort_keys = flag_argument(c, argument(a, 3), false);
  std::string out;
  c.json(s, style, 0, out);
  return c.text(std::move(out));
}

// Numbers.

/// Without white space at its ends and single underscores between digits.
std::string number_text(const std::string& bytes) {
  const std::size_t begin = skip_space(bytes, 0);
  const std::string_view body =
      std::string_view(bytes).substr(begin, std::max(begin, trimmed_size(bytes)) - begin);
  std::string out;
  for (std::size_t i = 0; i < body.size(); ++i)
    if (body[i] != '_' || i == 0 || i + 1 == body.size() || body[i - 1] == '_') out += body[i];
  return out;
}
bool parse_real(std::string_view text, double& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}
Value to_int(C& c, const Value& s, A& a) {
  const Value otherwise = given(argument(a, 0)) ? argument(a, 0) : Value(std::int64_t{0});
  const std::int64_t base = int_argument(c, argument(a, 1), 10);
  if (s.is(Kind::undefined)) c.fail_undefined(s);
  if (s.is_integral()) return Value(s.integer());
  double real = 0;
  if (s.is(Kind::string)) {
    const std::string text = number_text(s.text().bytes);
    const bool negative = text.starts_with('-');
    c.step(text.size() / 4);
    std::string_view digits = text;
    if (negative || digits.starts_with('+')) digits.remove_prefix(1);
    if (digits.size() > 2 && digits[0] == '0') {
      const char mark = static_cast<char>(digits[1] | 0x20);
      if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b'))
        digits.remove_prefix(2);
    }
    std::int64_t value = 0;
    if (base >= 2 && base <= 36 && !digits.empty() && digits[0] != '-') {
      const auto result =
          std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
      if (result.ec == std::errc() && result.ptr == digits.data() + digits.size())
        return Value(negative ? -value : value);
    }
    if (!parse_real(text, real)) return otherwise;
  } else if (s.is(Kind::real)) {
    real = s.real();
  } else {
    return otherwise;
  }
  return std::fabs(real) < 9.2e18 ? Value(static_cast<std::int64_t>(real)) : otherwise;
}
Value to_float(C& c, const Value& s, A& a) {
  if (s.is(Kind::undefined)) c.fail_undefined(s);
  if (s.is_number()) return Value(s.real());
  double real = 0;
  if (s.is(Kind::string) && parse_real(number_text(s.text().bytes), real)) return Value(real);
  return given(argument(a, 0)) ? argument(a, 0) : Value(0.0);
}
Value absolute(C& c, const Value& s, A&) {
  if (!s.is_number()) c.fail_type("abs needs a number, not {}", type_name(s));
  if (s.is(Kind::real)) return Value(std::fabs(s.real()));
  return s.integer() < 0 ? c.negate(s) : Value(s.integer());
}
Value round(C& c, const Value& s, A& a) {
  if (s.is(Kind::undefined)) c.fail_undefined(s);
  if (!s.is_number()) c.fail_type("round needs a number, not {}", type_name(s));
  const std::int64_t precision = int_argument(c, argument(a, 0), 0);
  const std::string method = given(argument(a, 1)) ? text_argument(c, argument(a, 1)).bytes : "common";
  if (precision < -300 || precision > 300) c.fail_type("round: the precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(s.real() * scale) / scale);
  if (method == "floor") return Value(std::floor(s.real() * scale) / scale);
  if (method != "common") c.fail_type("round: method must be common, ceil or floor");
  if (s.is_integral() && precision >= 0) return Value(s.integer());
  if (precision < 0) return Value(std::nearbyint(s.real() * scale) / scale);
  double value = 0;
  const std::string shown = fmt::format("{:.{}f}", s.real(), static_cast<int>(precision));
  std::from_chars(shown.data(), shown.data() + shown.size(), value);
  return Value(value);
}

const FilterEntry kFilters[] = {
    {{"abs", absolute}},
    {{"capitalize", capital}},
    {{"center", center, "width?"}},
    {{"e", escape}},
    {{"escape", escape}},
    {{"float", to_float, "default?"}},
    {{"forceescape", force_escape}},
    {{"format", format, "*"}},
    {{"indent", indent, "width? first? blank?"}},
    {{"int", to_int, "default? base?"}},
    {{"lower", lower}},
    {{"replace", do_replace, "old new count?"}},
    {{"round", round, "precision? method?"}},
    {{"safe", safe}},
    {{"string", string}},
    {{"title", title}},
    {{"tojson", to_json, "ensure_ascii? indent? separators? sort_keys?"}},
    {{"trim", trim, "chars?"}},
    {{"truncate", truncate, "length? killwords? end? leeway?"}},
    {{"upper", upper}},
    {{"urlencode", urlencode}},
    {{"wordcount", word_count}},
};

}  // namespace
}  // namespace filters

std::span<const FilterEntry> text_filters() { return filters::kFilters; }

const FilterEntry* find_filter(std::string_view name) {
  for (const std::span<const FilterEntry> table : {text_filters(), list_filters()})
    for (const FilterEntry& entry : table)
      if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace quipu::text::jinja

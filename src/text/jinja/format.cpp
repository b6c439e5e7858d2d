// `'…' % values` and '…'.format(…), with widths bounded by the memory budget.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/context.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

namespace {

/// A format specification: [[fill]align][sign][#][0][width][,][.precision][type].
struct Spec {
  std::string fill = " ";
  char align = '\0', sign = '-', type = '\0';
  bool alternate = false, zero = false, comma = false;
  std::int64_t width = 0, precision = -1;
};

constexpr std::int64_t kMaxWidth = 1 << 20;

std::int64_t parse_count(const Context& context, std::string_view text, std::size_t& i) {
  std::int64_t value = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
    if ((value = value * 10 + (text[i] - '0')) > kMaxWidth)
      context.fail_limit("characters of formatted width");
  return value;
}

std::string grouped(std::string digits, bool comma) {
  if (!comma) return digits;
  std::size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (std::size_t i = end; i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string printed_real(double value, char type, int precision, bool alternate) {
  const double magnitude = std::fabs(value);
  if (!std::isfinite(magnitude)) return std::isnan(magnitude) ? "nan" : "inf";
  if (precision > 400) precision = 400;
  std::string out;
  switch (type) {
    case 'e':
    case 'E':
      out = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'g':
    case 'G':
      out = alternate ? fmt::format("{:#.{}g}", magnitude, precision)
                      : fmt::format("{:.{}g}", magnitude, precision);
      break;
    case '%':
      out = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    default:
      out = fmt::format("{:.{}f}", magnitude, precision);
  }
  if (type == 'E' || type == 'G')
    for (char& c : out) c = static_cast<char>(c == 'e' ? 'E' : c);
  return out;
}

/// Sign and digits of a number apart, so that zeros can go between.
std::pair<std::string, std::string> number_parts(const Context& context, const Value& value,
                                                 const Spec& spec) {
  const bool real =
      value.is(Kind::real) ||
      (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
  const bool negative = real ? std::signbit(value.real()) : value.integer() < 0;
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  std::string digits;
  if (real) {
    if (spec.type == '\0' && spec.precision < 0)
      digits = float_text(std::fabs(value.real()));
    else
      digits = printed_real(value.real(), spec.type == '\0' ? 'g' : spec.type,
                            spec.precision < 0 ? 6 : static_cast<int>(spec.precision), spec.alternate);
  } else {
    const auto raw = static_cast<std::uint64_t>(value.integer());
    const std::uint64_t magnitude = negative ? ~raw + 1 : raw;
    switch (spec.type) {
      case '\0':
      case 'd':
      case 'n':
        digits = std::to_string(magnitude);
        break;
      case 'x':
        digits = fmt::format("{:x}", magnitude);
        break;
      case 'X':
        digits = fmt::format("{:X}", magnitude);
        break;
      case 'o':
        digits = fmt::format("{:o}", magnitude);
        break;
      case 'b':
        digits = fmt::format("{:b}", magnitude);
        break;
      default:
        context.fail_type("the format code '{}' does not fit a number", spec.type);
    }
    if (spec.alternate && spec.type != '\0' && spec.type != 'd') sign += std::string("0") + spec.type;
  }
  return {sign, grouped(digits, spec.comma)};
}

void pad(TextBuilder& out, const Text& text, const Spec& spec, char default_align) {
  const std::int64_t missing = std::max<std::int64_t>(0, spec.width - text.length);
  const char align = spec.align != '\0' ? spec.align : default_align;
  const std::int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  for (std::int64_t i = 0; i < left; ++i) out.append(spec.fill);
  out.append(text);
  for (std::int64_t i = left; i < missing; ++i) out.append(spec.fill);
}

void put_number(Context& context, TextBuilder& out, const Value& value, Spec spec) {
  auto [sign, digits] = number_parts(context, value, spec);
  if (spec.zero && spec.align == '\0') {
    spec.align = '=';
    spec.fill = "0";
  }
  if (spec.align == '=') {
    std::string filler;
    for (auto i = static_cast<std::int64_t>(sign.size() + digits.size()); i < spec.width; ++i)
      filler += spec.fill;
    out.append(sign + filler + digits);
  } else {
    pad(out, context.text(sign + digits).text(), spec, '>');
  }
}

void put_text(Context& context, TextBuilder& out, const Value& value, const Spec& spec) {
  Value shown = context.str(value);
  if (spec.precision >= 0 && spec.precision < shown.text().length)
    shown = context.slice(shown, 0, context.byte_offset(shown.text(), spec.precision));
  pad(out, shown.text(), spec, '<');
}

void put_braced(Context& context, TextBuilder& out, const Value& value, std::string_view text) {
  Spec spec;
  std::size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const std::size_t first = decode_utf8(text, 0).length;
    if (first < text.size() && is_align(text[first])) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      i = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      i = 1;
    }
  }
  const auto accept = [&](char c) { return i < text.size() && text[i] == c ? (++i, true) : false; };
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' ')) spec.sign = text[i++];
  spec.alternate = accept('#');
  spec.zero = accept('0');
  spec.width = parse_count(context, text, i);
  spec.comma = accept(',');
  if (accept('.')) spec.precision = parse_count(context, text, i);
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size()) context.fail_type("a format specification is malformed");
  const bool number =
      value.is(Kind::integer) || value.is(Kind::real) || (value.is(Kind::boolean) && spec.type != '\0');
  if (number) return put_number(context, out, value, spec);
  if (spec.type != '\0' && spec.type != 's')
    context.fail_type("the format code '{}' does not fit a {}", spec.type, type_name(value));
  put_text(context, out, value, spec);
}

}  // namespace

Value Context::percent_format(const Text& format, const Value& arguments) {
  const std::string_view text_view = format.bytes;
  const bool many = arguments.is(Kind::list) && arguments.list().tuple;
  std::size_t used = 0;
  bool by_name = false;
  const auto next = [&]() -> Value {
    if (!many) {
      if (used++ > 0) fail_type("not enough arguments for the format string");
      return arguments;
    }
    if (used >= arguments.list().items.size()) fail_type("not enough arguments for the format string");
    return arguments.list().items[used++];
  };
  TextBuilder out;
  for (std::size_t i = 0; i < text_view.size();) {
    const std::size_t mark = std::min(text_view.find('%', i), text_view.size());
    out.append(format, i, mark);
    if (mark == text_view.size()) break;
    step();
    heap_.require(out.bytes.size());
    i = mark + 1;
    Value named = absent();
    if (i < text_view.size() && text_view[i] == '(') {
      const std::size_t close = text_view.find(')', i);
      if (close == std::string_view::npos || !arguments.is(Kind::mapping))
        fail_type("the format needs a mapping");
      const Value* found = find(arguments.mapping(), text_view.substr(i + 1, close - i - 1));
      if (found == nullptr) fail_type("the format names a missing key");
      named = *found;
      by_name = true;
      i = close + 1;
    }
    Spec spec;
    for (; i < text_view.size(); ++i) {
      if (text_view[i] == '-')
        spec.align = '<';
      else if (text_view[i] == '0')
        spec.zero = true;
      else if (text_view[i] == '+')
        spec.sign = '+';
      else if (text_view[i] == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (text_view[i] == '#')
        spec.alternate = true;
      else
        break;
    }
    spec.width = parse_count(*this, text_view, i);
    if (i < text_view.size() && text_view[i] == '.') spec.precision = parse_count(*this, text_view, ++i);
    if (i >= text_view.size()) fail_type("incomplete format");
    const char type = text_view[i++];
    if (type == '%') {
      out.append("%");
      continue;
    }
    const Value value = given(named) ? named : next();
    if (spec.align == '<') spec.zero = false;
    switch (type) {
      case 's':
        if (spec.align == '\0') spec.align = '>';
        put_text(*this, out, value, spec);
        break;
      case 'r':
        if (spec.align == '\0') spec.align = '>';
        put_text(*this, out, text(repr(value)), spec);
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        if (!value.is_number() || (!value.is_integral() && (type == 'x' || type == 'X' || type == 'o')))
          fail_type("%{} needs a number, not {}", type, type_name(value));
        if (value.is(Kind::real) && !(std::fabs(value.real()) < 9.2e18))
          fail_type("a float is too large for %d");
        spec.type = type == 'i' || type == 'u' ? 'd' : type;
        put_number(
            *this, out,
            value.is(Kind::real) ? Value(static_cast<std::int64_t>(value.real())) : Value(value.integer()),
            spec);
        break;
      }
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        if (!value.is_number()) fail_type("%{} needs a number, not {}", type, type_name(value));
        spec.type = type;
        put_number(*this, out, Value(value.real()), spec);
        break;
      default:
        fail_type("unsupported format character");
    }
  }
  const bool all_used = many ? used == arguments.list().items.size() : used == 1;
  if (!all_used && !by_name && !arguments.is(Kind::mapping))
    fail_type("not all arguments were used by the format string");
  return text(std::move(out), format.markup);
}

Value Context::brace_format(const Text& format, Arguments& arguments) {
  const std::string_view all = format.bytes;
  TextBuilder out;
  std::size_t automatic = 0;
  for (std::size_t i = 0; i < all.size();) {
    const std::size_t mark = std::min(all.find_first_of("{}", i), all.size());
    out.append(format, i, mark);
    if (mark == all.size()) break;
    step();
    heap_.require(out.bytes.size());
    if (mark + 1 < all.size() && all[mark + 1] == all[mark]) {
      out.append(format, mark, mark + 1);
      i = mark + 2;
      continue;
    }
    const std::size_t close = all[mark] == '{' ? all.find('}', mark) : std::string_view::npos;
    if (close == std::string_view::npos) fail_type("single brace in a format string");
    std::string_view field = all.substr(mark + 1, close - mark - 1);
    if (field.find('{') != std::string_view::npos)
      fail_type("nested fields in a format string are not supported");
    i = close + 1;
    std::string_view spec;
    if (const std::size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (const std::size_t bang = field.find('!');
        bang != std::string_view::npos && bang + 2 == field.size()) {
      conversion = field[bang + 1];
      field = field.substr(0, bang);
    }
    const std::size_t name_end = std::min(field.find_first_of(".["), field.size());
    const std::string_view name = field.substr(0, name_end);
    Value value = absent();
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
      std::size_t index = automatic++;
      if (!name.empty()) std::from_chars(name.data(), name.data() + name.size(), index);
      if (index >= arguments.positional.size()) fail_type("a format string asks for a missing argument");
      value = arguments.positional[index];
    } else {
      for (const auto& [key, held] : arguments.named)
        if (key == name) value = held;
      if (!given(value)) fail_type("a format string asks for a missing argument");
    }
    for (std::size_t p = name_end; p < field.size();) {
      const bool index = field[p] == '[';
      std::size_t end = index ? field.find(']', p) : std::min(field.find_first_of(".[", p + 1), field.size());
      if (end == std::string_view::npos) fail_type("a field of a format string is malformed");
      const std::string_view part = field.substr(p + 1, end - p - 1);
      std::int64_t number = 0;
      const auto parsed = std::from_chars(part.data(), part.data() + part.size(), number);
      if (index && !part.empty() && parsed.ptr == part.data() + part.size())
        value = item(value, Value(number));
      else if (index)
        value = item(value, text(std::string(part)));
      else
        value = attribute(value, part);
      if (value.is(Kind::undefined)) fail_undefined(value);
      p = index ? end + 1 : end;
    }
    if (conversion == 'r' || conversion == 'a') value = text(repr(value));
    if (conversion == 's') value = str(value);
    put_braced(*this, out, value, spec);
  }
  return text(std::move(out), format.markup);
}

}  // namespace quipu::text::jinja

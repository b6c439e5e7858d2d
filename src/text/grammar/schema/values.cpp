#include "text/grammar/schema/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace quipu::text::grammar::schema {

namespace {

ByteSet digits_between(char low, char high) {
  return low > high ? ByteSet()
                    : ByteSet::range(static_cast<unsigned char>(low), static_cast<unsigned char>(high));
}

struct Digits {
  Store& store;
  Id any = store.bytes(digits_between('0', '9'));

  Id some(std::uint32_t low, std::uint32_t high) { return store.repeat(any, low, high); }
  Id between(char low, char high) { return store.bytes(digits_between(low, high)); }
  /// Whole numbers of exactly so many digits.
  Id of_length(std::size_t length) {
    if (length == 1) return any;
    const auto rest = static_cast<std::uint32_t>(length - 1);
    return store.concat(between('1', '9'), some(rest, rest));
  }
  Id whole(std::uint32_t most) {
    return store.choice(store.byte('0'), store.concat(between('1', '9'), some(0, most - 1)));
  }
  Id fraction(std::uint32_t most) { return store.concat(store.byte('.'), some(1, most)); }
  Id any_fraction() { return store.optional(fraction(kMaxDigits)); }
  Id exponent() {
    return store.concat({store.bytes(ByteSet::one('e') | ByteSet::one('E')),
                         store.optional(store.bytes(ByteSet::one('+') | ByteSet::one('-'))),
                         store.optional(between('0', '2')), some(1, 2)});
  }
};

/// Digits after the point, perhaps none, with a value of at least / at most 0.f.
Id fraction_digits(Digits& d, std::string_view f, bool least, bool exclusive) {
  Store& store = d.store;
  if (f.empty()) {
    const Id zeros = store.repeat(store.byte('0'), 0, kUnbounded);
    if (least)
      return exclusive ? store.concat({zeros, d.between('1', '9'), d.some(0, kUnbounded)})
                       : d.some(0, kUnbounded);
    return exclusive ? kNever : zeros;
  }
  const char c = f.front();
  const Id rest = d.some(0, kUnbounded);
  const Id beyond = store.concat(
      least ? d.between(static_cast<char>(c + 1), '9') : d.between('0', static_cast<char>(c - 1)), rest);
  const Id same = store.concat(store.byte(static_cast<unsigned char>(c)),
                               fraction_digits(d, f.substr(1), least, exclusive));
  return least ? store.choice(beyond, same) : store.choice({beyond, same, kEmpty});
}

/// What may follow a whole part that equals the bound's.
Id fraction_part(Digits& d, std::string_view f, bool least, bool exclusive) {
  Store& store = d.store;
  const Id with_point = store.concat(store.byte('.'), fraction_digits(d, f, least, exclusive));
  const bool none = least ? f.empty() && !exclusive : !f.empty() || !exclusive;
  return none ? store.choice(with_point, kEmpty) : with_point;
}

/// Numbers without sign of at least / at most a bound.
Id magnitude(Digits& d, const Bound& bound, bool least) {
  Store& store = d.store;
  const std::string& whole = bound.value.whole;
  const Id any_fraction = store.optional(store.concat(store.byte('.'), d.some(0, kUnbounded)));
  std::vector<Id> parts;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const char lowest = i == 0 && whole.size() > 1 ? '1' : '0';
    const char c = whole[i];
    const Id digit =
        least ? d.between(static_cast<char>(c + 1), '9') : d.between(lowest, static_cast<char>(c - 1));
    const auto rest = static_cast<std::uint32_t>(whole.size() - i - 1);
    parts.push_back(store.concat(
        {store.literal(std::string_view(whole).substr(0, i)), digit, d.some(rest, rest), any_fraction}));
  }
  const auto length = static_cast<std::uint32_t>(whole.size());
  if (least) {
    parts.push_back(store.concat({d.between('1', '9'), d.some(length, kUnbounded), any_fraction}));
  } else if (length > 1) {
    parts.push_back(store.concat(
        store.choice(d.any, store.concat(d.between('1', '9'), d.some(0, length - 2))), any_fraction));
  }
  parts.push_back(
      store.concat(store.literal(whole), fraction_part(d, bound.value.fraction, least, bound.exclusive)));
  return store.choice(std::move(parts));
}

std::string number_text(const Data& number) {
  if (const auto* integer = std::get_if<std::int64_t>(&number.value)) return fmt::format("{}", *integer);
  return fmt::format("{}", std::get<double>(number.value));
}

}  // namespace

Decimal Decimal::of(const Data& number) {
  std::string text = number_text(number);
  Decimal result;
  if (text.front() == '-') {
    result.negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const std::size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::atoi(text.c_str() + e + 1);
    text.resize(e);
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point) + (point < text.size() ? text.substr(point + 1) : "");
  const int before = static_cast<int>(point) + exponent;  // digits before the point
  if (before <= 0) digits.insert(0, static_cast<std::size_t>(1 - before), '0');
  const auto whole = static_cast<std::size_t>(std::max(before, 1));
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  result.whole = digits.substr(0, whole);
  result.fraction = digits.substr(whole);
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size() - 1));
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (result.is_zero()) result.negative = false;
  return result;
}

Id any_integer(Store& store) {
  Digits d{store};
  return store.concat(store.optional(store.byte('-')), d.whole(kMaxDigits));
}

Id plain_number(Store& store) {
  Digits d{store};
  return store.concat({store.optional(store.byte('-')), d.whole(kMaxDigits), d.any_fraction()});
}

Id any_number(Store& store) {
  Digits d{store};
  const Id scientific =
      store.concat({store.optional(store.byte('-')), d.whole(8), d.any_fraction(), d.exponent()});
  return store.choice(plain_number(store), scientific);
}

Id at_least(Store& store, const Bound& bound) {
  Digits d{store};
  const Id positive = store.concat(d.some(1, kUnbounded),
                                   store.optional(store.concat(store.byte('.'), d.some(0, kUnbounded))));
  // An exponent does not change a sign.
  if (bound.value.is_zero()) return store.concat(magnitude(d, bound, true), store.optional(d.exponent()));
  if (!bound.value.negative) return magnitude(d, bound, true);
  return store.choice(positive, store.concat(store.byte('-'), magnitude(d, bound, false)));
}

Id at_most(Store& store, const Bound& bound) {
  Digits d{store};
  const Id any = store.concat(d.some(1, kUnbounded),
                              store.optional(store.concat(store.byte('.'), d.some(0, kUnbounded))));
  const Id minus = store.byte('-');
  if (bound.value.negative) return store.concat(minus, magnitude(d, bound, true));
  if (bound.value.is_zero()) {
    const Id below = store.concat(minus, bound.exclusive ? magnitude(d, {Decimal(), true}, true) : any);
    return store.concat(bound.exclusive ? below : store.choice(below, magnitude(d, bound, false)),
                        store.optional(d.exponent()));
  }
  return store.choice(store.concat(minus, any), magnitude(d, bound, false));
}

std::optional<Id> multiple_of(Store& store, const Decimal& value) {
  Digits d{store};
  const std::string digits = value.whole + value.fraction;
  if (value.negative || value.is_zero() || digits.size() > 9) return std::nullopt;
  const auto step = static_cast<std::uint32_t>(std::stoul(digits));  // in units of the last digit
  const auto places = static_cast<std::uint32_t>(value.fraction.size());
  std::vector<Id> parts;
  std::uint64_t unit = 1;
  for (std::uint32_t f = places + 1; f-- > 0; unit *= 10) {
    // With f places, the digits count in units that are `unit` times as large.
    const auto divisor = static_cast<std::uint32_t>(step / std::gcd<std::uint64_t>(step, unit));
    const Id fraction = f == 0 ? kEmpty : store.concat(store.byte('.'), d.some(f, f));
    const Id shape = store.concat(d.whole(kMaxDigits), fraction);
    // Zeros behind the last place that counts change nothing.
    Id zeros = kEmpty;
    if (f == places) {
      zeros = store.repeat(store.byte('0'), places == 0 ? 1 : 0, kMaxDigits);
      if (places == 0) zeros = store.optional(store.concat(store.byte('.'), zeros));
    }
    parts.push_back(
        store.concat({store.optional(store.byte('-')),
                      divisor == 1 ? shape : store.both(shape, store.modulo(divisor, 0)), zeros}));
  }
  return store.choice(std::move(parts));
}

// ---- formats ----

std::optional<std::string_view> format_pattern(std::string_view name) {
#define QUIPU_DATE                                                                                         \
  "(?!0000)(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"  \
  "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-" \
  "02-29)"
#define QUIPU_TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define QUIPU_BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define QUIPU_IPV4 "(?:" QUIPU_BYTE "\\.){3}" QUIPU_BYTE
#define QUIPU_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
// Without the limit on the length of a label, which few readers check.
#define QUIPU_ANY_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
#define QUIPU_ANY_HOST QUIPU_ANY_LABEL "(?:\\." QUIPU_ANY_LABEL ")*"
#define QUIPU_HOST QUIPU_LABEL "(?:\\." QUIPU_LABEL ")*"
#define QUIPU_PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define QUIPU_PATH "(?:/" QUIPU_PCHAR "*)*"
#define QUIPU_TAIL "(?:\\?(?:" QUIPU_PCHAR "|[/?])*)?(?:#(?:" QUIPU_PCHAR "|[/?])*)?"
#define QUIPU_H16 "[0-9A-Fa-f]{1,4}"
#define QUIPU_IPV6                                                                                    \
  "(?:(?:" QUIPU_H16 ":){7}" QUIPU_H16 "|(?:" QUIPU_H16 ":){1,7}:|(?:" QUIPU_H16 ":){1,6}:" QUIPU_H16 \
  "|(?:" QUIPU_H16 ":){1,5}(?::" QUIPU_H16 "){1,2}|(?:" QUIPU_H16 ":){1,4}(?::" QUIPU_H16             \
  "){1,3}"                                                                                            \
  "|(?:" QUIPU_H16 ":){1,3}(?::" QUIPU_H16 "){1,4}|(?:" QUIPU_H16 ":){1,2}(?::" QUIPU_H16             \
  "){1,5}"                                                                                            \
  "|" QUIPU_H16 ":(?::" QUIPU_H16 "){1,6}|:(?::" QUIPU_H16 "){1,7}|::)"
#define QUIPU_AUTHORITY                                                                        \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?(?:" QUIPU_ANY_HOST "|\\[" QUIPU_IPV6 \
  "\\]|)(?::\\d{1,5})?"
#define QUIPU_URI \
  "[A-Za-z][A-Za-z0-9+.-]*:(?://" QUIPU_AUTHORITY QUIPU_PATH "|/?" QUIPU_PCHAR "+" QUIPU_PATH ")" QUIPU_TAIL
#define QUIPU_POINTER "(?:/(?:[^~/]|~[01])*)*"
  struct Format {
    std::string_view name, pattern;
  };
  static constexpr std::array<Format, 19> kFormats{
      {{"date", QUIPU_DATE},
       {"time", QUIPU_TIME},
       {"date-time", QUIPU_DATE "T" QUIPU_TIME},
       {"duration",
        "P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)?"
        "(?:T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))|"
        "(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D))"},
       {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
       {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" QUIPU_ANY_LABEL
                 "(?:\\." QUIPU_ANY_LABEL ")+"},
       {"hostname", QUIPU_HOST},
       {"ipv4", QUIPU_IPV4},
       {"ipv6", QUIPU_IPV6},
       {"uri", QUIPU_URI},
       {"uri-reference", "(?:" QUIPU_URI "|(?://" QUIPU_AUTHORITY
                         "|(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})*)" QUIPU_PATH QUIPU_TAIL ")"},
       {"iri", QUIPU_URI},
       {"iri-reference", "(?:" QUIPU_URI "|" QUIPU_PATH QUIPU_TAIL ")"},
       {"json-pointer", QUIPU_POINTER},
       {"relative-json-pointer", "(?:0|[1-9]\\d{0,8})(?:#|" QUIPU_POINTER ")"},
       {"uri-template", ""},
       {"idn-email", ""},
       {"idn-hostname", ""},
       {"regex", ""}}};
#undef QUIPU_DATE
#undef QUIPU_TIME
#undef QUIPU_BYTE
#undef QUIPU_IPV4
#undef QUIPU_LABEL
#undef QUIPU_HOST
#undef QUIPU_ANY_LABEL
#undef QUIPU_ANY_HOST
#undef QUIPU_PCHAR
#undef QUIPU_PATH
#undef QUIPU_TAIL
#undef QUIPU_H16
#undef QUIPU_IPV6
#undef QUIPU_AUTHORITY
#undef QUIPU_URI
#undef QUIPU_POINTER
  const auto it =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& f) { return f.name == name; });
  return it == kFormats.end() ? std::nullopt : std::optional(it->pattern);
}

// ---- constants ----

std::string constant_text(const Data& value) {
  struct Printer {
    std::string operator()(std::nullptr_t) const { return "null"; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const {
      const Decimal decimal = Decimal::of(Data(number));
      if (decimal.whole.size() > kMaxDigits || decimal.fraction.size() > kMaxDigits)
        return fmt::format("{}", number);
      return fmt::format("{}{}{}{}", decimal.negative ? "-" : "", decimal.whole,
                         decimal.fraction.empty() ? "" : ".", decimal.fraction);
    }
    std::string operator()(const Data::Text& text) const { return '"' + json_escaped(text.bytes) + '"'; }
    std::string operator()(const Data::List& list) const {
      std::string out = "[";
      for (const Data& item : list) {
        if (out.size() > 1) out += ',';
        out += constant_text(item);
      }
      return out + ']';
    }
    std::string operator()(const Data::Mapping& mapping) const {
      std::string out = "{";
      for (const auto& [key, item] : mapping) {
        if (out.size() > 1) out += ',';
        out += '"' + json_escaped(key) + "\":" + constant_text(item);
      }
      return out + '}';
    }
  };
  return std::visit(Printer(), value.value);
}

Id constant(Store& store, const Data& value, Id comma_space, Id colon_space, Id inside) {
  const auto nested = [&](const Data& item) {
    return constant(store, item, comma_space, colon_space, inside);
  };
  const Id comma = store.concat(store.byte(','), comma_space);
  if (const auto* list = std::get_if<Data::List>(&value.value)) {
    Id id = store.concat(list->empty() ? kEmpty : inside, store.byte(']'));
    for (std::size_t i = list->size(); i-- > 0;)
      id = store.concat({i == 0 ? kEmpty : comma, nested((*list)[i]), id});
    return store.concat({store.byte('['), inside, id});
  }
  if (const auto* mapping = std::get_if<Data::Mapping>(&value.value)) {
    Id id = store.concat(mapping->empty() ? kEmpty : inside, store.byte('}'));
    for (std::size_t i = mapping->size(); i-- > 0;) {
      const auto& [key, item] = (*mapping)[i];
      id = store.concat({i == 0 ? kEmpty : comma, store.literal('"' + json_escaped(key) + "\":"), colon_space,
                         nested(item), id});
    }
    return store.concat({store.byte('{'), inside, id});
  }
  const std::string text = constant_text(value);
  // Another way to write a whole number that the schema gives with a point.
  if (const auto* real = std::get_if<double>(&value.value);
      real != nullptr && *real == std::floor(*real) && text.find('e') == std::string::npos)
    return store.choice(store.literal(text), store.literal(text + ".0"));
  return store.literal(text);
}

bool equal(const Data& x, const Data& y) {
  const auto number = [](const Data& d) -> std::optional<double> {
    if (const auto* i = std::get_if<std::int64_t>(&d.value)) return static_cast<double>(*i);
    if (const auto* r = std::get_if<double>(&d.value)) return *r;
    return std::nullopt;
  };
  if (const auto a = number(x), b = number(y); a && b) return *a == *b;
  if (x.value.index() != y.value.index()) return false;
  if (const auto* text = std::get_if<Data::Text>(&x.value))
    return text->bytes == std::get<Data::Text>(y.value).bytes;
  if (const auto* list = std::get_if<Data::List>(&x.value)) {
    const auto& other = std::get<Data::List>(y.value);
    return std::equal(list->begin(), list->end(), other.begin(), other.end(), equal);
  }
  if (const auto* mapping = std::get_if<Data::Mapping>(&x.value)) {
    const auto& other = std::get<Data::Mapping>(y.value);
    return mapping->size() == other.size() &&
           std::all_of(mapping->begin(), mapping->end(), [&](const auto& entry) {
             return std::any_of(other.begin(), other.end(), [&](const auto& candidate) {
               return candidate.first == entry.first && equal(entry.second, candidate.second);
             });
           });
  }
  if (const auto* flag = std::get_if<bool>(&x.value)) return *flag == std::get<bool>(y.value);
  return true;
}

}  // namespace quipu::text::grammar::schema

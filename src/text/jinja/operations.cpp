// Python's operators, attribute and item access, calls.
#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/context.hpp"
#include "text/jinja/nest.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

using ErrorKind = TemplateError::Kind;

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      return value.list().tuple ? "tuple" : "list";
    case Kind::mapping:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::generator:
      return "generator";
    case Kind::view:
      return "dict_view";
    case Kind::name_space:
      return "Namespace";
    case Kind::callable:
      return "function";
    case Kind::loop:
      return "LoopContext";
  }
  return "object";
}

bool Context::truth(const Value& value) const {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.flag();
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::string:
      return !value.text().bytes.empty();
    case Kind::list:
      return !value.list().items.empty();
    case Kind::mapping:
      return !value.mapping().entries.empty();
    case Kind::range:
      return value.as<Range>().size > 0;
    case Kind::view:
      return truth(value.as<View>().mapping);
    default:
      return true;
  }
}

bool Context::equal(const Value& a, const Value& b) {
  step();  // also for numbers and for unlike kinds: a search walks past many of them
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return a.real() == b.real();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      step(std::min(a.text().bytes.size(), b.text().bytes.size()) / 64);
      return a.text().bytes == b.text().bytes;
    case Kind::list: {
      const List& x = a.list();
      const List& y = b.list();
      if (x.tuple != y.tuple || x.items.size() != y.items.size()) return false;
      for (std::size_t i = 0; i < x.items.size(); ++i)
        if (!equal(x.items[i], y.items[i])) return false;
      return true;
    }
    case Kind::mapping: {
      const Mapping& x = a.mapping();
      const Mapping& y = b.mapping();
      if (x.entries.size() != y.entries.size()) return false;
      for (const auto& [key, value] : x.entries) {
        const Value* other = find(y, key);
        if (other == nullptr || !equal(value, *other)) return false;
      }
      return true;
    }
    case Kind::range: {
      const auto& x = a.as<Range>();
      const auto& y = b.as<Range>();
      return x.size == y.size && (x.size == 0 || (x.start == y.start && (x.size == 1 || x.step == y.step)));
    }
    default:
      return a.object() == b.object();
  }
}

bool Context::less(const Value& a, const Value& b) {
  step();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
    return a.real() < b.real();
  }
  // UTF-8 sorts as its code points do.
  if (a.is(Kind::string) && b.is(Kind::string)) {
    step(std::min(a.text().bytes.size(), b.text().bytes.size()) / 64);
    return a.text().bytes < b.text().bytes;
  }
  if (a.is(Kind::list) && b.is(Kind::list) && a.list().tuple == b.list().tuple) {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(x[i], y[i])) return less(x[i], y[i]);
    return x.size() < y.size();
  }
  if (a.is(Kind::undefined)) fail_undefined(a);
  if (b.is(Kind::undefined)) fail_undefined(b);
  fail_type("'<' is not defined between {} and {}", type_name(a), type_name(b));
}

std::uint64_t Context::hash(const Value& value) const {
  switch (value.kind()) {
    case Kind::boolean:
    case Kind::integer:
      return std::hash<double>{}(static_cast<double>(value.integer()));
    case Kind::real:
      return std::hash<double>{}(value.real());
    case Kind::string:
      return std::hash<std::string_view>{}(value.text().bytes);
    case Kind::undefined:
    case Kind::none:
      return 7;
    case Kind::list: {
      if (!value.list().tuple) fail_type("a list cannot be a key");
      std::uint64_t code = 11;
      for (const Value& item : value.list().items) code = code * 0x9e3779b97f4a7c15u + hash(item);
      return code;
    }
    case Kind::mapping:
      fail_type("a dict cannot be a key");
    default:
      return 13;
  }
}

const Value* Context::find(const Mapping& mapping, const Value& key) {
  if (!mapping.index.empty()) {
    const auto found = mapping.index.equal_range(hash(key));
    for (auto i = found.first; i != found.second; ++i)
      if (equal(mapping.entries[i->second].first, key)) return &mapping.entries[i->second].second;
    return nullptr;
  }
  for (const auto& entry : mapping.entries)
    if (equal(entry.first, key)) return &entry.second;
  return nullptr;
}

const Value* Context::find(const Mapping& mapping, std::string_view key) {
  if (!mapping.index.empty()) {
    const auto found = mapping.index.equal_range(std::hash<std::string_view>{}(key));
    for (auto i = found.first; i != found.second; ++i) {
      const auto& entry = mapping.entries[i->second];
      if (entry.first.is(Kind::string) && entry.first.text().bytes == key) return &entry.second;
    }
    return nullptr;
  }
  for (const auto& entry : mapping.entries)
    if (entry.first.is(Kind::string) && entry.first.text().bytes == key) return &entry.second;
  return nullptr;
}

namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

bool power(std::int64_t base, std::int64_t exponent, std::int64_t& result) {
  result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return false;
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return false;
  }
  return true;
}

Value integer_operation(const Context& context, Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::power:
      if (b < 0) return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
      overflow = !power(a, b, result);
      break;
    case Operator::floor_divide:
    case Operator::modulo:
      if (b == 0) context.fail_type("division by zero");
      if (b == -1) {
        overflow = op == Operator::floor_divide && __builtin_sub_overflow(std::int64_t{0}, a, &result);
        if (op == Operator::modulo) result = 0;
        break;
      }
      result = floor_divide(a, b);
      if (op == Operator::modulo) result = a - result * b;
      break;
    default:
      break;
  }
  if (overflow) context.fail_type("the result of an integer operation does not fit into 64 bits");
  return Value(result);
}

Value real_operation(const Context& context, Operator op, double a, double b) {
  const auto nonzero = [&] {
    if (b == 0) context.fail_type("division by zero");
  };
  switch (op) {
    case Operator::add:
      return Value(a + b);
    case Operator::subtract:
      return Value(a - b);
    case Operator::multiply:
      return Value(a * b);
    case Operator::power:
      return Value(std::pow(a, b));
    case Operator::divide:
      nonzero();
      return Value(a / b);
    case Operator::floor_divide:
      nonzero();
      return Value(std::floor(a / b));
    default: {
      nonzero();
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      return Value(rest);
    }
  }
}

}  // namespace

Value Context::concat(const Value& a, const Value& b, bool markup) {
  TextBuilder builder;
  heap_.require(a.text().bytes.size() + b.text().bytes.size());
  const auto add_part = [&](const Text& part) {
    if (markup && !part.markup)
      builder.append(escape_html(part.bytes));
    else
      builder.append(part);
  };
  add_part(a.text());
  add_part(b.text());
  return text(std::move(builder), markup);
}

Value Context::binary(Operator op, const Value& a, const Value& b) {
  if (a.is(Kind::undefined)) fail_undefined(a);
  if (op == Operator::modulo && a.is(Kind::string)) return percent_format(a.text(), b);
  if (b.is(Kind::undefined)) fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral() && op != Operator::divide)
      return integer_operation(*this, op, a.integer(), b.integer());
    return real_operation(*this, op, a.real(), b.real());
  }
  if (op == Operator::add && a.kind() == b.kind()) {
    if (a.is(Kind::string)) return concat(a, b, a.text().markup || b.text().markup);
    if (a.is(Kind::list) && a.list().tuple == b.list().tuple) {
      heap_.require((a.list().items.size() + b.list().items.size()) * sizeof(Value));
      std::vector<Value> items = a.list().items;
      items.insert(items.end(), b.list().items.begin(), b.list().items.end());
      return list(std::move(items), a.list().tuple);
    }
  }
  if (op == Operator::multiply && (a.is_integral() || b.is_integral())) {
    const Value& sequence = a.is_integral() ? b : a;
    const std::int64_t times = std::max<std::int64_t>(0, (a.is_integral() ? a : b).integer());
    const auto room = [&](std::size_t unit) {
      std::uint64_t total = 0;
      if (__builtin_mul_overflow(static_cast<std::uint64_t>(times), unit, &total))
        total = ~std::uint64_t{0} >> 1;
      heap_.require(total);
      step(static_cast<std::uint64_t>(times));
    };
    if (sequence.is(Kind::string)) {
      const Text& unit = sequence.text();
      if (unit.bytes.empty()) return sequence;
      room(unit.bytes.size());
      TextBuilder builder;
      for (std::int64_t i = 0; i < times; ++i) builder.append(unit);
      return text(std::move(builder), unit.markup);
    }
    if (sequence.is(Kind::list)) {
      const auto& unit = sequence.list().items;
      if (unit.empty()) return sequence;
      room(unit.size() * sizeof(Value));
      std::vector<Value> items;
      for (std::int64_t i = 0; i < times; ++i) items.insert(items.end(), unit.begin(), unit.end());
      return list(std::move(items), sequence.list().tuple);
    }
  }
  fail_type("an operator is not defined between {} and {}", type_name(a), type_name(b));
}

Value Context::negate(const Value& value) {
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (value.is(Kind::real)) return Value(-value.real());
  if (value.is_integral()) return integer_operation(*this, Operator::subtract, 0, value.integer());
  fail_type("bad operand for unary -: {}", type_name(value));
}

bool Context::compare(Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::equal:
      return equal(a, b);
    case Operator::not_equal:
      return !equal(a, b);
    case Operator::less:
      return less(a, b);
    case Operator::greater:
      return less(b, a);
    case Operator::less_equal:
      return less(a, b) || equal(a, b);
    case Operator::greater_equal:
      return less(b, a) || equal(a, b);
    case Operator::in:
      return contains(b, a);
    default:
      return !contains(b, a);
  }
}

bool Context::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::undefined:
      return false;
    case Kind::string:
      if (item.is(Kind::undefined)) fail_undefined(item);
      if (!item.is(Kind::string))
        fail_type("'in <string>' needs a string on its left, not {}", type_name(item));
      step(container.text().bytes.size() / 32);
      return container.text().bytes.find(item.text().bytes) != std::string::npos;
    case Kind::mapping:
      hash(item);
      step(container.mapping().entries.size() / 8);
      return find(container.mapping(), item) != nullptr;
    case Kind::list:
      for (const Value& element : container.list().items)
        if (equal(element, item)) return true;
      return false;
    default:
      for (const Value& element : elements(container))
        if (equal(element, item)) return true;
      return false;
  }
}

Value Context::call(const Value& callee, Arguments& arguments) {
  if (callee.is(Kind::undefined)) fail_undefined(callee);
  if (!callee.is(Kind::callable) && !callee.is(Kind::loop))
    fail_type("{} is not callable", type_name(callee));
  const Value keep = callee;
  return static_cast<Callable*>(keep.object())->call(*this, arguments);
}

void Context::bind(std::string_view name, std::string_view parameters, Arguments& arguments) {
  if (parameters == "*") return;
  std::vector<Value> bound;
  std::size_t taken = 0;
  while (!parameters.empty()) {
    const std::size_t space = parameters.find(' ');
    std::string_view parameter = parameters.substr(0, space);
    parameters = space == std::string_view::npos ? std::string_view() : parameters.substr(space + 1);
    const bool optional = parameter.back() == '?';
    if (optional) parameter.remove_suffix(1);
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& entry) { return entry.first == parameter; });
    if (taken < arguments.positional.size()) {
      if (named != arguments.named.end()) fail_type("{}() got two values for '{}'", name, parameter);
      bound.push_back(arguments.positional[taken++]);
    } else if (named != arguments.named.end()) {
      bound.push_back(named->second);
      arguments.named.erase(named);
    } else if (optional) {
      bound.push_back(absent());
    } else {
      fail_type("{}() lacks its argument '{}'", name, parameter);
    }
  }
  if (taken < arguments.positional.size()) fail_type("{}() got too many arguments", name);
  if (!arguments.named.empty())
    fail_type("{}() has no argument '{}'", name, printable(arguments.named.front().first, 60));
  arguments.positional = std::move(bound);
}

Value Context::apply_filter(const FilterEntry& filter, const Value& self, Arguments& arguments) {
  bind(filter.name, filter.parameters, arguments);
  return filter.function(*this, self, arguments);
}

bool Context::apply_test(const TestEntry& test, const Value& self, Arguments& arguments) {
  bind(test.name, test.parameters, arguments);
  return test.function(*this, self, arguments);
}

}  // namespace quipu::text::jinja

// Global functions.
#include <locale.h>
#include <array>
#include <ctime>

#include "text/jinja/arguments.hpp"

namespace quipu::text::jinja {

namespace {

using C = Context;
using A = Arguments;

/// The longest range the sandbox makes.
constexpr std::int64_t kMaxRange = 100000;

Value range(C& c, const Value&, A& a) {
  const Value& second = argument(a, 1);
  std::int64_t start = 0;
  std::int64_t stop = int_argument(c, argument(a, 0), 0);
  if (given(second)) {
    start = stop;
    stop = int_argument(c, second, 0);
  }
  const std::int64_t step = int_argument(c, argument(a, 2), 1);
  if (step == 0) c.fail_type("the step of range() is zero");
  const bool up = step > 0;
  const bool any = up ? start < stop : start > stop;
  const auto distance = any ? (up ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                                  : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop))
                            : 0;
  const std::uint64_t stride = up ? static_cast<std::uint64_t>(step) : ~static_cast<std::uint64_t>(step) + 1;
  const std::uint64_t size = any ? (distance - 1) / stride + 1 : 0;
  if (size > static_cast<std::uint64_t>(kMaxRange))
    c.fail_limit(fmt::format("elements of a range (at most {})", kMaxRange));
  auto* made = c.make<Range>();
  const Value value(Kind::range, made);
  made->start = start;
  made->stop = stop;
  made->step = step;
  made->size = static_cast<std::int64_t>(size);
  return value;
}

std::vector<std::pair<Value, Value>> pairs(C& c, const A& a, std::string_view name) {
  std::vector<std::pair<Value, Value>> entries;
  if (a.positional.size() > 1) c.fail_type("{}() takes at most one argument", name);
  if (!a.positional.empty()) {
    const Value& from = a.positional[0];
    if (from.is(Kind::mapping)) {
      entries = from.mapping().entries;
      c.step(entries.size());
    } else {
      for (const Value& item : c.elements(from)) {
        std::vector<Value> two = c.elements(item);
        if (two.size() != 2) c.fail_type("{}() needs pairs", name);
        entries.emplace_back(std::move(two[0]), std::move(two[1]));
      }
    }
  }
  for (const auto& [key, value] : a.named) entries.emplace_back(c.text(key), value);
  return entries;
}

Value dict(C& c, const Value&, A& a) { return c.mapping(pairs(c, a, "dict")); }

Value name_space(C& c, const Value&, A& a) {
  const Ref<NameSpace> space = c.name_space();
  const Value merged = c.mapping(pairs(c, a, "namespace"));
  for (const auto& entry : merged.mapping().entries) {
    if (!entry.first.is(Kind::string)) c.fail_type("the attributes of a namespace must be strings");
    space->charge(c.heap(), 64);
    space->attributes.push_back(entry);
  }
  return Value(Kind::name_space, space.get());
}

Value raise(C& c, const Value&, A& a) {
  const Value message = c.str(argument(a, 0));
  c.fail_with(TemplateError::Kind::raised, message.text().bytes);
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

Value strftime_now(C& c, const Value&, A& a) {
  const std::string& format = text_argument(c, argument(a, 0)).bytes;
  // Python's clock here has no zone, and microseconds, which C lacks.
  std::string pattern;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      pattern += format[i];
    } else if (const char code = format[++i]; code == 'f') {
      pattern += "000000";
    } else if (code != 'z' && code != 'Z') {
      pattern += '%';
      pattern += code;
    }
  }
  if (pattern.empty()) return c.text("");
  if (pattern.size() > 1000 || pattern.find('\0') != std::string::npos)
    c.fail_type("strftime_now() got an unusable format");
  const std::tm now = c.clock() ? c.clock()() : local_now();
  static const locale_t kPlain = newlocale(LC_ALL_MASK, "C", nullptr);
  std::array<char, 16384> out{};
  pattern += '.';  // tells an empty result from a failure
  const std::size_t size = strftime_l(out.data(), out.size(), pattern.c_str(), &now, kPlain);
  if (size == 0) c.fail_limit("characters of a date");
  return c.text(std::string(out.data(), size - 1));
}

Value cycler(C& c, const Value&, A& a) {
  if (a.positional.empty()) c.fail_type("cycler() needs at least one item");
  int depth = 0;
  for (const Value& item : a.positional)
    if (item.is_object()) depth = std::max(depth, item.object()->depth + 1);
  auto* made = c.make<Cycler>(a.positional.size() * sizeof(Value), depth);
  const Value value(Kind::callable, made);
  made->items = a.positional;
  return value;
}

Value joiner(C& c, const Value&, A& a) {
  auto* made = c.make<Joiner>(0, 1);
  const Value value(Kind::callable, made);
  made->separator = given(argument(a, 0)) ? c.str(argument(a, 0)) : c.text(", ", true);
  return value;
}

constexpr Native kGlobals[] = {
    {"range", range, "start stop? step?"},
    {"dict", dict, "*"},
    {"namespace", name_space, "*"},
    {"raise_exception", raise, "message"},
    {"strftime_now", strftime_now, "format"},
    {"cycler", cycler, "*"},
    {"joiner", joiner, "sep?"},
};

}  // namespace

const Native* find_global(std::string_view name) {
  for (const Native& entry : kGlobals)
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace quipu::text::jinja

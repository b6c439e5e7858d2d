// Tests: what stands after `is`.
#include <algorithm>

#include "text/jinja/arguments.hpp"

namespace quipu::text::jinja {

namespace {

using C = Context;
using A = Arguments;

std::int64_t remainder(C& c, const Value& value, const Value& by) {
  const Value rest = c.binary(Operator::modulo, value, by);
  return rest.is_integral() ? rest.integer() : rest.real() == 0 ? 0 : 1;
}

template <Operator op>
bool compares(C& c, const Value& s, A& a) {
  return c.compare(op, s, argument(a, 0));
}

bool is_kind(const Value& s, std::initializer_list<Kind> kinds) {
  return std::find(kinds.begin(), kinds.end(), s.kind()) != kinds.end();
}

bool cased(C& c, const Value& s, std::string_view method) {
  Arguments none;
  const Value shown = c.str(s);
  return c.truth(find_method(Kind::string, method)->function(c, shown, none));
}

constexpr TestEntry kTests[] = {
    {"boolean", [](C&, const Value& s, A&) { return s.is(Kind::boolean); }},
    {"callable",
     [](C&, const Value& s, A&) {
       return is_kind(s, {Kind::callable, Kind::loop});
     }},
    {"defined", [](C&, const Value& s, A&) { return !s.is(Kind::undefined); }},
    {"undefined", [](C&, const Value& s, A&) { return s.is(Kind::undefined); }},
    {"divisibleby", [](C& c, const Value& s, A& a) { return remainder(c, s, argument(a, 0)) == 0; }, "num"},
    {"even", [](C& c, const Value& s, A&) { return remainder(c, s, Value(std::int64_t{2})) == 0; }},
    {"odd", [](C& c, const Value& s, A&) { return remainder(c, s, Value(std::int64_t{2})) == 1; }},
    {"escaped", [](C&, const Value& s, A&) { return s.is(Kind::string) && s.text().markup; }},
    {"false", [](C&, const Value& s, A&) { return s.is(Kind::boolean) && !s.flag(); }},
    {"true", [](C&, const Value& s, A&) { return s.is(Kind::boolean) && s.flag(); }},
    {"filter",
     [](C&, const Value& s, A&) { return s.is(Kind::string) && find_filter(s.text().bytes) != nullptr; }},
    {"test",
     [](C&, const Value& s, A&) { return s.is(Kind::string) && find_test(s.text().bytes) != nullptr; }},
    {"float", [](C&, const Value& s, A&) { return s.is(Kind::real); }},
    {"integer", [](C&, const Value& s, A&) { return s.is(Kind::integer); }},
    {"number", [](C&, const Value& s, A&) { return s.is_number(); }},
    {"none", [](C&, const Value& s, A&) { return s.is(Kind::none); }},
    {"string", [](C&, const Value& s, A&) { return s.is(Kind::string); }},
    {"mapping", [](C&, const Value& s, A&) { return s.is(Kind::mapping); }},
    {"iterable",
     [](C&, const Value& s, A&) {
       return is_kind(s, {Kind::undefined, Kind::string, Kind::list, Kind::mapping, Kind::range,
                          Kind::generator, Kind::view, Kind::loop});
     }},
    {"sequence",
     [](C&, const Value& s, A&) {
       return is_kind(s, {Kind::undefined, Kind::string, Kind::list, Kind::mapping, Kind::range});
     }},
    {"lower", [](C& c, const Value& s, A&) { return cased(c, s, "islower"); }},
    {"upper", [](C& c, const Value& s, A&) { return cased(c, s, "isupper"); }},
    {"sameas",
     [](C& c, const Value& s, A& a) {
       const Value& other = argument(a, 0);
       if (s.kind() != other.kind()) return false;
       return s.is_object() && !s.is(Kind::string) ? s.object() == other.object() : c.equal(s, other);
     },
     "other"},
    {"in", compares<Operator::in>, "seq"},
    {"eq", compares<Operator::equal>, "other"},
    {"equalto", compares<Operator::equal>, "other"},
    {"==", compares<Operator::equal>, "other"},
    {"ne", compares<Operator::not_equal>, "other"},
    {"!=", compares<Operator::not_equal>, "other"},
    {"lt", compares<Operator::less>, "other"},
    {"lessthan", compares<Operator::less>, "other"},
    {"<", compares<Operator::less>, "other"},
    {"le", compares<Operator::less_equal>, "other"},
    {"<=", compares<Operator::less_equal>, "other"},
    {"gt", compares<Operator::greater>, "other"},
    {"greaterthan", compares<Operator::greater>, "other"},
    {">", compares<Operator::greater>, "other"},
    {"ge", compares<Operator::greater_equal>, "other"},
    {">=", compares<Operator::greater_equal>, "other"},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  for (const TestEntry& entry : kTests)
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace quipu::text::jinja

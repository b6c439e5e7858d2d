// Filters over lists and mappings.
#include <algorithm>
#include <charconv>

#include "text/jinja/arguments.hpp"
#include "text/jinja/filters.hpp"

namespace quipu::text::jinja {

namespace {

using C = Context;
using A = Arguments;

/// The item's attribute "a.b.0", or the item itself where no attribute is asked for.
Value attribute_of(C& c, const Value& item, const Value& path) {
  if (!given(path) || path.is(Kind::none)) return item;
  if (path.is_integral()) return c.item(item, path);
  std::string_view rest = text_argument(c, path).bytes;
  Value value = item;
  for (;;) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    std::int64_t number = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), number);
    c.step();
    if (!part.empty() && parsed.ec == std::errc() && parsed.ptr == part.data() + part.size())
      value = c.item(value, Value(number));
    else
      value = c.item(value, c.text(std::string(part)));
    if (dot == std::string_view::npos) return value;
    rest = rest.substr(dot + 1);
  }
}

/// A key to compare by: strings without case unless asked otherwise.
Value sort_key(C& c, const Value& item, const Value& path, bool cased) {
  Value key = attribute_of(c, item, path);
  return !cased && key.is(Kind::string) ? change_case(c, key, Case::lower) : key;
}

Value length(C& c, const Value& s, A&) { return Value(c.length(s)); }
Value to_list(C& c, const Value& s, A&) { return c.list(c.elements(s)); }

Value items(C& c, const Value& s, A&) {
  if (s.is(Kind::undefined)) return c.generator({});
  if (!s.is(Kind::mapping)) c.fail_type("items needs a mapping, not {}", type_name(s));
  std::vector<Value> list;
  for (const auto& [key, value] : s.mapping().entries) list.push_back(c.pair(key, value));
  return c.generator(std::move(list));
}

Value otherwise(C& c, const Value& s, A& a) {
  const bool missing = s.is(Kind::undefined) || (flag_argument(c, argument(a, 1), false) && !c.truth(s));
  if (!missing) return s;
  return given(argument(a, 0)) ? argument(a, 0) : c.text("");
}

Value first(C& c, const Value& s, A&) {
  std::vector<Value> all = c.elements(s);
  return all.empty() ? Value() : all.front();
}
Value last(C& c, const Value& s, A&) {
  if (s.is(Kind::generator)) c.fail_type("a generator cannot be reversed");
  std::vector<Value> all = c.elements(s);
  return all.empty() ? Value() : all.back();
}

Value do_join(C& c, const Value& s, A& a) {
  std::vector<Value> all = c.elements(s);
  if (given(argument(a, 1)))
    for (Value& item : all) item = attribute_of(c, item, argument(a, 1));
  return join(c, given(argument(a, 0)) ? c.str(argument(a, 0)) : c.text(""), all, true);
}

Value reverse(C& c, const Value& s, A&) {
  if (s.is(Kind::string)) return c.slice_of(s, Value::none(), Value::none(), Value(std::int64_t{-1}));
  std::vector<Value> all = c.elements(s);
  std::reverse(all.begin(), all.end());
  return c.generator(std::move(all));
}

void sort_by(C& c, std::vector<std::pair<Value, Value>>& keyed, bool backwards) {
  c.step(keyed.size());
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return backwards ? c.less(y.first, x.first) : c.less(x.first, y.first);
  });
}

Value sort(C& c, const Value& s, A& a) {
  std::vector<std::pair<Value, Value>> keyed;
  const bool cased = flag_argument(c, argument(a, 1), false);
  for (Value& item : c.elements(s)) {
    Value key = sort_key(c, item, argument(a, 2), cased);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_by(c, keyed, flag_argument(c, argument(a, 0), false));
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return c.list(std::move(sorted));
}

Value dictsort(C& c, const Value& s, A& a) {
  if (s.is(Kind::undefined)) c.fail_undefined(s);
  if (!s.is(Kind::mapping)) c.fail_type("dictsort needs a mapping, not {}", type_name(s));
  const bool cased = flag_argument(c, argument(a, 0), false);
  const std::string by = given(argument(a, 1)) ? text_argument(c, argument(a, 1)).bytes : "key";
  if (by != "key" && by != "value") c.fail_type("dictsort: by must be 'key' or 'value'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : s.mapping().entries)
    keyed.emplace_back(sort_key(c, by == "key" ? key : value, absent(), cased), c.pair(key, value));
  sort_by(c, keyed, flag_argument(c, argument(a, 2), false));
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return c.list(std::move(sorted));
}

Value unique(C& c, const Value& s, A& a) {
  const bool cased = flag_argument(c, argument(a, 0), false);
  std::unordered_multimap<std::uint64_t, Value> seen;
  std::vector<Value> kept;
  for (Value& item : c.elements(s)) {
    c.step(12);  // an entry of the table costs as much as that many plain steps
    Value key = sort_key(c, item, argument(a, 1), cased);
    const std::uint64_t code = c.hash(key);
    const auto same = seen.equal_range(code);
    if (std::any_of(same.first, same.second, [&](const auto& other) { return c.equal(other.second, key); }))
      continue;
    seen.emplace(code, std::move(key));
    kept.push_back(std::move(item));
  }
  return c.generator(std::move(kept));
}

Value extreme(C& c, const Value& s, const A& a, bool largest) {
  const bool cased = flag_argument(c, argument(a, 0), false);
  std::vector<Value> all = c.elements(s);
  if (all.empty()) return Value();
  std::size_t best = 0;
  Value best_key = sort_key(c, all[0], argument(a, 1), cased);
  for (std::size_t i = 1; i < all.size(); ++i) {
    Value key = sort_key(c, all[i], argument(a, 1), cased);
    if (largest ? !c.less(best_key, key) : !c.less(key, best_key)) continue;
    best = i;
    best_key = std::move(key);
  }
  return all[best];
}
Value minimum(C& c, const Value& s, A& a) { return extreme(c, s, a, false); }
Value maximum(C& c, const Value& s, A& a) { return extreme(c, s, a, true); }

Value sum(C& c, const Value& s, A& a) {
  Value total = given(argument(a, 1)) ? argument(a, 1) : Value(std::int64_t{0});
  for (const Value& item : c.elements(s))
    total = c.binary(Operator::add, total, attribute_of(c, item, argument(a, 0)));
  return total;
}

/// Removes the first positional argument and returns it as a name.
std::string take_name(C& c, A& a, std::string_view filter) {
  if (a.positional.empty()) c.fail_type("{} needs the name of a filter, test or attribute", filter);
  std::string name = text_argument(c, a.positional[0]).bytes;
  a.positional.erase(a.positional.begin());
  return name;
}

// map, select and their kin take none and other empty values for no items, as Jinja does.

Value map(C& c, const Value& s, A& a) {
  std::vector<Value> mapped;
  if (!c.truth(s)) return c.generator({});
  if (a.positional.empty()) {
    Value path = absent();
    Value missing = absent();
    for (const auto& [name, value] : a.named) {
      if (name == "attribute")
        path = value;
      else if (name == "default")
        missing = value;
      else
        c.fail_type("map has no argument '{}'", printable(name, 60));
    }
    if (!given(path)) c.fail_type("map needs a filter or an attribute");
    for (const Value& item : c.elements(s)) {
      Value value = attribute_of(c, item, path);
      mapped.push_back(value.is(Kind::undefined) && given(missing) ? missing : std::move(value));
    }
    return c.generator(std::move(mapped));
  }
  const std::string name = take_name(c, a, "map");
  const FilterEntry* filter = find_filter(name);
  if (filter == nullptr) c.fail_type("there is no filter '{}'", printable(name, 60));
  for (const Value& item : c.elements(s)) {
    c.step();
    A copy = a;
    mapped.push_back(c.apply_filter(*filter, item, copy));
  }
  return c.generator(std::move(mapped));
}

Value choose(C& c, const Value& s, A& a, bool keep, bool by_attribute) {
  if (!c.truth(s)) return c.generator({});
  Value path = absent();
  if (by_attribute) {
    if (a.positional.empty()) c.fail_type("selectattr and rejectattr need an attribute");
    path = a.positional[0];
    a.positional.erase(a.positional.begin());
  }
  const TestEntry* test = nullptr;
  if (!a.positional.empty()) {
    const std::string name = take_name(c, a, "select");
    test = find_test(name);
    if (test == nullptr) c.fail_type("there is no test '{}'", printable(name, 60));
  }
  std::vector<Value> kept;
  for (Value& item : c.elements(s)) {
    c.step();
    const Value value = attribute_of(c, item, path);
    A copy = a;
    if ((test != nullptr ? c.apply_test(*test, value, copy) : c.truth(value)) == keep)
      kept.push_back(std::move(item));
  }
  return c.generator(std::move(kept));
}
Value select(C& c, const Value& s, A& a) { return choose(c, s, a, true, false); }
Value reject(C& c, const Value& s, A& a) { return choose(c, s, a, false, false); }
Value selectattr(C& c, const Value& s, A& a) { return choose(c, s, a, true, true); }
Value rejectattr(C& c, const Value& s, A& a) { return choose(c, s, a, false, true); }

Value attr(C& c, const Value& s, A& a) {
  const std::string& name = text_argument(c, argument(a, 0)).bytes;
  // Attributes only, not the keys of a mapping.
  if (!s.is(Kind::mapping)) return c.attribute(s, name);
  const Native* method = find_method(Kind::mapping, name);
  return method != nullptr ? c.native(method, s) : Value();
}

Value batch(C& c, const Value& s, A& a) {
  const std::int64_t size = int_argument(c, argument(a, 0), 1);
  if (size < 1) c.fail_type("batch needs a size of at least 1");
  std::vector<Value> rows;
  std::vector<Value> row;
  for (Value& item : c.elements(s)) {
    if (static_cast<std::int64_t>(row.size()) == size) rows.push_back(c.list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    const bool fill = given(argument(a, 1)) && !argument(a, 1).is(Kind::none);
    if (fill)
      c.heap().require(static_cast<std::uint64_t>(std::min<std::int64_t>(size, 1 << 30)) * sizeof(Value));
    while (fill && static_cast<std::int64_t>(row.size()) < size) {
      c.step();
      row.push_back(argument(a, 1));
    }
    rows.push_back(c.list(std::move(row)));
  }
  return c.generator(std::move(rows));
}

Value slice(C& c, const Value& s, A& a) {
  const std::vector<Value> all = c.elements(s);
  const std::int64_t slices = int_argument(c, argument(a, 0), 1);
  if (slices < 1) c.fail_type("slice needs at least one column");
  const auto size = static_cast<std::int64_t>(all.size());
  std::vector<Value> columns;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    c.step();
    const std::int64_t count = size / slices + (i < size % slices ? 1 : 0);
    std::vector<Value> column(all.begin() + offset, all.begin() + offset + count);
    offset += count;
    if (given(argument(a, 1)) && !argument(a, 1).is(Kind::none) && size % slices != 0 && i >= size % slices)
      column.push_back(argument(a, 1));
    columns.push_back(c.list(std::move(column)));
  }
  return c.generator(std::move(columns));
}

Value groupby(C& c, const Value& s, A& a) {
  const bool cased = flag_argument(c, argument(a, 2), false);
  std::vector<std::pair<Value, Value>> keyed;
  const auto key_of = [&](const Value& item, bool raw) {
    Value key = attribute_of(c, item, argument(a, 0));
    if (key.is(Kind::undefined) && given(argument(a, 1))) key = argument(a, 1);
    return !raw && !cased && key.is(Kind::string) ? change_case(c, key, Case::lower) : key;
  };
  for (Value& item : c.elements(s)) {
    Value key = key_of(item, false);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_by(c, keyed, false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const Value label = key_of(keyed[i].second, true);
    const Value key = keyed[i].first;
    for (; i < keyed.size() && c.equal(keyed[i].first, key); ++i)
      members.push_back(std::move(keyed[i].second));
    if (members.empty()) break;  // a key unequal to itself (nan)
    groups.push_back(c.pair(label, c.list(std::move(members))));
  }
  return c.list(std::move(groups));
}

const FilterEntry kFilters[] = {
    {{"attr", attr, "name"}},
    {{"batch", batch, "linecount fill_with?"}},
    {{"count", length}},
    {{"d", otherwise, "default_value? boolean?"}},
    {{"default", otherwise, "default_value? boolean?"}},
    {{"dictsort", dictsort, "case_sensitive? by? reverse?"}},
    {{"first", first}},
    {{"groupby", groupby, "attribute default? case_sensitive?"}},
    {{"items", items}},
    {{"join", do_join, "d? attribute?"}},
    {{"last", last}},
    {{"length", length}},
    {{"list", to_list}},
    {{"map", map, "*"}},
    {{"max", maximum, "case_sensitive? attribute?"}},
    {{"min", minimum, "case_sensitive? attribute?"}},
    {{"reject", reject, "*"}},
    {{"rejectattr", rejectattr, "*"}},
    {{"reverse", reverse}},
    {{"select", select, "*"}},
    {{"selectattr", selectattr, "*"}},
    {{"slice", slice, "slices fill_with?"}},
    {{"sort", sort, "reverse? case_sensitive? attribute?"}},
    {{"sum", sum, "attribute? start?"}},
    {{"unique", unique, "case_sensitive? attribute?"}},
};

}  // namespace

std::span<const FilterEntry> list_filters() { return kFilters; }

}  // namespace quipu::text::jinja

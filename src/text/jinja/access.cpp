// What is inside a value: elements, attributes, items, slices.
#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/context.hpp"
#include "text/jinja/nest.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

std::size_t Context::byte_offset(const Text& text, std::int64_t index) {
  if (text.ascii()) return static_cast<std::size_t>(index);
  step(static_cast<std::uint64_t>(index) / 16);
  std::size_t offset = 0;
  for (std::int64_t i = 0; i < index && offset < text.bytes.size(); ++i)
    offset += decode_utf8(text.bytes, offset).length;
  return offset;
}

std::vector<Value> Context::elements(const Value& value) {
  std::vector<Value> items;
  const auto reserve = [&](std::size_t count) {
    heap_.require(count * sizeof(Value));
    step(count / 2);
    items.reserve(count);
  };
  switch (value.kind()) {
    case Kind::undefined:
      if (value.forbidden()) fail_undefined(value);
      return items;
    case Kind::list:
      reserve(value.list().items.size());
      items = value.list().items;
      return items;
    case Kind::generator:
      items.swap(value.as<Generator>().items);
      return items;
    case Kind::string: {
      const Text& whole = value.text();
      heap_.require(static_cast<std::uint64_t>(whole.length) * 150);
      for (std::size_t i = 0; i < whole.bytes.size();) {
        step();
        const std::size_t length = decode_utf8(whole.bytes, i).length;
        items.push_back(slice(value, i, i + length));
        i += length;
      }
      return items;
    }
    case Kind::mapping:
      reserve(value.mapping().entries.size());
      for (const auto& entry : value.mapping().entries) items.push_back(entry.first);
      return items;
    case Kind::view: {
      const auto& view = value.as<View>();
      const Mapping& mapping = view.mapping.mapping();
      reserve(mapping.entries.size());
      for (const auto& [key, held] : mapping.entries)
        items.push_back(view.part == View::Part::keys     ? key
                        : view.part == View::Part::values ? held
                                                          : pair(key, held));
      return items;
    }
    case Kind::range: {
      const auto& range = value.as<Range>();
      reserve(static_cast<std::size_t>(range.size));
      for (std::int64_t i = 0; i < range.size; ++i) items.emplace_back(range.at(i));
      return items;
    }
    default:
      fail_type("{} cannot be walked over", type_name(value));
  }
}

std::int64_t Context::length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return value.text().length;
    case Kind::list:
      return static_cast<std::int64_t>(value.list().items.size());
    case Kind::mapping:
      return static_cast<std::int64_t>(value.mapping().entries.size());
    case Kind::view:
      return length(value.as<View>().mapping);
    case Kind::range:
      return value.as<Range>().size;
    case Kind::loop:
      return static_cast<std::int64_t>(value.as<Loop>().items.size());
    default:
      fail_type("{} has no length", type_name(value));
  }
}

namespace {

Value loop_attribute(Loop& loop, std::string_view name, bool& found) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto size = static_cast<std::int64_t>(loop.items.size());
  found = true;
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(loop.level + 1);
  if (name == "depth0") return Value(loop.level);
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : Value();
  if (name == "nextitem") return index + 1 < size ? loop.items[loop.index + 1] : Value();
  found = false;
  return Value();
}

}  // namespace

Value Context::attribute(const Value& object, std::string_view name) {
  const std::int32_t id = program_.find_name(name);
  if (object.is(Kind::undefined)) fail_undefined(object);
  if (object.is(Kind::name_space)) {
    for (const auto& entry : object.as<NameSpace>().attributes)
      if (entry.first.text().bytes == name) return entry.second;
    return Value::undefined(id);
  }
  if (const Native* method = find_method(object.kind(), name)) return native(method, object);
  const bool dunder = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (is_forbidden_method(object.kind(), name) || (dunder && !object.is(Kind::mapping)))
    return Value::undefined(id, true);
  if (object.is(Kind::mapping)) {
    step(object.mapping().entries.size() / 8);
    if (const Value* value = find(object.mapping(), name)) return *value;
  }
  if (object.is(Kind::loop)) {
    bool found = false;
    Value value = loop_attribute(object.as<Loop>(), name, found);
    if (found) return value;
  }
  if (object.is(Kind::callable)) {
    if (const auto* macro = dynamic_cast<const Macro*>(object.object()); macro != nullptr && name == "name")
      return macro->body->name < 0 ? Value::none() : text(program_.names[macro->body->name]);
    if (const auto* cycler = dynamic_cast<const Cycler*>(object.object()); cycler != nullptr) {
      if (name == "next") return object;
      if (name == "current") return cycler->items[cycler->position % cycler->items.size()];
    }
  }
  return Value::undefined(id);
}

Value Context::item(const Value& object, const Value& key) {
  if (object.is(Kind::undefined)) fail_undefined(object);
  if (object.is(Kind::mapping)) {
    if (!key.is(Kind::mapping) && !(key.is(Kind::list) && !key.list().tuple)) {
      step(object.mapping().entries.size() / 8);
      if (const Value* value = find(object.mapping(), key)) return *value;
    }
  } else if (key.is_integral() &&
             (object.is(Kind::list) || object.is(Kind::string) || object.is(Kind::range))) {
    const std::int64_t size = length(object);
    const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index < 0 || index >= size) return Value();
    if (object.is(Kind::list)) return object.list().items[static_cast<std::size_t>(index)];
    if (object.is(Kind::range)) return Value(object.as<Range>().at(index));
    const std::size_t begin = byte_offset(object.text(), index);
    return slice(object, begin, begin + decode_utf8(object.text().bytes, begin).length);
  }
  if (!key.is(Kind::string)) return Value();
  if (object.is(Kind::mapping)) {
    // A missing key: what is left are the methods.
    const std::string& name = key.text().bytes;
    if (const Native* method = find_method(object.kind(), name)) return native(method, object);
    return Value::undefined(program_.find_name(name), is_forbidden_method(object.kind(), name));
  }
  return attribute(object, key.text().bytes);
}

Value Context::slice_of(const Value& object, const Value& start, const Value& stop, const Value& stride) {
  if (object.is(Kind::undefined)) fail_undefined(object);
  if (!object.is(Kind::list) && !object.is(Kind::string) && !object.is(Kind::range))
    fail_type("{} cannot be sliced", type_name(object));
  for (const Value* part : {&start, &stop, &stride})
    if (!part->is(Kind::none) && !part->is_integral()) fail_type("slice bounds must be integers or none");
  const std::int64_t size = length(object);
  const std::int64_t step_size = stride.is(Kind::none) ? 1 : stride.integer();
  if (step_size == 0) fail_type("the step of a slice is zero");
  const bool back = step_size < 0;
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    std::int64_t index = value.integer();
    if (index < 0)
      index = index < -size ? -1 : index + size;
    else if (index > size)
      index = size;
    if (index < 0) return back ? std::int64_t{-1} : std::int64_t{0};
    return back ? std::min(index, size - 1) : index;
  };
  const std::int64_t from = bound(start, back ? size - 1 : 0);
  const std::int64_t to = bound(stop, back ? -1 : size);
  if (object.is(Kind::string) && step_size == 1) {
    const std::size_t begin = byte_offset(object.text(), from);
    if (to <= from) return slice(object, begin, begin);
    return slice(object, begin, byte_offset(object.text(), to));
  }
  if (object.is(Kind::range)) {
    const auto& range = object.as<Range>();
    const std::uint64_t span = back ? (from > to ? static_cast<std::uint64_t>(from - to) : 0)
                                    : (to > from ? static_cast<std::uint64_t>(to - from) : 0);
    const std::uint64_t stride =
        back ? ~static_cast<std::uint64_t>(step_size) + 1 : static_cast<std::uint64_t>(step_size);
    auto* made = make<Range>();
    const Value value(Kind::range, made);
    // Bounds are within 100000 elements, the step of a slice that takes more than one is too.
    made->size = static_cast<std::int64_t>(span == 0 ? 0 : (span - 1) / stride + 1);
    made->start = range.at(from);
    made->stop = range.at(to);
    made->step = made->size > 1 ? range.step * step_size : range.step;
    return value;
  }
  const std::vector<Value> all = elements(object);
  std::vector<Value> chosen;
  for (std::int64_t i = from; back ? i > to : i < to;) {
    step();
    chosen.push_back(all[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, step_size, &i)) break;
  }
  if (!object.is(Kind::string)) return list(std::move(chosen), object.is(Kind::list) && object.list().tuple);
  TextBuilder builder;
  for (const Value& part : chosen) builder.append(part.text());
  return text(std::move(builder), object.text().markup);
}

}  // namespace quipu::text::jinja

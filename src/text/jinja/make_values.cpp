// Making texts, lists and mappings, with their budget.
#include <algorithm>

#include "text/jinja/context.hpp"
#include "text/jinja/nest.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

namespace {

std::int64_t count_characters(std::string_view bytes) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < bytes.size(); ++count)
    i += static_cast<unsigned char>(bytes[i]) < 0x80 ? 1 : decode_utf8(bytes, i).length;
  return count;
}

int depth_within(const Value& value) { return value.is_object() ? value.object()->depth + 1 : 0; }

}  // namespace

void Heap::refuse() {
  throw TemplateError(TemplateError::Kind::limit, "rendering needs more memory than is allowed", 0);
}

void TextBuilder::append(std::string_view text, bool is_trusted) {
  if (text.empty()) return;
  const std::size_t begin = bytes.size();
  bytes.append(text);
  if (!is_trusted) return;
  if (!trusted.empty() && trusted.back().end == begin)
    trusted.back().end = bytes.size();
  else
    trusted.push_back({begin, bytes.size()});
}

void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  const std::size_t base = bytes.size();
  bytes.append(text.bytes, begin, end - begin);
  auto range = std::lower_bound(text.trusted.begin(), text.trusted.end(), begin,
                                [](const TextRange& r, std::size_t position) { return r.end <= position; });
  for (; range != text.trusted.end() && range->begin < end; ++range) {
    const std::size_t from = base + std::max(range->begin, begin) - begin;
    const std::size_t to = base + std::min(range->end, end) - begin;
    if (!trusted.empty() && trusted.back().end == from)
      trusted.back().end = to;
    else
      trusted.push_back({from, to});
  }
}

Value Context::text(TextBuilder&& builder, bool markup) {
  step(builder.bytes.size() / 32);
  auto* made = make<Text>(builder.bytes.size() + builder.trusted.size() * sizeof(TextRange));
  const Value value(Kind::string, made);
  made->length = count_characters(builder.bytes);
  made->bytes = std::move(builder.bytes);
  made->trusted = std::move(builder.trusted);
  made->markup = markup;
  return value;
}

Value Context::text(std::string bytes, bool trusted) {
  TextBuilder builder;
  if (trusted && !bytes.empty()) builder.trusted.push_back({0, bytes.size()});
  builder.bytes = std::move(bytes);
  return text(std::move(builder));
}

Value Context::slice(const Value& value, std::size_t begin, std::size_t end) {
  const Text& whole = value.text();
  if (begin == 0 && end == whole.bytes.size()) return value;
  TextBuilder builder;
  builder.append(whole, begin, end);
  return text(std::move(builder), whole.markup);
}

Value Context::list(std::vector<Value> items, bool tuple) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_within(item));
  step(items.size() / 4);
  auto* made = make<List>(items.size() * sizeof(Value), depth);
  const Value value(Kind::list, made);
  made->items = std::move(items);
  made->tuple = tuple;
  return value;
}

Value Context::pair(Value first, Value second) {
  std::vector<Value> items;
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return list(std::move(items), true);
}

Value Context::generator(std::vector<Value> items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_within(item));
  auto* made = make<Generator>(items.size() * sizeof(Value), depth);
  const Value value(Kind::generator, made);
  made->items = std::move(items);
  return value;
}

Value Context::mapping(std::vector<std::pair<Value, Value>> entries) {
  int depth = 0;
  for (const auto& [key, value] : entries) depth = std::max({depth, depth_within(key), depth_within(value)});
  step(entries.size());
  auto* made = make<Mapping>(entries.size() * (2 * sizeof(Value) + 64), depth);
  const Value result(Kind::mapping, made);
  const bool indexed = entries.size() > 16;
  for (auto& [key, value] : entries) {
    const std::uint64_t code = hash(key);  // also refuses keys that cannot be hashed
    if (const Value* old = find(*made, key)) {
      *const_cast<Value*>(old) = std::move(value);
      continue;
    }
    if (indexed) made->index.emplace(code, static_cast<std::uint32_t>(made->entries.size()));
    made->entries.emplace_back(std::move(key), std::move(value));
  }
  return result;
}

Value Context::native(const Native* function, const Value& self) {
  auto* made = make<NativeCallable>(0, depth_within(self));
  const Value value(Kind::callable, made);
  made->native = function;
  made->self = self;
  return value;
}

Ref<NameSpace> Context::name_space() {
  Ref<NameSpace> space(make<NameSpace>(64));
  namespaces_.push_back(space);
  return space;
}

Value Context::from_data(const Data& data) {
  const Nest nest(*this);
  if (const auto* flag = std::get_if<bool>(&data.value)) return Value(*flag);
  if (const auto* integer = std::get_if<std::int64_t>(&data.value)) return Value(*integer);
  if (const auto* real = std::get_if<double>(&data.value)) return Value(*real);
  if (const auto* string = std::get_if<Data::Text>(&data.value)) {
    if (string->trusted || string->trusted_parts.empty()) return text(string->bytes, string->trusted);
    TextBuilder builder;
    builder.bytes = string->bytes;
    builder.trusted = string->trusted_parts;
    return text(std::move(builder));
  }
  if (const auto* items = std::get_if<Data::List>(&data.value)) {
    std::vector<Value> values;
    values.reserve(items->size());
    for (const Data& item : *items) values.push_back(from_data(item));
    return list(std::move(values));
  }
  if (const auto* pairs = std::get_if<Data::Mapping>(&data.value)) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key, value] : *pairs) entries.emplace_back(text(key), from_data(value));
    return mapping(std::move(entries));
  }
  return Value::none();
}

}  // namespace quipu::text::jinja

#include "text/conversation/conversation.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/error.hpp"
#include "text/unicode.hpp"

namespace quipu::text {

using jinja::Data;

namespace {

constexpr std::string_view name_of(ContentPart::Kind kind) {
  switch (kind) {
    case ContentPart::Kind::text:
      return "text";
    case ContentPart::Kind::image:
      return "image";
    case ContentPart::Kind::audio:
      return "audio";
    case ContentPart::Kind::file:
      return "file";
  }
  return "";
}

Data arguments_data(const std::string& arguments) {
  try {
    return jinja::parse_json(arguments, "arguments");
  } catch (const Error&) {
    return Data(arguments);  // what the model wrote instead of an object
  }
}

void append_string(std::string& out, std::string_view bytes) {
  out += '"';
  for (std::size_t i = 0; i < bytes.size();) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte >= 0x80) {
      const DecodedChar next = decode_utf8(bytes, i);
      if (next.valid)
        out.append(bytes, i, next.length);
      else
        out += kReplacement;
      i += next.length;
      continue;
    }
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetter = "\"\\bfnrt";
    const std::size_t known = kShort.find(bytes[i]);
    if (known != std::string_view::npos) {
      out += '\\';
      out += kLetter[known];
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += bytes[i];
    }
    ++i;
  }
  out += '"';
}

void append_json(std::string& out, const Data& value);

struct JsonWriter {
  std::string& out;
  void operator()(std::nullptr_t) const { out += "null"; }
  void operator()(bool flag) const { out += flag ? "true" : "false"; }
  void operator()(std::int64_t number) const { out += fmt::format("{}", number); }
  void operator()(double number) const {
    if (!std::isfinite(number)) {
      out += "null";
      return;
    }
    std::string text = fmt::format("{}", number);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    out += text;
  }
  void operator()(const Data::Text& text) const { append_string(out, text.bytes); }
  void operator()(const Data::List& list) const {
    out += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out += ',';
      append_json(out, list[i]);
    }
    out += ']';
  }
  void operator()(const Data::Mapping& mapping) const {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : mapping) {
      if (!first) out += ',';
      first = false;
      append_string(out, key);
      out += ':';
      append_json(out, value);
    }
    out += '}';
  }
};

void append_json(std::string& out, const Data& value) { std::visit(JsonWriter{out}, value.value); }

}  // namespace

bool Content::empty() const {
  for (const ContentPart& part : parts)
    if (part.kind != ContentPart::Kind::text || !part.text.empty()) return false;
  return true;
}

std::string Content::text() const {
  std::string out;
  bool first = true;
  for (const ContentPart& part : parts) {
    if (part.kind != ContentPart::Kind::text)
      fail(ErrorCode::unsupported,
           "a message holds a part of type {}, expected text: models are read without their"
           " parts for pictures and sound",
           name_of(part.kind));
    if (!first) out += '\n';
    first = false;
    out += part.text;
  }
  return out;
}

const Data* find_member(const Data& value, std::string_view key) {
  const auto* mapping = std::get_if<Data::Mapping>(&value.value);
  if (mapping == nullptr) return nullptr;
  for (const auto& [name, member] : *mapping)
    if (name == key) return &member;
  return nullptr;
}

const std::string* text_of(const Data& value) {
  const auto* text = std::get_if<Data::Text>(&value.value);
  return text == nullptr ? nullptr : &text->bytes;
}

std::string to_json(const Data& value) {
  std::string out;
  append_json(out, value);
  return out;
}

Data to_data(const Message& message) {
  Data::Mapping out{{"role", message.role}};
  if (message.content.parts.size() > 1) {
    Data::List parts;
    for (const ContentPart& part : message.content.parts)
      parts.push_back(Data::Mapping{{"type", std::string(name_of(part.kind))},
                                    {std::string(name_of(part.kind)), part.text}});
    out.emplace_back("content", std::move(parts));
  } else {
    out.emplace_back("content", message.content.text());
  }
  if (!message.reasoning.empty()) out.emplace_back("reasoning_content", message.reasoning);
  if (!message.tool_calls.empty()) {
    Data::List calls;
    for (const ToolCall& call : message.tool_calls) {
      Data::Mapping function{{"name", call.name}, {"arguments", arguments_data(call.arguments)}};
      calls.push_back(
          Data::Mapping{{"id", call.id}, {"type", "function"}, {"function", std::move(function)}});
    }
    out.emplace_back("tool_calls", std::move(calls));
  }
  if (!message.tool_call_id.empty()) out.emplace_back("tool_call_id", message.tool_call_id);
  if (!message.name.empty()) out.emplace_back("name", message.name);
  return out;
}

Data to_data(const Tool& tool) {
  if (!std::holds_alternative<std::nullptr_t>(tool.definition.value)) return tool.definition;
  Data::Mapping function{{"name", tool.name}};
  if (!tool.description.empty()) function.emplace_back("description", tool.description);
  if (std::holds_alternative<std::nullptr_t>(tool.parameters.value))
    function.emplace_back("parameters", Data::Mapping{{"type", "object"}, {"properties", Data::Mapping{}}});
  else
    function.emplace_back("parameters", tool.parameters);
  if (tool.strict) function.emplace_back("strict", true);
  return Data::Mapping{{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace quipu::text

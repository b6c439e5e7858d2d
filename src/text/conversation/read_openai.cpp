// Messages and tools in the form of OpenAI's API: https://platform.openai.com/docs/api-reference/chat
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "text/conversation/conversation.hpp"

namespace quipu::text {

using jinja::Data;

namespace {

std::string_view kind_of(const Data& value) {
  constexpr std::array<std::string_view, 7> kKinds = {"null",   "a boolean", "an integer", "a number",
                                                      "a text", "a list",    "an object"};
  return kKinds[value.value.index()];
}

[[noreturn]] void wrong(std::string_view where, const Data& found, std::string_view expected) {
  fail(ErrorCode::invalid_argument, "{} is {}, expected {}", where, kind_of(found), expected);
}

bool is_none(const Data& value) { return std::holds_alternative<std::nullptr_t>(value.value); }

const Data::List& list_of(const Data& value, std::string_view where) {
  const auto* list = std::get_if<Data::List>(&value.value);
  if (list == nullptr) wrong(where, value, "a list");
  return *list;
}

void need_object(const Data& value, std::string_view where) {
  if (!std::holds_alternative<Data::Mapping>(value.value)) wrong(where, value, "an object");
}

/// A text member; empty when absent or null.
std::string text_member(const Data& object, std::string_view key, std::string_view where) {
  const Data* value = find_member(object, key);
  if (value == nullptr || is_none(*value)) return {};
  const std::string* text = text_of(*value);
  if (text == nullptr) wrong(fmt::format("{}.{}", where, key), *value, "a text");
  return *text;
}

std::string needed_text(const Data& object, std::string_view key, std::string_view where) {
  std::string text = text_member(object, key, where);
  if (text.empty()) fail(ErrorCode::invalid_argument, "{} has no \"{}\"", where, key);
  return text;
}

ContentPart read_part(const Data& part, const std::string& where) {
  if (const std::string* text = text_of(part)) return {ContentPart::Kind::text, *text};
  need_object(part, where);
  const std::string type = text_member(part, "type", where);
  if (type == "text" || type == "input_text" || type == "output_text" || type == "refusal" ||
      (type.empty() && find_member(part, "text") != nullptr))
    return {ContentPart::Kind::text, text_member(part, type == "refusal" ? "refusal" : "text", where)};
  struct Media {
    std::string_view type;
    ContentPart::Kind kind;
  };
  constexpr std::array<Media, 7> kMedia = {{{"image_url", ContentPart::Kind::image},
                                            {"input_image", ContentPart::Kind::image},
                                            {"image", ContentPart::Kind::image},
                                            {"input_audio", ContentPart::Kind::audio},
                                            {"audio", ContentPart::Kind::audio},
                                            {"file", ContentPart::Kind::file},
                                            {"input_file", ContentPart::Kind::file}}};
  for (const Media& media : kMedia) {
    if (media.type != type) continue;
    const Data* source = find_member(part, type);
    const Data* url = source == nullptr ? nullptr : find_member(*source, "url");
    if (url != nullptr) source = url;
    const std::string* text = source == nullptr ? nullptr : text_of(*source);
    return {media.kind, text == nullptr ? std::string() : *text};
  }
  fail(ErrorCode::invalid_argument, "{}.type is \"{}\", expected text, image_url, input_audio or file", where,
       printable(type));
}

Content read_content(const Data& value, const std::string& where) {
  if (is_none(value)) return {};
  if (const std::string* text = text_of(value)) return Content(*text);
  const auto* list = std::get_if<Data::List>(&value.value);
  if (list == nullptr) wrong(where, value, "a text, null or a list of parts");
  Content content;
  for (std::size_t i = 0; i < list->size(); ++i)
    content.parts.push_back(read_part((*list)[i], fmt::format("{}[{}]", where, i)));
  return content;
}

ToolCall read_call(const Data& value, const std::string& where) {
  need_object(value, where);
  const Data* function = find_member(value, "function");
  const Data& body = function == nullptr ? value : *function;
  const std::string at = function == nullptr ? where : where + ".function";
  need_object(body, at);
  ToolCall call;
  call.id = text_member(value, "id", where);
  call.name = needed_text(body, "name", at);
  const Data* arguments = find_member(body, "arguments");
  if (arguments == nullptr || is_none(*arguments)) return call;
  if (const std::string* text = text_of(*arguments))
    call.arguments = text->empty() ? "{}" : *text;
  else
    call.arguments = to_json(*arguments);
  return call;
}

bool is_role(std::string_view role) {
  constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                      "assistant", "tool",      "function"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

void check_tool_name(const std::string& name, const std::string& where) {
  if (name.size() > 128 || name.find_first_of(" \t\r\n\"'`()[]{}<>\\,=") != std::string::npos ||
      std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
    fail(ErrorCode::invalid_argument,
         "{} is \"{}\", expected at most 128 bytes without white space, quotes and brackets", where,
         printable(name));
}

}  // namespace

std::vector<Message> read_messages(const Data& list, std::string_view what) {
  std::vector<Message> messages;
  const Data::List& items = list_of(list, what);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", what, i);
    const Data& item = items[i];
    need_object(item, where);
    Message message;
    message.role = needed_text(item, "role", where);
    if (!is_role(message.role))
      fail(ErrorCode::invalid_argument,
           "{}.role is \"{}\", expected system, developer, user, assistant or tool", where,
           printable(message.role));
    if (message.role == "function") message.role = "tool";
    if (const Data* content = find_member(item, "content"))
      message.content = read_content(*content, where + ".content");
    for (const char* key : {"reasoning_content", "reasoning", "thinking"})
      if (message.reasoning.empty()) message.reasoning = text_member(item, key, where);
    if (const Data* calls = find_member(item, "tool_calls"); calls != nullptr && !is_none(*calls)) {
      const Data::List& entries = list_of(*calls, where + ".tool_calls");
      for (std::size_t k = 0; k < entries.size(); ++k)
        message.tool_calls.push_back(read_call(entries[k], fmt::format("{}.tool_calls[{}]", where, k)));
    }
    if (!message.tool_calls.empty() && message.role != "assistant")
      fail(ErrorCode::invalid_argument, "{} has role {} and tool_calls, expected role assistant", where,
           message.role);
    message.tool_call_id = text_member(item, "tool_call_id", where);
    message.name = text_member(item, "name", where);
    messages.push_back(std::move(message));
  }
  return messages;
}

std::vector<Tool> read_tools(const Data& list, std::string_view what) {
  std::vector<Tool> tools;
  if (is_none(list)) return tools;
  const Data::List& items = list_of(list, what);
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::string where = fmt::format("{}[{}]", what, i);
    need_object(items[i], where);
    const std::string type = text_member(items[i], "type", where);
    if (!type.empty() && type != "function")
      fail(ErrorCode::unsupported, "{}.type is \"{}\", expected function", where, printable(type));
    const Data* function = find_member(items[i], "function");
    const bool nested = function != nullptr;
    if (nested) where += ".function";
    const Data& body = nested ? *function : items[i];
    need_object(body, where);
    Tool tool;
    tool.name = needed_text(body, "name", where);
    check_tool_name(tool.name, where + ".name");
    tool.description = text_member(body, "description", where);
    if (const Data* parameters = find_member(body, "parameters");
        parameters != nullptr && !is_none(*parameters)) {
      need_object(*parameters, where + ".parameters");
      tool.parameters = *parameters;
    }
    if (const Data* strict = find_member(body, "strict")) {
      const bool* flag = std::get_if<bool>(&strict->value);
      if (flag == nullptr && !is_none(*strict)) wrong(where + ".strict", *strict, "a boolean");
      tool.strict = flag != nullptr && *flag;
    }
    if (nested) tool.definition = items[i];
    for (const Tool& other : tools)
      if (other.name == tool.name)
        fail(ErrorCode::invalid_argument, "{}.name is \"{}\", a name that an earlier tool has", where,
             printable(tool.name));
    tools.push_back(std::move(tool));
  }
  return tools;
}

jinja::Template::Variables read_template_arguments(const Data& mapping, std::string_view what) {
  if (is_none(mapping)) return {};
  need_object(mapping, what);
  const auto& entries = std::get<Data::Mapping>(mapping.value);
  for (const auto& [name, value] : entries)
    for (const std::string_view own : {"messages", "tools", "documents", "add_generation_prompt"})
      if (name == own)
        fail(ErrorCode::invalid_argument, "{} sets {}, which the request itself gives", what, own);
  return entries;
}

}  // namespace quipu::text

#include "server/chat_prompt.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "core/error.hpp"
#include "text/conversation/conversation.hpp"

namespace quipu::server {

namespace json = boost::json;
using text::jinja::Data;

Data to_template_data(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return Data(nullptr);
    case json::kind::bool_:
      return Data(value.get_bool());
    case json::kind::int64:
      return Data(value.get_int64());
    case json::kind::uint64:
      return Data(static_cast<double>(value.get_uint64()));
    case json::kind::double_:
      return Data(value.get_double());
    case json::kind::string:
      return Data(std::string(as_text(value)));
    case json::kind::array: {
      Data::List list;
      for (const json::value& item : value.get_array()) list.push_back(to_template_data(item));
      return list;
    }
    case json::kind::object: {
      Data::Mapping mapping;
      for (const auto& item : value.get_object())
        mapping.emplace_back(std::string(item.key()), to_template_data(item.value()));
      return mapping;
    }
  }
  return {};
}

text::Conversation read_conversation(const Fields& fields) {
  const json::array* list = fields.array("messages");
  if (list == nullptr) bad_field("messages", "\"messages\" is missing, expected a list of messages");
  if (list->empty()) bad_field("messages", "\"messages\" is empty, expected at least one message");
  text::Conversation conversation;
  conversation.messages = text::read_messages(to_template_data(*fields.find("messages")));
  if (const json::value* tools = fields.find("tools")) {
    conversation.tools = text::read_tools(to_template_data(*tools));
    const json::value* choice = fields.find("tool_choice");
    if (choice != nullptr && choice->is_string() && as_text(*choice) == "none") conversation.tools.clear();
  }
  if (const json::value* documents = fields.find("documents"))
    conversation.documents = to_template_data(*documents);
  conversation.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (const auto effort = fields.text("reasoning_effort")) {
    if (*effort == "none") conversation.enable_thinking = false;
    conversation.template_arguments.emplace_back("reasoning_effort", Data(*effort));
  }
  if (const json::value* variables = fields.find("chat_template_kwargs")) {
    for (auto& [name, value] : text::read_template_arguments(to_template_data(*variables)))
      conversation.template_arguments.emplace_back(name, std::move(value));
  }
  return conversation;
}

text::Prompt make_prompt(const Served& served, const text::Conversation& conversation) {
  if (served.chat_format == nullptr)
    throw RequestError(ErrorKind::invalid_request,
                       "the model has no chat template: use /v1/completions with plain text");
  try {
    return served.chat_format->prompt(conversation);
  } catch (const text::jinja::TemplateError& error) {
    // What a template raises is meant for whoever wrote the messages.
    const bool raised = error.kind() == text::jinja::TemplateError::Kind::raised;
    throw RequestError(ErrorKind::invalid_request, raised ? error.detail() : error.message(), "messages");
  }
}

}  // namespace quipu::server

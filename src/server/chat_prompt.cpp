#include "server/chat_prompt.hpp"

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

namespace {

Data read_messages(const Fields& fields) {
  const json::array* list = fields.array("messages");
  if (list == nullptr) bad_field("messages", "\"messages\" is missing, expected a list of messages");
  if (list->empty()) bad_field("messages", "\"messages\" is empty, expected at least one message");
  Data::List messages;
  for (text::Message& message : text::read_messages(to_template_data(*fields.find("messages")))) {
    // Models here read text only; what else a message holds is refused by name.
    message.content = text::Content(message.content.text());
    messages.push_back(text::to_data(message));
  }
  return messages;
}

Data read_tools(const Fields& fields) {
  const json::array* list = fields.array("tools");
  if (list == nullptr || list->empty()) return {};
  Data::List tools;
  for (const text::Tool& tool : text::read_tools(to_template_data(*fields.find("tools"))))
    tools.push_back(text::to_data(tool));
  const json::value* choice = fields.find("tool_choice");
  if (choice != nullptr && choice->is_string() && as_text(*choice) == "none") return {};
  return tools;
}

}  // namespace

text::ChatRequest read_chat_request(const Fields& fields) {
  text::ChatRequest request;
  request.messages = read_messages(fields);
  request.tools = read_tools(fields);
  if (const auto generate = fields.boolean("add_generation_prompt"))
    request.add_generation_prompt = *generate;
  if (const auto effort = fields.text("reasoning_effort"))
    request.variables.emplace_back("reasoning_effort", Data(*effort));
  if (const json::value* variables = fields.find("chat_template_kwargs")) {
    for (auto& [name, value] : text::read_template_arguments(to_template_data(*variables)))
      request.variables.emplace_back(name, std::move(value));
  }
  return request;
}

text::Rendered render_chat(const models::Model& model, const text::ChatRequest& request) {
  const text::ChatTemplate* chat = model.chat_template();
  if (chat == nullptr)
    throw RequestError(ErrorKind::invalid_request,
                       "the model has no chat template: use /v1/completions with plain text");
  try {
    return chat->render(request);
  } catch (const text::jinja::TemplateError& error) {
    // What a template raises is meant for whoever wrote the messages.
    const bool raised = error.kind() == text::jinja::TemplateError::Kind::raised;
    throw RequestError(ErrorKind::invalid_request, raised ? error.detail() : error.message(), "messages");
  }
}

}  // namespace quipu::server

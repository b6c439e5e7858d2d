#include "server/chat_prompt.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "core/error.hpp"
#include "core/log.hpp"
#include "text/conversation/conversation.hpp"
#include "text/grammar/tool_grammar.hpp"

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

namespace {

using text::grammar::Grammar;

/// The schema of {"type": "json_schema", "json_schema": {"name", "schema", "strict"}}; llama.cpp also takes
/// {"type": "json_object", "schema"}.
std::string schema_of(const Fields& format) {
  if (const json::object* outer = format.object("json_schema")) {
    const Fields inner(*outer, format.path("json_schema"));
    if (const json::value* schema = inner.find("schema")) return json::serialize(*schema);
    bad_field(inner.path("schema"), "\"{}\" is missing", inner.path("schema"));
  }
  if (const json::value* schema = format.find("schema")) return json::serialize(*schema);
  return {};
}

}  // namespace

std::shared_ptr<text::grammar::Constraint> read_constraint(const Fields& fields, const Served& served) {
  std::string schema, gbnf = fields.text("grammar").value_or("");
  bool any_object = false;
  if (const json::object* format = fields.object("response_format")) {
    const Fields inner(*format, "response_format");
    const std::string type = inner.text("type").value_or("");
    if (type == "json_schema" || type == "json_object") {
      schema = schema_of(inner);
      any_object = schema.empty() && type == "json_object";
      if (schema.empty() && !any_object)
        bad_field("response_format.json_schema", "\"response_format.json_schema\" is missing");
    } else if (type != "text") {
      bad_field("response_format.type",
                "\"response_format.type\" is \"{}\", expected text, json_object or json_schema",
                printable(type, 40));
    }
  }
  if (const json::value* own = fields.find("json_schema")) {
    if (!schema.empty())
      bad_field("json_schema", "\"json_schema\" and \"response_format\" both give a schema");
    schema = json::serialize(*own);
  }
  if (!gbnf.empty() && (any_object || !schema.empty()))
    bad_field("grammar", "\"grammar\" and a JSON schema cannot both be obeyed: give one of them");
  if (!gbnf.empty()) return served.constraint("gbnf:" + gbnf, [&] { return Grammar::from_gbnf(gbnf); });
  if (any_object) return served.constraint("object", [] { return Grammar::any_json_object(); });
  if (!schema.empty())
    return served.constraint("schema:" + schema, [&] { return Grammar::from_json_schema(schema); });
  return nullptr;
}

std::shared_ptr<text::grammar::Constraint> call_constraint(const Served& served,
                                                           const text::Conversation& conversation,
                                                           const text::Prompt& prompt,
                                                           const std::string& name, bool parallel) {
  if (conversation.tools.empty())
    bad_field("tool_choice", "\"tool_choice\" asks for a call, but there are no tools");
  text::grammar::ToolGrammarOptions options;
  options.choice = name.empty() ? text::grammar::ToolChoice::required : text::grammar::ToolChoice::named;
  options.name = name;
  options.parallel = parallel;
  if (prompt.start == text::OutputStart::reasoning) options.thinking = text::grammar::Thinking::opened;
  options.controls = text::grammar::control_names(*prompt.output, served.model().tokenizer());
  std::string key = fmt::format("calls:{}:{}:{}", name, parallel, static_cast<int>(options.thinking));
  for (const text::Tool& tool : conversation.tools) key += "\n" + tool.name + text::to_json(tool.parameters);
  return served.constraint(key, [&] {
    text::grammar::ToolGrammar calls =
        text::grammar::tool_grammar(conversation.tools, *prompt.output, options);
    for (const text::grammar::ToolProblem& problem : calls.problems)
      log::warning("tool {} cannot be called: {}", printable(problem.tool, 80), problem.message);
    return *calls.grammar;
  });
}

}  // namespace quipu::server

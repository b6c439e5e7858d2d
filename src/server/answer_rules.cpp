// What an answer must obey: from the fields of a request to one grammar.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "core/log.hpp"
#include "server/chat_prompt.hpp"
#include "text/conversation/conversation.hpp"
#include "text/grammar/lazy.hpp"

namespace quipu::server {

namespace json = boost::json;
using text::grammar::Grammar;
using text::grammar::Thinking;
using text::grammar::ToolChoice;

namespace {

/// The grammar that a request's fields ask for.
struct AskedFor {
  std::string key;  ///< the same for the same grammar; empty: none
  std::function<Grammar()> make;
  bool raw = false;   ///< GBNF: holds from the first token, thoughts are not let in before it
  bool lazy = false;  ///< GBNF that holds from a trigger on
};

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

/// llama.cpp's `grammar_triggers`: {"type": 0, "token", "value"} is a token, {"type": 1, "value"} a word. A
/// word that is a control token is that token.
std::vector<text::grammar::Trigger> read_triggers(const Fields& fields, const text::Tokenizer& tokenizer) {
  std::vector<text::grammar::Trigger> triggers;
  const json::array* list = fields.array("grammar_triggers");
  if (list == nullptr) return triggers;
  const auto is_control = [&](text::Token token) {
    return tokenizer.type(token) == text::TokenType::control;
  };
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = fmt::format("grammar_triggers[{}]", i);
    if (!(*list)[i].is_object()) bad_field(place, "\"{}\" is no object", place);
    const Fields trigger((*list)[i].get_object(), place);
    const auto type = trigger.integer("type", 0, 3);
    if (!type || *type > 1)
      bad_field(trigger.path("type"),
                "\"{}\" is expected as 0 (a token) or 1 (a word); patterns are not supported",
                trigger.path("type"));
    std::string word = trigger.text("value").value_or("");
    std::optional<text::Token> token = tokenizer.find(word);
    if (*type == 0) {
      const auto id = trigger.integer("token", 0, static_cast<std::int64_t>(tokenizer.size()) - 1);
      if (!id) bad_field(trigger.path("token"), "\"{}\" is missing", trigger.path("token"));
      token = static_cast<text::Token>(*id);
      word = tokenizer.piece(*token, true);
    }
    triggers.push_back({std::move(word), token && is_control(*token) ? *token : -1});
  }
  return triggers;
}

AskedFor asked_for(const Fields& fields, const Served& served) {
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
  if (!gbnf.empty() && fields.boolean("grammar_lazy").value_or(false)) {
    const auto triggers = read_triggers(fields, served.model().tokenizer());
    if (triggers.empty()) bad_field("grammar_triggers", "\"grammar_lazy\" needs \"grammar_triggers\"");
    std::string key = "lazy:";
    for (const text::grammar::Trigger& trigger : triggers)
      key += fmt::format("{}:{}:{}", trigger.token, trigger.text.size(), trigger.text);
    return {key + gbnf, [gbnf, triggers] { return text::grammar::lazy(Grammar::from_gbnf(gbnf), triggers); },
            true, true};
  }
  if (!gbnf.empty()) return {"gbnf:" + gbnf, [gbnf] { return Grammar::from_gbnf(gbnf); }, true};
  if (any_object) return {"object", [] { return Grammar::any_json_object(); }};
  if (schema.empty()) return {};
  return {"schema:" + schema, [schema] {
            text::grammar::SchemaOptions options;
            options.declared_order = true;
            return Grammar::from_json_schema(schema, options);
          }};
}

/// Most tokens of thoughts, where the request says so: quipu's and llama.cpp's field, and Anthropic's.
std::optional<std::uint32_t> thinking_budget(const Fields& fields) {
  constexpr std::int64_t kMost = 1 << 24;
  std::optional<std::int64_t> budget;
  for (const char* name : {"reasoning_budget", "thinking_budget_tokens"})
    if (!budget) budget = fields.integer(name, -1, kMost);
  if (const json::value* thinking = fields.find("thinking"); thinking != nullptr && thinking->is_object())
    budget = Fields(thinking->get_object(), "thinking").integer("budget_tokens", 1, kMost);
  if (!budget || *budget < 0) return std::nullopt;
  return static_cast<std::uint32_t>(*budget);
}

text::grammar::ToolGrammar make_calls(const text::Conversation& conversation, const text::Prompt& prompt,
                                      const text::grammar::ToolGrammarOptions& options) {
  text::grammar::ToolGrammar calls = text::grammar::tool_grammar(conversation.tools, *prompt.output, options);
  for (const text::grammar::ToolProblem& problem : calls.problems)
    log::warning("{} ({})", problem.message,
                 problem.loose ? "its arguments are held to be a JSON object only" : "it cannot be called");
  return calls;
}

}  // namespace

std::shared_ptr<text::grammar::Constraint> read_constraint(const Fields& fields, const Served& served) {
  const AskedFor asked = asked_for(fields, served);
  return asked.key.empty() ? nullptr : served.constraint(asked.key, asked.make);
}

void hold_answer(GenerationRequest& request, const Fields& fields, const Served& served,
                 const text::Conversation& conversation, const text::Prompt& prompt,
                 const CallChoice& calls) {
  request.output = prompt.output;
  request.output_start = prompt.start;
  request.options.shown = served.markers;
  request.tools = conversation.tools;
  const AskedFor asked = asked_for(fields, served);
  const bool must_call = calls.choice != ToolChoice::automatic;
  if (must_call && !asked.key.empty())
    bad_field("tool_choice", "a call and a schema or grammar cannot both be obeyed: give one of them");
  if (must_call && conversation.tools.empty())
    bad_field("tool_choice", "\"tool_choice\" asks for a call, but there are no tools");
  if (asked.raw) {
    request.options.constraint = served.constraint(asked.key, asked.make);
    if (!asked.lazy) request.output_start = text::OutputStart::content;
    return;
  }

  text::grammar::ToolGrammarOptions options;
  options.choice = calls.choice;
  options.name = calls.name;
  options.parallel = calls.parallel;
  if (served.chat_format != nullptr)
    options.thinking = text::grammar::thinking_before(served.chat_format->capabilities(),
                                                      conversation.enable_thinking, prompt.start);
  const auto budget = thinking_budget(fields);
  // A budget of none is one token: the model closes its thoughts, it does not go without the mark.
  options.thinking_budget = budget ? std::max<std::uint32_t>(*budget, 1) : 0;
  options.controls = text::grammar::control_names(*prompt.output, served.model().tokenizer());
  std::string key = fmt::format("{}:{}:", static_cast<int>(options.thinking), options.thinking_budget);
  const bool can_call = !conversation.tools.empty() && !prompt.output->calls.empty();
  if (must_call || can_call) {
    key += fmt::format("calls:{}:{}:{}:{}", static_cast<int>(calls.choice), calls.name, calls.parallel,
                       asked.key);
    for (const text::Tool& tool : conversation.tools)
      key += fmt::format("\n{}:{}:{}", tool.name, tool.strict, text::to_json(tool.parameters));
    const auto held = served.answer_rules(key, [&]() -> Served::AnswerRules {
      if (!asked.key.empty()) options.answer = asked.make();
      text::grammar::ToolGrammar made = make_calls(conversation, prompt, options);
      Served::AnswerRules rules{nullptr, {}};
      for (const auto& problem : made.problems) rules.warnings.push_back(problem.message);
      if (made.grammar) rules.constraint = served.service->constrain(*made.grammar);
      return rules;
    });
    request.warnings = held.warnings;
    request.options.constraint = held.constraint;
    request.stream_arguments = held.constraint != nullptr;
    if (held.constraint != nullptr) return;
  }
  if (!asked.key.empty()) {
    request.options.constraint = served.constraint(key + asked.key, [&] {
      return text::grammar::after_reasoning(asked.make(), *prompt.output, options.thinking,
                                            options.thinking_budget, options.controls);
    });
    // What must be JSON is all answer.
    if (options.thinking == Thinking::none && !prompt.output->channels)
      request.output_start = text::OutputStart::content;
  } else if (budget && options.thinking != Thinking::none) {
    request.options.constraint = served.constraint(key + "free", [&] {
      return text::grammar::bounded_reasoning(prompt.output->reasoning, options.thinking,
                                              options.thinking_budget, options.controls);
    });
  }
}

}  // namespace quipu::server

// Conversations in JSON to prompt tokens, through the model's chat template.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>

#include "server/models.hpp"
#include "server/request_fields.hpp"
#include "server/request_model.hpp"
#include "text/conversation/chat_format.hpp"
#include "text/grammar/tool_grammar.hpp"

namespace quipu::server {

/// A JSON value as templates take it.
text::jinja::Data to_template_data(const boost::json::value& value);

/// The conversation of an OpenAI request: messages, tools (none when `tool_choice` is "none"),
/// chat_template_kwargs, continue_final_message, reasoning_effort. Throws a 400 that names the place.
text::Conversation read_conversation(const Fields& fields);

/// Renders with the model's own template. Throws a 400: the template refuses the conversation (in its own
/// words), or the model has none.
text::Prompt make_prompt(const Served& served, const text::Conversation& conversation);

/// The grammar that `response_format`, `json_schema` or `grammar` asks for, over the model's vocabulary; null
/// when none does. Throws a 400 that names the schema's path or the grammar's line.
std::shared_ptr<text::grammar::Constraint> read_constraint(const Fields& fields, const Served& served);

/// Which calls an answer may or must have, as a dialect's `tool_choice` says.
struct CallChoice {
  text::grammar::ToolChoice choice = text::grammar::ToolChoice::automatic;
  std::string name = {};  ///< of the named tool
  bool parallel = true;
};

/// How the answer to a conversation is read, and one grammar of all that it must obey: thoughts first where
/// the model has them, of at most `thinking_budget` tokens, then the schema or grammar of the fields, or
/// calls. Sets `output`, `output_start`, `options.constraint`, `options.shown`, `tools`, `stream_arguments`
/// and `warnings`. Throws a 400: a bad schema, a call without tools, a named tool or all tools whose
/// parameters cannot be held (tool, path and keyword are named; one bad tool among others is a warning).
void hold_answer(GenerationRequest& request, const Fields& fields, const Served& served,
                 const text::Conversation& conversation, const text::Prompt& prompt, const CallChoice& calls);

}  // namespace quipu::server

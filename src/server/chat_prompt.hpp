// Conversations in JSON to prompt tokens, through the model's chat template.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>

#include "server/models.hpp"
#include "server/request_fields.hpp"
#include "text/conversation/chat_format.hpp"

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

/// The grammar that holds an answer to calls: of any tool (`name` empty) or of one. Throws a 400: there are
/// no tools, none of that name, or its parameters cannot be held (tool, path and keyword are named).
std::shared_ptr<text::grammar::Constraint> call_constraint(const Served& served,
                                                           const text::Conversation& conversation,
                                                           const text::Prompt& prompt,
                                                           const std::string& name, bool parallel);

}  // namespace quipu::server

// Conversations in JSON to prompt tokens, through the model's chat template.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "server/request_fields.hpp"
#include "text/chat_template.hpp"

namespace quipu::server {

/// A JSON value as templates take it.
text::jinja::Data to_template_data(const boost::json::value& value);

/// The conversation of an OpenAI request: messages, tools (none when `tool_choice` is "none"),
/// chat_template_kwargs, add_generation_prompt, reasoning_effort. Throws a 400 that names the place.
text::ChatRequest read_chat_request(const Fields& fields);

/// Renders with the model's own template. Throws a 400: the template refuses the conversation (in its own
/// words), or the model has none.
text::Rendered render_chat(const models::Model& model, const text::ChatRequest& request);

}  // namespace quipu::server

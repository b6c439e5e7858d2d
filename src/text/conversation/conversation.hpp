// Conversations, between the dialects of APIs and the templates of models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/jinja.hpp"

namespace quipu::text {

struct ContentPart {
  enum class Kind { text, image, audio, file };
  Kind kind = Kind::text;
  /// The text itself; of other kinds their URL, `data:` URI or encoded bytes.
  std::string text;
};

/// What a message says: one plain text, or parts of several kinds.
struct Content {
  std::vector<ContentPart> parts;

  Content() = default;
  Content(std::string text) {
    if (!text.empty()) parts.push_back({ContentPart::Kind::text, std::move(text)});
  }
  Content(std::string_view text) : Content(std::string(text)) {}
  Content(const char* text) : Content(std::string(text)) {}

  /// No part that says anything.
  bool empty() const;
  /// The texts of all parts, joined by line feeds. Throws `Error` (unsupported) at a part of another kind.
  std::string text() const;
};

/// A call of a tool by the model.
struct ToolCall {
  std::string id;  ///< may be empty
  std::string name;
  std::string arguments = "{}";  ///< JSON text, an object unless the model wrote otherwise
};

struct Message {
  std::string role;  ///< "system", "developer", "user", "assistant", "tool"
  Content content = {};
  std::string reasoning = {};             ///< of an assistant: what it thought before it spoke
  std::vector<ToolCall> tool_calls = {};  ///< of an assistant
  std::string tool_call_id = {};          ///< of a tool's result: which call it answers
  std::string name = {};                  ///< of a tool's result: the tool
};

/// A function that the model may ask for.
struct Tool {
  std::string name;
  std::string description = {};
  jinja::Data parameters = {};  ///< JSON Schema of the arguments; none: no parameters
  bool strict = false;          ///< arguments must obey the schema
  /// As templates get it: {"type":"function","function":{…}} in the order in which the caller gave its keys;
  /// none: made from the other members.
  jinja::Data definition = {};
};

/// Everything a prompt is made from.
struct Conversation {
  std::vector<Message> messages;
  std::vector<Tool> tools = {};
  jinja::Data documents = {};  ///< a list of mappings, or none
  /// The last message, an assistant's, is the beginning of the answer: the model goes on where it ends.
  bool continue_final_message = false;
  /// Asks the model to think first, or not to; none: as the template does by itself.
  std::optional<bool> enable_thinking = {};
  /// Further variables of the template (`chat_template_kwargs`); they win over `enable_thinking`.
  jinja::Template::Variables template_arguments = {};
};

/// Messages in the form of OpenAI's chat completions: a list of {"role", "content": text, null or list of
/// parts, "reasoning_content" (also "reasoning", "thinking"), "tool_calls", "tool_call_id", "name"}. `what`
/// names the list in messages. Throws `Error` (invalid_argument) with the place, what was found and expected.
std::vector<Message> read_messages(const jinja::Data& list, std::string_view what = "messages");
/// Tools in the form of OpenAI's chat completions, or flat as in its responses: {"type":"function","name",
/// "description","parameters","strict"}. Names are 1 to 128 bytes without white space, quotes and brackets,
/// each only once. Throws like `read_messages`.
std::vector<Tool> read_tools(const jinja::Data& list, std::string_view what = "tools");
/// `chat_template_kwargs`: a mapping of variable names to values. Refuses (invalid_argument) the names that
/// belong to the conversation itself: messages, tools, documents, add_generation_prompt.
jinja::Template::Variables read_template_arguments(const jinja::Data& mapping,
                                                   std::string_view what = "chat_template_kwargs");

/// Messages and tools as templates get them, in the form that `read_messages` and `read_tools` read.
jinja::Data to_data(const Message& message);
jinja::Data to_data(const Tool& tool);

/// The member `key` of a mapping; nullptr when there is none or `value` is no mapping.
const jinja::Data* find_member(const jinja::Data& value, std::string_view key);
/// The bytes of a text; nullptr when `value` is none.
const std::string* text_of(const jinja::Data& value);
/// JSON text of a value, compact, not escaped beyond need; invalid UTF-8 becomes U+FFFD.
std::string to_json(const jinja::Data& value);

}  // namespace quipu::text

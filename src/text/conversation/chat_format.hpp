// From conversations to prompts, by what a model's template can show.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.hpp"
#include "text/conversation/conversation.hpp"
#include "text/output/output_parser.hpp"

namespace quipu::text {

/// What a template does with each part of a conversation, found by rendering small ones.
struct Capabilities {
  bool renders = false;  ///< a user's plain message comes out
  bool system_role = false;
  bool developer_role = false;         ///< as a role of its own; else it is given as system
  bool tools = false;                  ///< the definitions come out
  bool functions_variable = false;     ///< they do as JSON text in the variable `functions`, not in `tools`
  bool tool_calls = false;             ///< earlier calls come out
  bool parallel_tool_calls = false;    ///< several calls of one message
  bool tool_role = false;              ///< results come out
  bool tool_call_ids = false;          ///< ids of earlier calls come out
  bool text_content = true;            ///< content may be a text
  bool list_content = false;           ///< content may be a list of parts
  bool arguments_as_text = false;      ///< earlier calls' arguments are given as JSON text; else as an object
  bool empty_content_is_none = false;  ///< content of a message that only calls is given as none
  bool empty_tools_list = false;       ///< without tools the list is given empty; else as none
  std::string reasoning_key;           ///< the member that shows earlier reasoning; empty: none does
  std::string thinking_switch;         ///< the variable that turns thinking on and off; empty: none does
  bool opens_reasoning = false;        ///< the prompt itself opens the reasoning, unless told otherwise
};

/// What a model is sent, and how its answer must be read.
struct Prompt {
  Rendered rendered;
  OutputStart start = OutputStart::answer;
  std::shared_ptr<const OutputFormat> output;
};

/// Makes prompts for one template. Where the template lacks something, the conversation is put otherwise
/// (docs/chat-templates.md lists how); what it refuses itself is its error. Immutable; may be used from
/// several threads.
class ChatFormat {
 public:
  /// Renders some twenty small conversations, within small limits. `chat` must outlive the object.
  explicit ChatFormat(const ChatTemplate& chat);

  const Capabilities& capabilities() const { return capabilities_; }
  const std::shared_ptr<const OutputFormat>& output() const { return output_; }

  /// Throws `Error`: `jinja::TemplateError` where the template refuses; (unsupported) parts that are no text;
  /// (invalid_argument) a final message to continue that is none of an assistant, or that the template does
  /// not show as it is. `clock` as in ChatRequest.
  Prompt prompt(const Conversation& conversation, const jinja::Template::Clock& clock = {}) const;

 private:
  const ChatTemplate* chat_;
  Capabilities capabilities_;
  std::shared_ptr<const OutputFormat> output_;
};

/// Found by rendering; never throws but std::bad_alloc.
Capabilities probe_capabilities(const ChatTemplate& chat);

/// Messages and tools put so that a template with these capabilities shows all of them.
struct TemplateInput {
  jinja::Data messages, tools;
};
TemplateInput adapt_conversation(const Conversation& conversation, const Capabilities& capabilities,
                                 const OutputFormat& output);

/// What templates of the Firefunction kind read: `functions`, the functions of the tools as JSON text (empty
/// without any), and `datetime`.
jinja::Template::Variables functions_variables(const jinja::Data& tools, const jinja::Template::Clock& clock);

/// Calls as text, in the way of a format's first JSON form; the form's own words are marked as trusted.
Rendered write_calls(const OutputFormat& output, const std::vector<ToolCall>& calls);

}  // namespace quipu::text

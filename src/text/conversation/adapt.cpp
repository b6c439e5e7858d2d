// Puts a conversation so that a template can show it: what the template lacks is said in words.
#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "text/conversation/chat_format.hpp"

namespace quipu::text {

using jinja::Data;

namespace {

/// The first form of a format that writes arguments as JSON; the general one's else.
const CallFormat& json_form(const OutputFormat& output) {
  for (const CallFormat& call : output.calls)
    if (call.arguments == ArgumentSyntax::json) return call;
  return general_output_format().calls.front();
}

void append(Rendered& out, std::string_view text, bool trusted) {
  if (trusted && !text.empty()) {
    if (!out.trusted.empty() && out.trusted.back().end == out.text.size())
      out.trusted.back().end += text.size();
    else
      out.trusted.push_back({out.text.size(), out.text.size() + text.size()});
  }
  out.text += text;
}

void append(Rendered& out, const Rendered& text) {
  for (const TextRange& range : text.trusted)
    out.trusted.push_back({out.text.size() + range.begin, out.text.size() + range.end});
  out.text += text.text;
}

/// The literals are the template's in all but place: they may become control tokens. Names and arguments
/// are a model's or a person's.
void write_call(Rendered& out, const CallFormat& format, const std::string& name, const std::string& id,
                const std::string& arguments) {
  for (const PatternPart& part : parse_pattern(format.call)) {
    switch (part.kind) {
      case PatternPart::Kind::name:
        append(out, name, false);
        break;
      case PatternPart::Kind::id:
        append(out, id, false);
        break;
      case PatternPart::Kind::arguments:
        append(out, arguments, false);
        break;
      default:
        append(out, part.text, true);
    }
  }
}

Rendered tools_in_words(const Conversation& conversation, const OutputFormat& output) {
  Rendered out{"You may call functions. Each line describes one, its parameters as a JSON Schema:\n", {}};
  for (const Tool& tool : conversation.tools) {
    const Data definition = to_data(tool);
    const Data* function = find_member(definition, "function");
    append(out, to_json(function == nullptr ? definition : *function) + "\n", false);
  }
  const CallFormat& form = json_form(output);
  append(out, "To call one, answer with its name and arguments in exactly this form, and nothing after it:\n",
         false);
  append(out, form.section_open, true);
  write_call(out, form, "NAME", "ID", "{\"PARAMETER\": VALUE}");
  append(out, form.section_close, true);
  append(out,
         "\nThe result comes in the next message. Call functions only when they help; else answer in words.",
         false);
  return out;
}

Rendered joined(Rendered front, const Rendered& back) {
  if (!front.text.empty() && !back.text.empty()) front.text += "\n\n";
  append(front, back);
  return front;
}

/// A message whose content may hold marks of ours.
struct Adapted : Message {
  Adapted(Message message) : Message(std::move(message)) {}
  Adapted(std::string role, Rendered words) : Message{std::move(role)}, words(std::move(words)) {}
  std::optional<Rendered> words;  ///< instead of the content

  Rendered text() const { return words ? *words : Rendered{content.text(), {}}; }
};

class Adapter {
 public:
  Adapter(const Conversation& conversation, const Capabilities& can, const OutputFormat& output)
      : conversation_(conversation),
        can_(can),
        output_(output),
        messages_(conversation.messages.begin(), conversation.messages.end()) {}

  TemplateInput run() {
    for (Adapted& message : messages_)
      if (message.role == "developer" && !can_.developer_role) message.role = "system";
    name_results();
    if (!conversation_.tools.empty() && !can_.tools) {
      const Rendered words = tools_in_words(conversation_, output_);
      if (!messages_.empty() && messages_.front().role == "system")
        messages_.front().words = joined(messages_.front().text(), words);
      else
        messages_.insert(messages_.begin(), Adapted("system", words));
    }
    if (!can_.tool_calls) calls_in_words();
    if (can_.tool_calls && !can_.parallel_tool_calls) one_call_each();
    if (!can_.tool_role) results_in_words();
    if (!can_.system_role) system_in_words();
    TemplateInput input;
    Data::List list;
    for (const Adapted& message : messages_) list.push_back(data_of(message));
    input.messages = std::move(list);
    if (!conversation_.tools.empty() && can_.tools) {
      Data::List tools;
      for (const Tool& tool : conversation_.tools) tools.push_back(to_data(tool));
      input.tools = std::move(tools);
    } else if (can_.empty_tools_list) {
      input.tools = Data::List{};
    }
    return input;
  }

 private:
  /// Many templates name the tool beside its result; APIs give only the id of the call.
  void name_results() {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      Adapted& result = messages_[i];
      if (result.role != "tool" || !result.name.empty()) continue;
      for (std::size_t k = i; k-- > 0 && result.name.empty();)
        for (const ToolCall& call : messages_[k].tool_calls)
          if (call.id == result.tool_call_id) result.name = call.name;
    }
  }

  void calls_in_words() {
    for (Adapted& message : messages_) {
      if (message.tool_calls.empty()) continue;
      Rendered words = message.text();
      if (!words.text.empty()) words.text += "\n";
      append(words, write_calls(output_, message.tool_calls));
      message.words = std::move(words);
      message.tool_calls.clear();
    }
  }

  void one_call_each() {
    std::vector<Adapted> out;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].tool_calls.size() < 2) {
        out.push_back(messages_[i]);
        continue;
      }
      const Adapted source = messages_[i];
      std::vector<Adapted> results;
      while (i + 1 < messages_.size() && messages_[i + 1].role == "tool") results.push_back(messages_[++i]);
      bool first = true;
      for (const ToolCall& call : source.tool_calls) {
        Adapted single = source;
        if (!first) single.content = {}, single.reasoning.clear();
        single.tool_calls = {call};
        out.push_back(std::move(single));
        first = false;
        const auto answer = std::find_if(results.begin(), results.end(), [&](const Adapted& result) {
          return result.tool_call_id == call.id;
        });
        if (answer == results.end()) continue;
        out.push_back(*answer);
        results.erase(answer);
      }
      out.insert(out.end(), results.begin(), results.end());
    }
    messages_ = std::move(out);
  }

  void results_in_words() {
    std::vector<Adapted> out;
    bool in_results = false;
    for (Adapted& message : messages_) {
      if (message.role != "tool") {
        in_results = false;
        out.push_back(std::move(message));
        continue;
      }
      const Rendered words{"<tool_response>\n" + message.content.text() + "\n</tool_response>", {}};
      if (in_results)
        out.back().words->text += "\n" + words.text;
      else
        out.push_back({"user", words});
      in_results = true;
    }
    messages_ = std::move(out);
  }

  /// In front of the user's next message.
  void system_in_words() {
    std::vector<Adapted> out;
    Rendered waiting;
    for (Adapted& message : messages_) {
      if (message.role == "system") {
        waiting = joined(std::move(waiting), message.text());
        continue;
      }
      if (message.role == "user" && !waiting.text.empty())
        message.words = joined(std::exchange(waiting, {}), message.text());
      out.push_back(std::move(message));
    }
    if (!waiting.text.empty()) out.push_back({"user", std::move(waiting)});
    messages_ = std::move(out);
  }

  Data content_of(const Adapted& message) const {
    const Rendered text = message.text();  // refuses what is no text
    if (text.text.empty() && !message.tool_calls.empty() && can_.empty_content_is_none) return {};
    // Only what a user says comes as parts: templates that take them there may still print others' as they
    // are.
    const bool in_parts = can_.list_content && message.role == "user" && message.content.parts.size() > 1;
    if (can_.text_content && (!in_parts || message.words)) return text;
    Data::List parts;
    if (message.words) {
      parts.push_back(Data::Mapping{{"type", "text"}, {"text", text}});
      return parts;
    }
    for (const ContentPart& part : message.content.parts)
      parts.push_back(Data::Mapping{{"type", "text"}, {"text", part.text}});
    return parts;
  }

  Data arguments_of(const ToolCall& call) const {
    if (can_.arguments_as_text) return call.arguments;
    try {
      Data parsed = jinja::parse_json(call.arguments, "arguments");
      if (std::holds_alternative<Data::Mapping>(parsed.value)) return parsed;
    } catch (const Error&) {
    }
    return Data::Mapping{{"arguments", call.arguments}};  // broken off, or no object: shown as it was
  }

  Data data_of(const Adapted& message) const {
    Data::Mapping out{{"role", message.role}, {"content", content_of(message)}};
    if (!message.reasoning.empty() && message.role == "assistant")
      out.emplace_back(can_.reasoning_key.empty() ? "reasoning_content" : can_.reasoning_key,
                       message.reasoning);
    if (!message.tool_calls.empty()) {
      Data::List calls;
      for (const ToolCall& call : message.tool_calls)
        calls.push_back(Data::Mapping{
            {"id", call.id},
            {"type", "function"},
            {"function", Data::Mapping{{"name", call.name}, {"arguments", arguments_of(call)}}}});
      out.emplace_back("tool_calls", std::move(calls));
    }
    if (!message.tool_call_id.empty()) out.emplace_back("tool_call_id", message.tool_call_id);
    if (!message.name.empty()) out.emplace_back("name", message.name);
    return out;
  }

  const Conversation& conversation_;
  const Capabilities& can_;
  const OutputFormat& output_;
  std::vector<Adapted> messages_;
};

}  // namespace

Rendered write_calls(const OutputFormat& output, const std::vector<ToolCall>& calls) {
  const CallFormat& form = json_form(output);
  Rendered out;
  append(out, form.section_open, true);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) append(out, form.separator, true);
    write_call(out, form, calls[i].name, calls[i].id, calls[i].arguments);
  }
  append(out, form.section_close, true);
  return out;
}

jinja::Template::Variables functions_variables(const Data& tools, const jinja::Template::Clock& clock) {
  // As the card of Firefunction v2 makes them; llama.cpp gives the same two.
  static const jinja::Template functions(
      "{% if tools %}{{ tools | map(attribute='function') | list | tojson(indent=4) }}{% endif %}");
  static const jinja::Template datetime("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}");
  return {{"functions", functions.render({{"tools", tools}}).text},
          {"datetime", datetime.render({}, {}, clock).text}};
}

TemplateInput adapt_conversation(const Conversation& conversation, const Capabilities& capabilities,
                                 const OutputFormat& output) {
  return Adapter(conversation, capabilities, output).run();
}

}  // namespace quipu::text

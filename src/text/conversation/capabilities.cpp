// What a template can show, found by rendering conversations of words that occur nowhere else.
#include <array>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "text/conversation/chat_format.hpp"

namespace quipu::text {

using jinja::Data;

namespace {

constexpr const char* kSystem = "Kasuvo";
constexpr const char* kUser = "Mirelta";
constexpr const char* kAnswer = "Dovinsa";
constexpr const char* kThought = "Pelunar";
constexpr const char* kValue = "Zerimba";
constexpr const char* kOtherValue = "Qolvita";
constexpr const char* kResult = "Huntavo";
constexpr const char* kTool = "tarosk_funor";
constexpr const char* kProbeKey = "velmo";
constexpr const char* kId = "abcdEF001";  // nine letters and digits: some templates insist
constexpr const char* kOtherId = "abcdEF002";

bool has(const std::optional<std::string>& text, std::string_view word) {
  return text && text->find(word) != std::string::npos;
}

class Probe {
 public:
  explicit Probe(const ChatTemplate& chat) : chat_(chat) {
    limits_.steps = 400'000;
    limits_.memory = 8 << 20;
    limits_.output = 1 << 20;
  }

  Capabilities run() {
    plain();
    if (!found_.renders) return found_;
    roles();
    tools();
    tool_calls();
    reasoning();
    thinking();
    return found_;
  }

 private:
  static Data message(const char* role, Data content) {
    return Data::Mapping{{"role", role}, {"content", std::move(content)}};
  }
  static Data parts(const char* text) { return Data::List{Data::Mapping{{"type", "text"}, {"text", text}}}; }
  Data content(const char* text) const { return found_.text_content ? Data(text) : parts(text); }
  Data user() const { return message("user", content(kUser)); }
  static Data tool_list() {
    Data::Mapping parameter{{"type", "string"}, {"description", "d"}};
    Data::Mapping parameters{{"type", "object"},
                             {"properties", Data::Mapping{{"ombrik", std::move(parameter)}}},
                             {"required", Data::List{"ombrik"}}};
    Data::Mapping function{{"name", kTool}, {"description", "d"}, {"parameters", std::move(parameters)}};
    return Data::List{Data::Mapping{{"type", "function"}, {"function", std::move(function)}}};
  }

  std::optional<std::string> render(Data::List messages, Data tools = {}, bool open_turn = false,
                                    jinja::Template::Variables variables = {}) const {
    ChatRequest request;
    request.messages = std::move(messages);
    request.tools = std::move(tools);
    request.variables = std::move(variables);
    if (found_.functions_variable)
      for (auto& variable : functions_variables(std::exchange(request.tools, {}), {}))
        request.variables.push_back(std::move(variable));
    if (found_.empty_tools_list && std::holds_alternative<std::nullptr_t>(request.tools.value))
      request.tools = Data::List{};
    request.add_generation_prompt = open_turn;
    try {
      return chat_.render(request, limits_).text;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  void plain() {
    for (const int attempt : {0, 1, 2}) {
      found_.empty_tools_list = attempt == 1;
      found_.functions_variable = attempt == 2;
      const auto list = render({message("user", parts(kUser))});
      found_.list_content = has(list, kUser) && !has(list, "'type'") && !has(list, "\"type\"");
      found_.text_content = true;
      found_.text_content = has(render({user()}), kUser);
      found_.renders = found_.text_content || found_.list_content;
      if (found_.renders) return;
    }
    found_ = {};
  }

  void roles() {
    const auto shows = [&](const char* role) {
      const auto text = render({message(role, content(kSystem)), user()});
      return has(text, kSystem) && has(text, kUser);
    };
    found_.system_role = shows("system");
    found_.developer_role = shows("developer");
  }

  void tools() {
    found_.tools = has(render({user()}, tool_list()), kTool);
    if (found_.tools || found_.functions_variable) return;
    found_.functions_variable = true;
    found_.tools = found_.functions_variable = has(render({user()}, tool_list()), kTool);
  }

  static Data call(const char* id, const char* value, bool as_text) {
    Data arguments = as_text ? Data(std::string("{\"") + kProbeKey + "\": \"" + value + "\"}")
                             : Data(Data::Mapping{{kProbeKey, value}});
    return Data::Mapping{{"id", id},
                         {"type", "function"},
                         {"function", Data::Mapping{{"name", kTool}, {"arguments", std::move(arguments)}}}};
  }
  static Data calling(bool as_text, bool none, bool both) {
    Data::List calls{call(kId, kValue, as_text)};
    if (both) calls.push_back(call(kOtherId, kOtherValue, as_text));
    return Data::Mapping{
        {"role", "assistant"}, {"content", none ? Data() : Data("")}, {"tool_calls", std::move(calls)}};
  }
  static Data result(const char* id) {
    return Data::Mapping{{"role", "tool"}, {"content", kResult}, {"tool_call_id", id}, {"name", kTool}};
  }

  void tool_calls() {
    const auto text_with = [&](bool as_text, bool none) -> std::optional<std::string> {
      auto text = render({user(), calling(as_text, none, false)}, tool_list());
      if (!has(text, kValue)) return std::nullopt;
      // Shown in another language's notation, or as a text within a text: not what the model was trained on.
      const std::string key = kProbeKey;
      if (has(text, "{'" + key) || has(text, "\\\"" + key) || (none && has(text, "None")))
        return std::nullopt;
      return text;
    };
    for (const bool as_text : {false, true}) {
      const auto empty = text_with(as_text, false);
      const auto none = text_with(as_text, true);
      if (!empty && !none) continue;
      found_.tool_calls = true;
      found_.arguments_as_text = as_text;
      found_.empty_content_is_none = !empty || (none && none->size() < empty->size());
      break;
    }
    const bool as_text = found_.arguments_as_text, none = found_.empty_content_is_none;
    if (found_.tool_calls) {
      const auto text =
          render({user(), calling(as_text, none, true), result(kId), result(kOtherId)}, tool_list());
      found_.parallel_tool_calls = has(text, kValue) && has(text, kOtherValue);
      const auto answered = render({user(), calling(as_text, none, false), result(kId)}, tool_list());
      found_.tool_role = has(answered, kResult);
      found_.tool_call_ids = has(answered, kId);
    } else {
      found_.tool_role = has(render({user(), message("assistant", content(kAnswer)), result(kId)}), kResult);
    }
  }

  void reasoning() {
    const jinja::Template::Variables thinking = {{"enable_thinking", true}, {"thinking", true}};
    for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
      Data answer = message("assistant", content(kAnswer));
      std::get<Data::Mapping>(answer.value).emplace_back(key, kThought);
      if (has(render({user(), answer}), kThought) ||
          has(render({user(), answer}, {}, false, thinking), kThought)) {
        found_.reasoning_key = key;
        return;
      }
      if (!found_.tool_calls) continue;
      Data call = calling(found_.arguments_as_text, found_.empty_content_is_none, false);
      std::get<Data::Mapping>(call.value).emplace_back(key, kThought);
      if (has(render({user(), call, result(kId)}, tool_list(), true), kThought)) {
        found_.reasoning_key = key;
        return;
      }
    }
  }

  void thinking() {
    for (const char* name : {"enable_thinking", "thinking"}) {
      const auto on = render({user()}, {}, true, {{name, true}});
      const auto off = render({user()}, {}, true, {{name, false}});
      if (!on || !off || *on == *off) continue;
      found_.thinking_switch = name;
      return;
    }
  }

  const ChatTemplate& chat_;
  jinja::Limits limits_;
  Capabilities found_;
};

}  // namespace

Capabilities probe_capabilities(const ChatTemplate& chat) { return Probe(chat).run(); }

}  // namespace quipu::text

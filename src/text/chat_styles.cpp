#include "text/chat_styles.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/log.hpp"
#include "text/chat_canonical.hpp"
#include "text/unicode.hpp"

namespace quipu::text {

namespace {

using Messages = std::span<const Message>;

/// Python's str.strip(): White_Space and the separators U+001C to U+001F.
std::string strip(std::string_view text) {
  const auto is_blank = [](char32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); };
  std::size_t begin = 0;
  std::size_t end = 0;
  bool started = false;
  for (std::size_t position = 0; position < text.size();) {
    const DecodedChar next = decode_utf8(text, position);
    if (!is_blank(next.value)) {
      if (!started) begin = position;
      started = true;
      end = position + next.length;
    }
    position += next.length;
  }
  return std::string(text.substr(begin, end - begin));
}

[[noreturn]] void refuse(std::string_view why) {
  fail(ErrorCode::invalid_argument, "the model's chat template refuses the conversation: {}", why);
}

bool has_system(Messages messages) { return messages.front().role == "system"; }

void require_alternation(Messages messages, std::string_view why) {
  for (std::size_t i = 0; i < messages.size(); ++i)
    if ((messages[i].role == "user") != (i % 2 == 0)) refuse(why);
}

constexpr std::string_view kAlternate = "Conversation roles must alternate user/assistant/user/assistant/...";

/// A template in canonical form, with the questions that recognition asks.
struct Source {
  std::string text;
  bool has(std::string_view marker) const { return text.find(marker) != std::string::npos; }
  bool has_any(std::initializer_list<std::string_view> markers) const {
    return std::any_of(markers.begin(), markers.end(), [&](std::string_view marker) { return has(marker); });
  }
};

using Render = std::function<std::string(Messages, bool add_generation_prompt, const ChatStyleContext&)>;

struct Style {
  std::string_view name;
  Render render;
};

/// The text of a string literal of the template, its escapes undone.
std::string unescape(std::string_view literal) {
  std::string out;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out.push_back(literal[i]);
      continue;
    }
    const char c = literal[++i];
    out.push_back(c == 'n' ? '\n' : c == 't' ? '\t' : c);
  }
  return out;
}

// ChatML: Qwen 1.5 to 2.5, SmolLM2 and many fine-tunes. Some insert a system message of their own when the
// conversation has none.
std::optional<Style> chatml(const Source& source) {
  if (!source.has_any({"'<|im_start|>'+message.role+'\\n'+message.content+'<|im_end|>'+'\\n'",
                       "'<|im_start|>'+message.role+'\\n'+message.content+'<|im_end|>\\n'"}) ||
      !source.has("{%ifadd_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}"))
    return std::nullopt;
  if (source.has_any({"think", "reasoning", "strftime", "raise_exception", "trim", "strip", "replace"}))
    return std::nullopt;
  constexpr std::string_view open = "'<|im_start|>system\\n", close = "<|im_end|>\\n'";
  std::optional<std::string> fallback;
  for (std::size_t at = source.text.find(open); at != std::string::npos;
       at = source.text.find(open, at + 1)) {
    const std::size_t begin = at + open.size();
    const std::size_t end = source.text.find(close, begin);
    const std::size_t quote = source.text.find('\'', begin);
    if (end == std::string::npos || quote < end) continue;  // a literal that other parts follow
    const std::string text = unescape(std::string_view(source.text).substr(begin, end - begin));
    if (fallback && *fallback != text) return std::nullopt;
    fallback = text;
  }
  if (fallback && !source.has("messages[0].role")) return std::nullopt;
  const bool bos = source.has("bos_token");
  return Style{"chatml", [fallback, bos](Messages messages, bool prompt, const ChatStyleContext& context) {
                 std::string out = bos ? context.bos : std::string();
                 if (fallback && !has_system(messages))
                   out += "<|im_start|>system\n" + *fallback + "<|im_end|>\n";
                 for (const Message& message : messages)
                   out += "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
                 if (prompt) out += "<|im_start|>assistant\n";
                 return out;
               }};
}

// Llama 3 and, with the date in the system message, 3.1 to 3.3.
std::optional<Style> llama3(const Source& source) {
  constexpr std::string_view assistant = "{{'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}";
  if (!source.has(
          "'<|start_header_id|>'+message.role+'<|end_header_id|>\\n\\n'+message.content|trim+'<|eot_id|>'") ||
      !source.has("bos_token") || !source.has(assistant))
    return std::nullopt;
  if (source.has_any({"think", "reasoning", "documents", "functions"}) &&
      !source.has("Cutting Knowledge Date"))
    return std::nullopt;
  const bool always_prompt = !source.has("add_generation_prompt");
  const bool dated = source.has("'Cutting Knowledge Date: December 2023\\n'");
  if (!dated && source.has("system_message")) return std::nullopt;
  const bool today = source.has("strftime_now('%d %b %Y')");
  if (dated && !today && !source.has("setdate_string='26 Jul 2024'")) return std::nullopt;
  return Style{"llama3", [=](Messages messages, bool prompt, const ChatStyleContext& context) {
                 const auto turn = [](std::string_view role, std::string_view content) {
                   return fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", role,
                                      content);
                 };
                 std::string out = context.bos;
                 if (dated) {
                   std::string system = "Cutting Knowledge Date: December 2023\nToday Date: " +
                                        (today ? context.today() : std::string("26 Jul 2024")) + "\n\n";
                   if (has_system(messages)) {
                     system += strip(messages.front().content);
                     messages = messages.subspan(1);
                   }
                   out += turn("system", system);
                 }
                 for (const Message& message : messages) out += turn(message.role, strip(message.content));
                 if (prompt || always_prompt) out += "<|start_header_id|>assistant<|end_header_id|>\n\n";
                 return out;
               }};
}

// Llama 2 chat.
std::optional<Style> llama2(const Source& source) {
  if (!source.has("'<<SYS>>\\n'+system_message+'\\n<</SYS>>\\n\\n'+message.content") ||
      !source.has("{{bos_token+'[INST] '+content.strip()+' [/INST]'}}") ||
      !source.has("{{' '+content.strip()+' '+eos_token}}") || !source.has("system_message=false"))
    return std::nullopt;
  return Style{"llama2", [](Messages messages, bool, const ChatStyleContext& context) {
                 std::optional<std::string> system;
                 if (has_system(messages)) {
                   system = messages.front().content;
                   messages = messages.subspan(1);
                 }
                 require_alternation(messages, kAlternate);
                 std::string out;
                 for (std::size_t i = 0; i < messages.size(); ++i) {
                   std::string content = messages[i].content;
                   if (i == 0 && system) content = "<<SYS>>\n" + *system + "\n<</SYS>>\n\n" + content;
                   if (messages[i].role == "user")
                     out += context.bos + "[INST] " + strip(content) + " [/INST]";
                   else if (messages[i].role == "assistant")
                     out += " " + strip(content) + " " + context.eos;
                 }
                 return out;
               }};
}

// Mistral 7B Instruct v0.1 and v0.2: no system message.
std::optional<Style> mistral(const Source& source) {
  if (!source.has("{{bos_token}}") || !source.has("{{'[INST] '+message.content+' [/INST]'}}") ||
      source.has_any({"system_message", "tools", "trim", "strip"}) || !source.has(std::string(kAlternate)))
    return std::nullopt;
  std::string_view tail;
  if (source.has("{{message.content+eos_token+' '}}"))
    tail = " ";
  else if (!source.has("{{message.content+eos_token}}"))
    return std::nullopt;
  return Style{"mistral", [tail](Messages messages, bool, const ChatStyleContext& context) {
                 require_alternation(messages, kAlternate);
                 std::string out = context.bos;
                 for (const Message& message : messages) {
                   if (message.role == "user")
                     out += "[INST] " + message.content + " [/INST]";
                   else if (message.role == "assistant")
                     out += message.content + context.eos + std::string(tail);
                   else
                     refuse("Only user and assistant roles are supported!");
                 }
                 return out;
               }};
}

// Mistral Nemo: no spaces, the system message in front of the last user message.
std::optional<Style> mistral_nemo(const Source& source) {
  if (!source.has("{{'[INST]'+system_message+'\\n\\n'+message.content+'[/INST]'}}") ||
      !source.has("{%ifloop.lastandsystem_messageisdefined%}") ||
      !source.has("{{'[INST]'+message.content+'[/INST]'}}") || !source.has("{{message.content+eos_token}}") ||
      !source.has("{{bos_token}}"))
    return std::nullopt;
  return Style{
      "mistral", [](Messages messages, bool, const ChatStyleContext& context) {
        std::optional<std::string> system;
        if (has_system(messages)) {
          system = messages.front().content;
          messages = messages.subspan(1);
        }
        require_alternation(messages,
                            "After the optional system message, conversation roles must alternate "
                            "user/assistant/user/assistant/...");
        std::string out = context.bos;
        for (std::size_t i = 0; i < messages.size(); ++i) {
          const Message& message = messages[i];
          if (message.role == "user")
            out += "[INST]" + (i + 1 == messages.size() && system ? *system + "\n\n" : std::string()) +
                   message.content + "[/INST]";
          else if (message.role == "assistant")
            out += message.content + context.eos;
          else
            refuse(
                "Only user and assistant roles are supported, with the exception of an initial optional "
                "system message!");
        }
        return out;
      }};
}

// Gemma 1 and 2 refuse a system message; Gemma 3 puts it in front of the first user message.
std::optional<Style> gemma(const Source& source) {
  const bool prefixes =
      source.has("{{'<start_of_turn>'+role+'\\n'+(first_user_prefixifloop.firstelse'')}}") &&
      source.has("setfirst_user_prefix=messages[0].content+'\\n\\n'");
  const bool refuses =
      source.has("{{'<start_of_turn>'+role+'\\n'+message.content|trim+'<end_of_turn>\\n'}}") &&
      source.has("{%ifmessages[0].role=='system'%}{{raise_exception('System role not supported')}}");
  if ((!prefixes && !refuses) || !source.has("{{bos_token}}") || !source.has(std::string(kAlternate)) ||
      !source.has("{%ifadd_generation_prompt%}{{'<start_of_turn>model\\n'}}{%endif%}"))
    return std::nullopt;
  return Style{"gemma", [prefixes](Messages messages, bool prompt, const ChatStyleContext& context) {
                 std::string prefix;
                 if (has_system(messages)) {
                   if (!prefixes) refuse("System role not supported");
                   prefix = messages.front().content + "\n\n";
                   messages = messages.subspan(1);
                 }
                 require_alternation(messages, kAlternate);
                 std::string out = context.bos;
                 for (const Message& message : messages) {
                   out += "<start_of_turn>" +
                          (message.role == "assistant" ? std::string("model") : message.role) + "\n" +
                          prefix + strip(message.content) + "<end_of_turn>\n";
                   prefix.clear();
                 }
                 if (prompt) out += "<start_of_turn>model\n";
                 return out;
               }};
}

// Phi 3 and 3.5.
std::optional<Style> phi3(const Source& source) {
  if (!source.has("{{'<|user|>\\n'+message.content+'<|end|>\\n'}}") ||
      !source.has("{{'<|assistant|>\\n'+message.content+'<|end|>\\n'}}") ||
      !source.has("{{'<|system|>\\n'+message.content+'<|end|>\\n'}}") ||
      !source.has("{%ifadd_generation_prompt%}{{'<|assistant|>\\n'}}{%else%}{{eos_token}}{%endif%}") ||
      source.has_any({"bos_token", "tools", "think", "trim"}))
    return std::nullopt;
  const bool skips_empty_system = source.has("message.role=='system'andmessage.content%}");
  return Style{"phi3", [skips_empty_system](Messages messages, bool prompt, const ChatStyleContext& context) {
                 std::string out;
                 for (const Message& message : messages) {
                   if (message.role == "system" && message.content.empty() && skips_empty_system) continue;
                   out += "<|" + message.role + "|>\n" + message.content + "<|end|>\n";
                 }
                 return out + (prompt ? "<|assistant|>\n" : context.eos);
               }};
}

// The first Phi 3 template: no system message, and the assistant's turn is opened after each user message.
std::optional<Style> phi3_first(const Source& source) {
  if (!source.has("{{'<|user|>'+'\\n'+message.content+'<|end|>'+'\\n'+'<|assistant|>'+'\\n'}}") ||
      !source.has("{{message.content+'<|end|>'+'\\n'}}") || source.has_any({"system", "trim", "tools"}))
    return std::nullopt;
  const bool bos = source.has("{{bos_token}}");
  return Style{"phi3", [bos](Messages messages, bool, const ChatStyleContext& context) {
                 std::string out = bos ? context.bos : std::string();
                 for (const Message& message : messages) {
                   if (message.role == "user")
                     out += "<|user|>\n" + message.content + "<|end|>\n<|assistant|>\n";
                   else if (message.role == "assistant")
                     out += message.content + "<|end|>\n";
                   else
                     log::warning("the model's chat template leaves out the {} message", message.role);
                 }
                 return out;
               }};
}

// Zephyr and TinyLlama chat.
std::optional<Style> zephyr(const Source& source) {
  if (!source.has("{{'<|user|>\\n'+message.content+eos_token}}\n") ||
      !source.has("{{'<|system|>\\n'+message.content+eos_token}}\n") ||
      !source.has("{{'<|assistant|>\\n'+message.content+eos_token}}\n") ||
      !source.has("{%ifloop.lastandadd_generation_prompt%}{{'<|assistant|>'}}\n{%endif%}") ||
      source.has_any({"bos_token", "tools", "think", "trim"}))
    return std::nullopt;
  return Style{"zephyr", [](Messages messages, bool prompt, const ChatStyleContext& context) {
                 std::string out;
                 for (const Message& message : messages)
                   out += "<|" + message.role + "|>\n" + message.content + context.eos + "\n";
                 if (prompt) out += "<|assistant|>\n";
                 return out;
               }};
}

class StyledTemplate final : public ChatTemplate {
 public:
  StyledTemplate(Style style, ChatStyleContext context)
      : style_(std::move(style)), context_(std::move(context)) {}

  std::string render(std::span<const Message> messages, bool add_generation_prompt) const override {
    if (messages.empty())
      fail(ErrorCode::invalid_argument, "a conversation without messages cannot be rendered");
    for (const Message& message : messages) {
      if (message.role != "system" && message.role != "user" && message.role != "assistant")
        fail(ErrorCode::invalid_argument,
             "the role of a message is \"{}\", expected system, user or assistant", printable(message.role));
    }
    return style_.render(messages, add_generation_prompt, context_);
  }
  std::string_view style() const override { return style_.name; }

 private:
  Style style_;
  ChatStyleContext context_;
};

class UnknownTemplate final : public ChatTemplate {
 public:
  std::string render(std::span<const Message>, bool) const override {
    fail(ErrorCode::unsupported,
         "the style of the model's chat template (tokenizer.chat_template) is not supported yet; supported "
         "are "
         "ChatML, Llama 2 and 3, Mistral, Gemma, Phi 3 and Zephyr");
  }
  std::string_view style() const override { return "unknown"; }
};

}  // namespace

std::unique_ptr<ChatTemplate> recognize_chat_template(std::string_view source, ChatStyleContext context) {
  const Source canonical{canonical_template(source)};
  using Recognizer = std::optional<Style> (*)(const Source&);
  constexpr std::array<Recognizer, 9> recognizers = {chatml, llama3, llama2,     mistral, mistral_nemo,
                                                     gemma,  phi3,   phi3_first, zephyr};
  for (const Recognizer recognize : recognizers)
    if (std::optional<Style> style = recognize(canonical))
      return std::make_unique<StyledTemplate>(std::move(*style), std::move(context));
  return std::make_unique<UnknownTemplate>();
}

}  // namespace quipu::text

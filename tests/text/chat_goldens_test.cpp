// Every chat template of the shared data against what Jinja2 made of it: rendered byte for byte, or refused
// as not supported, never rendered in another style.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "core/error.hpp"
#include "shared_vectors.hpp"
#include "text/chat_styles.hpp"

namespace quipu {
namespace {

namespace json = boost::json;

json::value read_json(const std::filesystem::path& path) { return json::parse(test::read_file(path)); }

/// The messages, when the conversation is one of plain texts by the three roles quipu knows.
std::optional<std::vector<text::Message>> plain_messages(const json::object& conversation) {
  if (conversation.contains("tools") || conversation.contains("documents")) return std::nullopt;
  std::vector<text::Message> messages;
  for (const json::value& value : conversation.at("messages").as_array()) {
    const json::object& message = value.as_object();
    if (message.size() != 2 || !message.at("content").is_string()) return std::nullopt;
    const std::string role(message.at("role").as_string());
    if (role != "system" && role != "user" && role != "assistant") return std::nullopt;
    messages.push_back({role, std::string(message.at("content").as_string())});
  }
  if (messages.empty()) return std::nullopt;
  return messages;
}

std::string string_or_empty(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? std::string() : std::string(value->as_string());
}

struct Tally {
  std::string style = "unknown";
  int texts = 0, errors = 0;
};

Tally check_template(const std::string& name,
                     const std::map<std::string, std::vector<text::Message>>& known) {
  const auto folder = test::shared_data() / "chat";
  const std::string source = test::read_file(folder / "templates" / (name + ".jinja"));
  Tally tally;
  const json::value goldens = read_json(folder / "goldens" / (name + ".json"));
  for (const json::value& value : goldens.as_array()) {
    const json::object& golden = value.as_object();
    const std::string variant = string_or_empty(golden, "variant");
    const auto messages = known.find(string_or_empty(golden, "conversation"));
    if (messages == known.end() || (variant != "prompt" && variant != "no_prompt" && variant != "bare"))
      continue;
    const json::object& kwargs = golden.at("kwargs").as_object();
    const auto chat = text::recognize_chat_template(
        source, {string_or_empty(kwargs, "bos_token"), string_or_empty(kwargs, "eos_token"),
                 [] { return std::string("15 Jan 2026"); }});
    tally.style = std::string(chat->style());
    const bool prompt = kwargs.at("add_generation_prompt").as_bool();
    const std::string where = name + ", " + messages->first + ", " + variant;
    if (tally.style == "unknown") {
      EXPECT_THROW(chat->render(messages->second, prompt), Error) << where;
    } else if (golden.contains("output")) {
      ++tally.texts;
      EXPECT_EQ(chat->render(messages->second, prompt), std::string(golden.at("output").as_string()))
          << where;
    } else {
      const json::object& error = golden.at("error").as_object();
      // Jinja fails on a token that is not passed at all; a model without one has an empty text here.
      if (variant == "bare" && string_or_empty(error, "kind") == "undefined") continue;
      ++tally.errors;
      try {
        chat->render(messages->second, prompt);
        ADD_FAILURE() << where << ": no error, expected " << error;
      } catch (const Error& thrown) {
        if (string_or_empty(error, "kind") == "raise_exception") {
          EXPECT_NE(thrown.message().find(string_or_empty(error, "message")), std::string::npos)
              << where << ": " << thrown.message();
        }
      }
    }
  }
  return tally;
}

TEST(ChatGoldens, KnownStylesRenderAsJinjaDoesAndOthersAreRefused) {
  const auto folder = test::shared_data() / "chat";
  QUIPU_REQUIRE_SHARED(folder);
  std::map<std::string, std::vector<text::Message>> known;
  const json::value conversations = read_json(folder / "conversations.json");
  for (const json::value& value : conversations.as_object().at("conversations").as_array()) {
    const json::object& conversation = value.as_object();
    if (auto messages = plain_messages(conversation))
      known.emplace(string_or_empty(conversation, "name"), std::move(*messages));
  }
  ASSERT_GE(known.size(), 7u);

  std::map<std::string, std::string> styles;
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "templates")) {
    const std::string name = entry.path().stem().string();
    const Tally tally = check_template(name, known);
    ++count;
    if (tally.style == "unknown") continue;
    styles[name] = tally.style;
    EXPECT_GT(tally.texts, 0) << name;
  }
  EXPECT_EQ(count, 70u);
  const std::map<std::string, std::string> expected = {
      {"MiMo-VL", "chatml"},
      {"Qwen-Qwen2.5-7B-Instruct", "chatml"},
      {"google-gemma-2-2b-it", "gemma"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3"},
      {"meta-llama-Llama-3.2-3B-Instruct", "llama3"},
      {"meta-llama-Llama-3.3-70B-Instruct", "llama3"},
      {"microsoft-Phi-3.5-mini-instruct", "phi3"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
  };
  EXPECT_EQ(styles, expected);
}

}  // namespace
}  // namespace quipu

// Chat styles against Jinja2, on the project's own goldens (make_chat_goldens.py).
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "small_vocabulary.hpp"
#include "text/chat_canonical.hpp"
#include "text/chat_styles.hpp"

namespace quipu {
namespace {

using boost::json::object;

std::string text_of(const object& from, const char* key) { return std::string(from.at(key).as_string()); }

std::unique_ptr<text::ChatTemplate> recognize(std::string_view source) {
  return text::recognize_chat_template(source, {"<s>", "</s>", [] { return std::string("15 Jan 2026"); }});
}

TEST(ChatStyles, RenderAsJinjaRendersTheTemplate) {
  const boost::json::value golden = test::read_golden("chat_styles.json");
  for (const auto& value : golden.as_object().at("styles").as_array()) {
    const object& style = value.as_object();
    const auto chat = recognize(text_of(style, "template"));
    ASSERT_EQ(chat->style(), text_of(style, "style")) << text_of(style, "name");
    for (const auto& item : style.at("cases").as_array()) {
      const object& expected = item.as_object();
      std::vector<text::Message> messages;
      for (const auto& message : expected.at("messages").as_array())
        messages.push_back({text_of(message.as_object(), "role"), text_of(message.as_object(), "content")});
      const bool prompt = expected.at("add_generation_prompt").as_bool();
      if (expected.contains("output")) {
        EXPECT_EQ(chat->render(messages, prompt), text_of(expected, "output")) << text_of(style, "name");
        continue;
      }
      try {
        chat->render(messages, prompt);
        ADD_FAILURE() << text_of(style, "name") << ": no error, expected " << text_of(expected, "error");
      } catch (const Error& error) {
        EXPECT_NE(error.message().find(text_of(expected, "error")), std::string::npos) << error.message();
      }
    }
  }
}

TEST(ChatStyles, OtherTemplatesLoadAndAreRefusedWhenUsed) {
  const boost::json::value golden = test::read_golden("chat_styles.json");
  const std::vector<text::Message> messages = {{"user", "Hello"}};
  for (const auto& entry : golden.as_object().at("other").as_object()) {
    const auto chat = recognize(std::string_view(entry.value().as_string()));
    try {
      chat->render(messages);
      ADD_FAILURE() << entry.key() << ": rendered as " << chat->style();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << entry.key();
    }
  }
}

TEST(ChatStyles, RolesThatNoTemplateWasTrainedOnAreRefused) {
  const boost::json::value golden = test::read_golden("chat_styles.json");
  const auto chat = recognize(text_of(golden.as_object().at("styles").as_array()[0].as_object(), "template"));
  const std::vector<text::Message> narrator = {{"narrator", "x"}};
  EXPECT_THROW(chat->render(narrator), Error);
  EXPECT_THROW(chat->render({}), Error);
}

// By hand, from Jinja's rules of white space control.
TEST(CanonicalTemplate, AppliesWhiteSpaceControlAndOneSpelling) {
  EXPECT_EQ(text::canonical_template("a {{- x }} b"), "a{{x}} b");
  EXPECT_EQ(text::canonical_template("{{ x -}}  \n b\n"), "{{x}}b");
  EXPECT_EQ(text::canonical_template("  {% if a %}\n  {{ b }}\n  {% endif %}\nc"),
            "{%ifa%}  {{b}}\n{%endif%}c");
  EXPECT_EQ(text::canonical_template("{# gone #}\nx"), "x");
  EXPECT_EQ(text::canonical_template("{{ m['role'] + \"a 'b\n\" }}"), "{{m.role+'a 'b\\n'}}");
  EXPECT_EQ(text::canonical_template("{{ ['role'] }}"), "{{['role']}}");
  for (const char* open : {"{{", "{%", "{#", "{{ 'a", "{{ \"\\", "{%-", "{{ a[", "-}}", "{"})
    text::canonical_template(open);  // unfinished tags: nothing is read past the end
}

TEST(ChatStyles, TheDefaultModelsTemplateIsTheOneOfTheGolden) {
  // What SmolLM2 was trained to see, with its default system message.
  const boost::json::value golden = test::read_golden("chat_styles.json");
  const auto chat = recognize(text_of(golden.as_object().at("styles").as_array()[0].as_object(), "template"));
  const std::vector<text::Message> messages = {{"user", "Hi"}};
  EXPECT_EQ(
      chat->render(messages),
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace quipu

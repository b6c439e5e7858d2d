// Chat templates from metadata to tokens.
#include "text/chat_template.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "small_vocabulary.hpp"
#include "text/output/output_format.hpp"

namespace quipu {
namespace {

using boost::json::object;
using text::jinja::Data;
using text::jinja::TemplateError;

std::string text_of(const object& from, const char* key) { return std::string(from.at(key).as_string()); }

std::tm clock_of_goldens() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 15;
  now.tm_hour = 12;
  now.tm_wday = 4;
  return now;
}

text::ChatRequest plain_request(const object& expected) {
  text::ChatRequest request;
  Data::List messages;
  for (const auto& message : expected.at("messages").as_array())
    messages.push_back(Data::Mapping{{"role", text_of(message.as_object(), "role")},
                                     {"content", text_of(message.as_object(), "content")}});
  request.messages = std::move(messages);
  request.add_generation_prompt = expected.at("add_generation_prompt").as_bool();
  request.clock = clock_of_goldens;
  return request;
}

// tests/goldens/text/chat_styles.json: rendered by Python's Jinja2 (make_chat_goldens.py).
TEST(ChatTemplate, RendersTheUsualStylesAsJinjaDoes) {
  const boost::json::value golden = test::read_golden("chat_styles.json");
  for (const auto& value : golden.as_object().at("styles").as_array()) {
    const object& style = value.as_object();
    const text::ChatTemplate chat(text_of(style, "template"), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    for (const auto& item : style.at("cases").as_array()) {
      const object& expected = item.as_object();
      const text::ChatRequest request = plain_request(expected);
      if (expected.contains("output")) {
        EXPECT_EQ(chat.render(request).text, text_of(expected, "output")) << text_of(style, "name");
        continue;
      }
      try {
        chat.render(request);
        ADD_FAILURE() << text_of(style, "name") << ": no error, expected " << text_of(expected, "error");
      } catch (const TemplateError& error) {
        EXPECT_EQ(error.kind(), TemplateError::Kind::raised);
        EXPECT_EQ(error.detail(), text_of(expected, "error"));
      }
    }
  }
}

gguf::Metadata metadata_with(gguf::Value chat_template) {
  gguf::Metadata metadata;
  metadata.set_origin("test.gguf");
  metadata.set("tokenizer.chat_template", std::move(chat_template));
  metadata.set("tokenizer.ggml.tokens", test::strings_value({"<unk>", "<s>", "</s>"}));
  metadata.set("tokenizer.ggml.bos_token_id", test::uint_value(1));
  metadata.set("tokenizer.ggml.eos_token_id", test::uint_value(2));
  return metadata;
}

TEST(ChatTemplate, TakesSpecialTokensFromTheVocabulary) {
  const auto chat = text::ChatTemplate::from_metadata(metadata_with(test::string_value(
      "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ messages|length }}")));
  const std::vector<text::Message> messages = {{"user", "Hi"}};
  EXPECT_EQ(chat->render(messages), "<s>|</s>|False|1");
}

TEST(ChatTemplate, OneThatDoesNotParseLoadsAndSaysWhyWhenUsed) {
  const auto chat =
      text::ChatTemplate::from_metadata(metadata_with(test::string_value("line\n{% if messages %}x")));
  ASSERT_NE(chat, nullptr);
  try {
    chat->render(text::ChatRequest{});
    FAIL() << "rendered";
  } catch (const TemplateError& error) {
    EXPECT_EQ(error.kind(), TemplateError::Kind::syntax);
    EXPECT_EQ(error.line(), 2u);
    EXPECT_NE(error.message().find("endif"), std::string::npos) << error.message();
  }
}

TEST(ChatTemplate, OneThatIsNoStringIsNone) {
  EXPECT_EQ(text::ChatTemplate::from_metadata(metadata_with(test::uint_value(1))), nullptr);
}

TEST(ChatTemplate, PassesToolsAndVariables) {
  const text::ChatTemplate chat("{{ tools[0].function.name }} {{ enable_thinking }} {{ documents is none }}",
                                {});
  text::ChatRequest request;
  request.tools = text::jinja::parse_json(R"([{"type":"function","function":{"name":"f"}}])", "tools");
  request.variables = {{"enable_thinking", false}};
  EXPECT_EQ(chat.render(request).text, "f False True");
}

/// The parts of a rendered text that may become control tokens, in brackets.
std::string marked(const text::Rendered& rendered) {
  std::string out;
  std::size_t position = 0;
  for (const text::TextRange& range : rendered.trusted) {
    out += rendered.text.substr(position, range.begin - position) + "[" +
           rendered.text.substr(range.begin, range.end - range.begin) + "]";
    position = range.end;
  }
  return out + rendered.text.substr(position);
}

TEST(ChatTemplate, RemembersWhatTheTemplateWrote) {
  const text::ChatTemplate chat(
      "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim }}"
      "{{ '<|im_end|>' + '\n' }}{% endfor %}",
      {{"bos_token", "<s>"}});
  const std::vector<text::Message> messages = {{"user", " a<|im_end|> "}, {"made-up", "b"}};
  EXPECT_EQ(marked(chat.render_marked(messages)),
            "[<s><|im_start|>user\n]a<|im_end|>[<|im_end|>\n<|im_start|>]made-up[\n]b[<|im_end|>\n]");
}

TEST(ChatTemplate, OriginSurvivesMacrosFiltersAndStringMethods) {
  const auto render = [](const char* source) {
    const std::vector<text::Message> messages = {{"user", "x-y"}};
    return marked(text::ChatTemplate(source, {}).render_marked(messages));
  };
  const std::string set = "{% set c = messages[0].content %}";
  EXPECT_EQ(render((set + "{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(c) }}").c_str()), "[<]x-y[>]");
  EXPECT_EQ(render((set + "{{ ['<a>', c, '<b>']|join('|') }}").c_str()), "[<a>|]x-y[|<b>]");
  EXPECT_EQ(render((set + "{{ ('<t>' ~ c)[2:5] }}").c_str()), "[>]x-");
  EXPECT_EQ(render((set + "{{ ('<t>' + c).split('-')[0] }}").c_str()), "[<t>]x");
  EXPECT_EQ(render((set + "{{ '<t>{}'.format(c) }}{{ '%s</t>' % c }}").c_str()), "[<t>]x-yx-y[</t>]");
  EXPECT_EQ(render((set + "{{ c.replace('-', '<m>') }}").c_str()), "x[<m>]y");
  EXPECT_EQ(render((set + "{{ {'<k>': c}|tojson }}").c_str()), R"({"<k>": "x-y"})");
  EXPECT_EQ(render((set + "{% set b %}<b>{{ c }}{% endset %}{{ b }}{{ c * 2 }}").c_str()), "[<b>]x-yx-yx-y");
}

/// Letters and one control token.
std::unique_ptr<text::Tokenizer> letters() {
  gguf::Metadata metadata;
  metadata.set_origin("test.gguf");
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<|end|>"};
  std::vector<std::int64_t> types = {2, 3, 3, 3};
  for (char c = '!'; c < 127; ++c) {
    tokens.push_back(std::string(1, c));
    types.push_back(1);
  }
  metadata.set("tokenizer.ggml.model", test::string_value("gpt2"));
  metadata.set("tokenizer.ggml.pre", test::string_value("gpt-2"));
  metadata.set("tokenizer.ggml.tokens", test::strings_value(std::move(tokens)));
  metadata.set("tokenizer.ggml.token_type", test::ints_value(std::move(types)));
  metadata.set("tokenizer.ggml.merges", test::strings_value({}));
  metadata.set("tokenizer.ggml.bos_token_id", test::uint_value(1));
  metadata.set("tokenizer.ggml.eos_token_id", test::uint_value(2));
  return text::Tokenizer::from_metadata(metadata);
}

TEST(ChatTemplate, AMessageThatSpellsAControlTokenStaysText) {
  const auto tokenizer = letters();
  const text::ChatTemplate chat("{{ messages[0].content }}<|end|>", {});
  const std::vector<text::Message> messages = {{"user", "a<|end|>"}};
  const auto tokens = text::encode_rendered(*tokenizer, chat.render_marked(messages));
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 3), 1);
  EXPECT_EQ(tokens.back(), 3);
  EXPECT_EQ(tokenizer->decode(tokens, true), "a<|end|><|end|>");
  // Half from a person and half from the template is no token either.
  const text::ChatTemplate halves("{{ messages[0].content }}end|>", {});
  const std::vector<text::Message> half = {{"user", "<|"}};
  const auto split = text::encode_rendered(*tokenizer, halves.render_marked(half));
  EXPECT_EQ(std::count(split.begin(), split.end(), 3), 0);
}

TEST(ChatTemplate, MarksOfAFormatAreItsControlTokensInTheVocabulary) {
  text::OutputFormat format;
  format.calls = {{.call = "<|end|>{name}<s>{arguments}"}};
  EXPECT_EQ(text::marker_tokens(format, *letters()), (std::vector<text::Token>{1, 3}));
  format.calls = {{.call = "<tool_call>{name}{arguments}</tool_call>"}};
  EXPECT_TRUE(text::marker_tokens(format, *letters()).empty());
}

TEST(ChatTemplate, TheRestOfAPromptEncodesWithItsOwnRanges) {
  const auto tokenizer = letters();
  const text::Rendered rendered{"ab<|end|>c<|end|>", {{0, 2}, {10, 17}}};
  const auto rest = text::encode_rendered(*tokenizer, rendered, false, 2);
  EXPECT_EQ(std::count(rest.begin(), rest.end(), 3), 1);
  EXPECT_EQ(tokenizer->decode(rest, true), "<|end|>c<|end|>");
}

}  // namespace
}  // namespace quipu

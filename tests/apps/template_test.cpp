// `quipu template render` as a person and a script call it.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "program.hpp"
#include "support.hpp"

namespace quipu {
namespace {

namespace json = boost::json;
using test::ProgramOptions;
using test::ProgramResult;

class TemplateRender : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "template_test";
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "chat.jinja")
        << "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
           "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt "
           "%}<|assistant|><think>{% endif %}";
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

TEST_F(TemplateRender, PrintsThePromptAndMarksWhatPeopleWrote) {
  const ProgramResult plain = test::quipu(
      {"template", "render", "--template", path("chat.jinja"), "-p", "a<|end|>", "--system", "s"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(plain.out, "<s><|system|>s<|end|><|user|>a<|end|><|end|><|assistant|><think>");
  const ProgramResult marked =
      test::quipu({"template", "render", "--template", path("chat.jinja"), "-p", "a<|end|>", "--mark"});
  EXPECT_EQ(marked.out, "<s><|user|>⟦a<|end|>⟧<|end|><|assistant|><think>");
}

TEST_F(TemplateRender, ReadsMessagesAndToolsAndSaysHowTheAnswerIsRead) {
  std::ofstream(folder_ / "tools.json") << R"([{"type": "function", "function": {"name": "f"}}])";
  ProgramOptions options;
  options.input = R"({"messages": [{"role": "user", "content": "hi"}]})";
  const ProgramResult result = test::quipu({"template", "render", "--template", path("chat.jinja"),
                                            "--messages", "-", "--tools", path("tools.json"), "--json"},
                                           options);
  ASSERT_EQ(result.status, 0) << result.err;
  const json::object printed = json::parse(result.out).as_object();
  EXPECT_EQ(printed.at("text"),
            R"(<s><|user|>hi<|end|>[{"type": "function", "function": {"name": "f"}}]<|assistant|><think>)");
  EXPECT_EQ(printed.at("start"), "reasoning");
  EXPECT_EQ(printed.at("family"), "general");
  EXPECT_EQ(printed.at("capabilities").at("tools"), true);
  EXPECT_EQ(printed.at("capabilities").at("tool_calls"), false);
  EXPECT_EQ(printed.at("trusted").as_array().at(0), json::value({0, 11}));
  EXPECT_FALSE(printed.contains("tokens"));
}

TEST_F(TemplateRender, RefusesInOneLine) {
  std::ofstream(folder_ / "refuses.jinja") << "{{ raise_exception('roles must alternate') }}";
  const ProgramResult raised = test::quipu({"template", "render", "--template", path("refuses.jinja")});
  EXPECT_EQ(raised.status, 1);
  EXPECT_NE(raised.err.find("roles must alternate"), std::string::npos) << raised.err;
  EXPECT_EQ(test::quipu({"template", "render"}).status, 1);
  std::ofstream(folder_ / "messages.json") << R"([{"role": "user", "content": 5}])";
  const ProgramResult wrong = test::quipu(
      {"template", "render", "--template", path("chat.jinja"), "--messages", path("messages.json")});
  EXPECT_NE(wrong.err.find("messages[0].content is an integer"), std::string::npos) << wrong.err;
  const ProgramResult tools =
      test::quipu({"template", "render", "--template", path("chat.jinja"), "--tools", path("messages.json")});
  EXPECT_NE(tools.err.find(path("messages.json") + "[0]"), std::string::npos) << tools.err;
}

}  // namespace
}  // namespace quipu

// Templates made to crash, hang or exhaust: all end in an error.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "shared_vectors.hpp"
#include "text/chat_template.hpp"
#include "text/jinja/jinja.hpp"

namespace quipu {
namespace {

using text::jinja::Data;
using text::jinja::Template;
using text::jinja::TemplateError;
using Kind = TemplateError::Kind;

std::string repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

/// Runs `task` on a thread with a stack of 256 KB.
void on_small_stack(const std::function<void()>& task) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread{};
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&task)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

/// The kind of error, or the text after "=".
std::string outcome(const std::string& source) {
  std::string result;
  on_small_stack([&] {
    try {
      result = "=" + Template(source).render({{"x", Data("abc")}}).text;
    } catch (const TemplateError& error) {
      result = error.kind() == Kind::limit ? "limit" : error.kind() == Kind::syntax ? "syntax" : "other";
    }
  });
  return result;
}

TEST(JinjaLimits, NestingBeyondTheLimitDoesNotParse) {
  for (const int depth : {2000, 300000}) {
    EXPECT_EQ(outcome("{{ " + repeat("(", depth) + "1" + repeat(")", depth) + " }}"), "syntax");
    EXPECT_EQ(outcome("{{ " + repeat("[", depth) + repeat("]", depth) + " }}"), "syntax");
    EXPECT_EQ(outcome("{{ x" + repeat("[", depth) + "0" + repeat("]", depth) + " }}"), "syntax");
    EXPECT_EQ(outcome("{{ " + repeat("{1:", depth) + "1" + repeat("}", depth) + " }}"), "syntax");
  }
  EXPECT_EQ(outcome("{{ " + repeat("not ", 100000) + "1 }}"), "syntax");
  EXPECT_EQ(outcome("{{ " + repeat("- ", 100000) + "1 }}"), "syntax");
  EXPECT_EQ(outcome("{{ " + repeat("1 if 1 else ", 50000) + "1 }}"), "syntax");
  EXPECT_EQ(outcome("{{ 1 " + repeat("if 1 ", 50000) + "}}"), "syntax");
  EXPECT_EQ(outcome("{{ x" + repeat(".a", 100000) + " }}"), "syntax");
  EXPECT_EQ(outcome("{{ 'x'" + repeat("|trim", 100000) + " }}"), "syntax");
  EXPECT_EQ(outcome("{{ 1" + repeat("+1", 100000) + " }}"), "syntax");
  EXPECT_EQ(outcome("{{ x" + repeat("()", 100000) + " }}"), "syntax");
  EXPECT_EQ(outcome(repeat("{% if 1 %}", 20000) + "x" + repeat("{% endif %}", 20000)), "syntax");
  EXPECT_EQ(outcome("{% set " + repeat("(", 100000) + "a %}"), "syntax");
  EXPECT_EQ(outcome(std::string(text::jinja::kMaxTemplateBytes + 1, ' ')), "syntax");
}

TEST(JinjaLimits, NestingBelowTheLimitRenders) {
  EXPECT_EQ(outcome("{{ " + repeat("(", 90) + "1" + repeat(")", 90) + " }}"), "=1");
  EXPECT_EQ(outcome("{{ 1" + repeat("~1", 10000) + " }}"), "=" + repeat("1", 10001));
  EXPECT_EQ(outcome("{{ 1" + repeat("==1", 10000) + " }}"), "=True");
  EXPECT_EQ(outcome(repeat("{% if 0 %}{% endif %}", 10000) + "x"), "=x");
}

TEST(JinjaLimits, EndlessWorkEnds) {
  EXPECT_EQ(outcome("{% for i in range(1000000000000) %}x{% endfor %}"), "limit");
  EXPECT_EQ(outcome("{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
                    "{% endfor %}{% endfor %}{% endfor %}"),
            "limit");
  EXPECT_EQ(outcome("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"), "limit");
  EXPECT_EQ(outcome("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}"), "limit");
  EXPECT_EQ(outcome("{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}"), "limit");
  EXPECT_EQ(outcome("{% for a in range(99999) %}{% if x.find('q' * 9999) %}{% endif %}{% endfor %}"),
            "limit");
}

TEST(JinjaLimits, SearchesAndComparisonsCount) {
  const std::string list = "{% set s = range(99999)|list %}{% for a in range(99999) %}";
  for (const char* work :
       {"{% if 'x' in s %}{% endif %}", "{% if -1 in s %}{% endif %}", "{% if s == s + [] %}{% endif %}",
        "{% set z = s|unique|list %}", "{% set z = 'ab ' * 99999 %}{% set z = z.split() %}"})
    EXPECT_EQ(outcome(list + work + "{% endfor %}"), "limit") << work;
}

TEST(JinjaLimits, EndlessMemoryEnds) {
  EXPECT_EQ(
      outcome("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
              "{% endfor %}{{ ns.s|length }}"),
      "limit");
  EXPECT_EQ(outcome("{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
                    "{% endfor %}{{ ns.s|length }}"),
            "limit");
  for (const char* expression :
       {"'x' * 100000000000", "[1] * 100000000000", "'%1000000000d' % 1", "'%-1000000000s|' % 'a'",
        "'%.1000000000f' % 1", "'{:1000000000}'.format(1)", "'a'.center(1000000000)", "'5'.zfill(1000000000)",
        "'a\nb'|indent(1000000000)", "[1]|batch(1000000000, 1)|list", "'a'.ljust(9999999999)",
        "('a' * 99999).replace('', 'b' * 99999)", "[1]|tojson(indent=1000000000)",
        "(['a' * 9999] * 99999)|join", "(['a' * 9999] * 99999)|string", "(['a' * 9999] * 99999)|tojson"})
    EXPECT_EQ(outcome(std::string("{{ ") + expression + " }}"), "limit") << expression;
  EXPECT_EQ(outcome("{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}"), "limit");
}

TEST(JinjaLimits, DeepAndCyclicValuesEnd) {
  EXPECT_EQ(
      outcome("{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}"),
      "limit");
  EXPECT_EQ(outcome("{% set ns = namespace(s=1) %}{% for i in range(9999) %}{% for y in [ns.s] %}"
                    "{% set ns.s = loop %}{% endfor %}{% endfor %}"),
            "limit");
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% set ns.self = ns %}{{ [ns.self.self is sameas ns] }}"),
            "=[True]");
  EXPECT_EQ(
      outcome("{% set ns = namespace(s=1) %}{% for i in range(9999) %}{% set ns.s = namespace(s=ns.s) %}"
              "{% endfor %}x"),
      "=x");
  EXPECT_EQ(outcome("{% macro f() %}{% macro g() %}{{ f }}{% endmacro %}{% endmacro %}{{ f() }}"), "=");
}

TEST(JinjaLimits, IntegersDoNotWrap) {
  EXPECT_EQ(outcome("{{ 9223372036854775807 + 1 }}"), "other");
  EXPECT_EQ(outcome("{{ (-9223372036854775807 - 1) // -1 }}"), "other");
  EXPECT_EQ(outcome("{{ (-9223372036854775807 - 1) % -1 }}"), "=0");
  EXPECT_EQ(outcome("{{ (-9223372036854775807 - 1)|abs }}"), "other");
  EXPECT_EQ(outcome("{{ 2 ** 64 }}"), "other");
  EXPECT_EQ(outcome("{{ 99999999999999999999 }}"), "syntax");
  EXPECT_EQ(outcome("{{ 'abc'[9223372036854775807:] }}{{ [1][::9223372036854775807] }}"), "=[1]");
  EXPECT_EQ(
      outcome("{{ [1, 2][::-9223372036854775807] }}{{ range(-9223372036854775807, 9223372036854775807) }}"),
      "limit");
}

TEST(JinjaLimits, NothingOfTheHostIsReached) {
  EXPECT_EQ(outcome("{{ ''.__class__.__mro__[1] }}"), "other");
  EXPECT_EQ(outcome("{{ cycler.__init__.__globals__ }}"), "other");
  EXPECT_EQ(outcome("{{ '{0.__class__}'.format(x) }}"), "other");
  EXPECT_EQ(outcome("{% include 'file' %}"), "syntax");
}

TEST(JinjaLimits, AnyBytesAreTaken) {
  EXPECT_EQ(outcome(std::string("a\0{{ x }}", 9)), std::string("=a\0abc", 6));
  EXPECT_EQ(outcome("\xff\xfe{{ x }}{{ '\xff'|length }}{{ '\xff'|upper }}"),
            "=\xff\xfe"
            "abc1\xff");
}

TEST(JinjaLimits, SharedHostileTemplatesEndAsTheManifestSays) {
  const auto folder = test::shared_data() / "gguf-bad";
  QUIPU_REQUIRE_SHARED(folder);
  const Data manifest = text::jinja::parse_json(test::read_file(folder / "manifest.json"), "manifest.json");
  int seen = 0;
  for (const Data& item : std::get<Data::List>(manifest.value)) {
    std::string file, stage, render;
    for (const auto& [key, value] : std::get<Data::Mapping>(item.value)) {
      const auto* text = std::get_if<Data::Text>(&value.value);
      if (text == nullptr) continue;
      if (key == "file") file = text->bytes;
      if (key == "stage") stage = text->bytes;
      if (key == "render") render = text->bytes;
    }
    if (stage != "template" || render.empty()) continue;
    const gguf::File model = gguf::File::open(folder / "files" / file);
    const auto chat = text::ChatTemplate::from_metadata(model.metadata());
    ASSERT_NE(chat, nullptr) << file;
    bool failed = false;
    on_small_stack([&] {
      const std::vector<text::Message> messages = {{"user", "Hello"}};
      try {
        chat->render(messages);
      } catch (const TemplateError&) {
        failed = true;
      }
    });
    if (render == "error") {
      EXPECT_TRUE(failed) << file;
    }
    ++seen;
  }
  EXPECT_GE(seen, 18);
}

}  // namespace
}  // namespace quipu

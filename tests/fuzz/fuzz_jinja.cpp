// Compiles and renders the input as a chat template, within small limits; any error but a TemplateError is a
// finding, and so are ranges of origin that do not lie in the text, ascending and apart.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/jinja/jinja.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quipu::text;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  static const jinja::Template::Variables variables = {
      {"messages", jinja::parse_json(R"([{"role":"system","content":"s"},
          {"role":"user","content":"h\u00e9 <|x|>"},
          {"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":[1,2.5]}}}]}])",
                                     "messages")},
      {"tools",
       jinja::parse_json(R"([{"type":"function","function":{"name":"f","parameters":{}}}])", "tools")},
      {"bos_token", jinja::Data("<s>", true)},
      {"n", jinja::Data()},
      {"i", jinja::Data(7)},
      {"f", jinja::Data(2.5)},
      {"add_generation_prompt", jinja::Data(true)}};
  jinja::Limits limits;
  limits.steps = 100'000;
  limits.memory = 4 << 20;
  limits.output = 1 << 20;
  try {
    const Rendered rendered = jinja::Template(source).render(variables, limits);
    std::size_t end = 0;
    for (const TextRange& range : rendered.trusted) {
      if (range.begin < end || range.end <= range.begin || range.end > rendered.text.size()) std::abort();
      if (end != 0 && range.begin == end) std::abort();
      end = range.end;
    }
  } catch (const jinja::TemplateError&) {
  }
  return 0;
}

// Takes the input apart as a model's answer: its first three bytes choose the family, the options and the
// size of the pieces. Findings: bytes that no event accounts for, text events that stand for other bytes, a
// result that depends on the pieces, a whole call whose arguments are no JSON object.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/output/literals.hpp"
#include "text/output/output_parser.hpp"

namespace {

using namespace quipu::text;
using Kind = OutputEvent::Kind;

struct Outcome {
  std::string content, reasoning, calls;
  bool operator==(const Outcome&) const = default;
};

Outcome parse(const std::shared_ptr<const OutputFormat>& format, const OutputOptions& options,
              std::string_view text, std::size_t size) {
  OutputParser parser(format, options);
  Outcome outcome;
  std::string arguments;
  std::size_t bytes = 0;
  const auto take = [&](const std::vector<OutputEvent>& events) {
    for (const OutputEvent& event : events) {
      const bool literal =
          event.kind == Kind::content || event.kind == Kind::reasoning || event.kind == Kind::markup;
      if (literal && event.text != text.substr(bytes, event.bytes)) std::abort();
      bytes += event.bytes;
      if (bytes > text.size()) std::abort();
      if (event.kind == Kind::content) outcome.content += event.text;
      if (event.kind == Kind::reasoning) outcome.reasoning += event.text;
      if (event.kind == Kind::tool_call) outcome.calls += event.id + " " + event.name + " ";
      if (event.kind == Kind::arguments) arguments += event.text;
      if (event.kind != Kind::tool_call_end) continue;
      if (event.complete && (!is_json(arguments) || arguments.front() != '{')) std::abort();
      if (!event.complete && !options.stream_arguments) std::abort();
      outcome.calls += arguments + (event.complete ? "\n" : " broken\n");
      arguments.clear();
    }
  };
  for (std::size_t i = 0; i < text.size(); i += size) take(parser.push(text.substr(i, size)));
  take(parser.finish());
  if (bytes != text.size()) std::abort();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  static const std::vector<Tool> tools = read_tools(jinja::parse_json(
      R"([{"function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"},
          "b":{"type":"integer"}}}}},{"function":{"name":"python"}}])",
      "tools"));
  const auto& formats = output_formats();
  OutputOptions options;
  options.tools = tools;
  options.start = static_cast<OutputStart>((data[1] >> 1) % 4);
  options.stream_arguments = (data[1] & 1) != 0;
  options.parse_reasoning = (data[1] & 8) == 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const auto& format = formats[data[0] % formats.size()];
  const Outcome whole = parse(format, options, text, text.size() + 1);
  if (parse(format, options, text, 1 + data[2] % 16) != whole) std::abort();
  return 0;
}

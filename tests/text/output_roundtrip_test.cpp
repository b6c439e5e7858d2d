// What a template writes for earlier calls is what its model was trained to write: taken apart it gives those
// calls, and these rendered give the same text. On the shared chat templates of real models.
#include <algorithm>
#include <stdexcept>

#include "core/error.hpp"
#include "output_cases.hpp"
#include "shared_vectors.hpp"
#include "text/conversation/chat_format.hpp"

namespace quipu {
namespace {

using text::jinja::Data;

constexpr const char* kShownTools = R"([
  {"type": "function", "function": {"name": "get_current_weather", "description": "Weather.", "parameters": {
    "type": "object", "properties": {"location": {"type": "string", "description": "City"},
    "unit": {"type": "string", "description": "C or F"}},
    "required": ["location"]}}},
  {"type": "function", "function": {"name": "search_flights", "description": "Flights.", "parameters": {
    "type": "object", "properties": {
      "origin": {"type": "string", "description": "IATA code"},
      "passengers": {"type": "array", "description": "Who", "items": {"type": "object"}},
      "direct_only": {"type": "boolean", "description": "Direct"}, "max_price": {"description": "Limit"}},
    "required": ["origin"]}}},
  {"type": "function", "function": {"name": "get_time", "description": "Time.", "parameters": {"type": "object",
    "properties": {}, "required": []}}}])";

const text::ToolCall kWeather{"abcdEF001", "get_current_weather", R"({"location": "Zürich \"Süd\", 5 < 6"})"};
const text::ToolCall kFlights{
    "abcdEF002", "search_flights",
    R"({"origin": "12", "passengers": [{"name": "Bob O'Neil", "age": 31}, {"name": "x"}], )"
    R"("direct_only": true, "max_price": null})"};
/// MiniMax M3 leaves members that are null out.
const text::ToolCall kFlightsWithoutNull{
    "abcdEF002", "search_flights",
    R"({"origin": "12", "passengers": [{"name": "Bob O'Neil", "age": 31}, {"name": "x"}], "direct_only": true})"};
const text::ToolCall kTime{"abcdEF003", "get_time", "{}"};

/// The same for any order of keys: some templates sort them.
void sort_keys(Data& value) {
  if (auto* list = std::get_if<Data::List>(&value.value))
    for (Data& item : *list) sort_keys(item);
  if (auto* mapping = std::get_if<Data::Mapping>(&value.value)) {
    for (auto& [key, item] : *mapping) sort_keys(item);
    std::sort(mapping->begin(), mapping->end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }
}
std::string normal(const std::string& json) {
  Data value = text::jinja::parse_json(json, "arguments");
  sort_keys(value);
  return text::to_json(value);
}

/// Tokens that end an answer where a call does, other than those that end a plain one.
const std::vector<std::string> kStops = {"<|tool_response>", "<SPECIAL_12>", "<|eom_id|>",
                                         "<｜hy_eos:opensource｜>"};

class RoundTrip {
 public:
  explicit RoundTrip(const std::string& source)
      : chat_(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}), format_(chat_) {
    conversation_.tools = test::tools_from(kShownTools);
    conversation_.messages = {{"user", "Mirelta"}};
  }

  const text::ChatFormat& format() const { return format_; }

  /// The text that the template shows for a message, without the words around it that are the same for every
  /// answer.
  std::string written(const text::Message& message) {
    const std::string plain = rendered({"assistant", "Dovinsa"});
    const std::size_t place = plain.rfind("Dovinsa");
    if (place == std::string::npos) throw std::runtime_error("no plain answer is shown");
    const std::string front = plain.substr(0, place), end = plain.substr(place + 7);
    const std::string all = rendered(message);
    std::size_t same = static_cast<std::size_t>(
        std::mismatch(front.begin(), front.end(), all.begin(), all.end()).first - front.begin());
    // Whole marks only.
    const std::size_t mark = all.rfind('<', same);
    if (same < front.size() && mark != std::string::npos && all.find('>', mark) >= same) same = mark;
    const std::string channel = "<|channel|>";  // a mark between answers' header and its varying word
    if (same >= channel.size() && all.compare(same - channel.size(), channel.size(), channel) == 0)
      same -= channel.size();
    const std::string address = " to=";  // the same for answers and calls, which are addressed otherwise
    if (format_.output()->channels && same >= address.size() &&
        all.compare(same - address.size(), address.size(), address) == 0)
      same -= address.size();
    std::string text = all.substr(same);
    std::size_t shared = static_cast<std::size_t>(
        std::mismatch(end.rbegin(), end.rend(), text.rbegin(), text.rend()).first - end.rbegin());
    while (shared > 0 && shared < end.size() && end[end.size() - shared] != '<') --shared;
    text.resize(text.size() - shared);
    for (const std::string& stop : kStops) text.resize(std::min(text.size(), text.find(stop)));
    const auto& reasoning = format_.output()->reasoning;
    const std::string before = all.substr(0, same);
    const auto ends_with = [&](std::string mark) {
      const auto is_space = [](char c) { return c == ' ' || c == '\n'; };
      std::string_view trimmed = before;
      while (!trimmed.empty() && is_space(trimmed.back())) trimmed.remove_suffix(1);
      while (!mark.empty() && is_space(mark.back())) mark.pop_back();
      return trimmed.size() >= mark.size() && trimmed.substr(trimmed.size() - mark.size()) == mark;
    };
    const bool thinks = !message.reasoning.empty() && text.find(message.reasoning) == 0;
    start_ = thinks || ends_with(reasoning.open) ? text::OutputStart::reasoning
             : ends_with(reasoning.close)        ? text::OutputStart::after_reasoning
                                                 : text::OutputStart::answer;
    return text;
  }

  void check(const text::Message& message, const std::string& what) {
    const std::string text = written(message);
    text::OutputOptions options;
    options.tools = conversation_.tools;
    options.start = start_;
    const text::ParsedOutput output = test::parse_all_ways(format_.output(), options, text);
    ASSERT_EQ(output.tool_calls.size(), message.tool_calls.size()) << what << ": " << text;
    for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
      EXPECT_EQ(output.tool_calls[i].name, message.tool_calls[i].name) << what;
      EXPECT_EQ(normal(output.tool_calls[i].arguments), normal(message.tool_calls[i].arguments)) << what;
    }
    const bool shows_content = text.find("Let me see.") != std::string::npos;
    EXPECT_EQ(output.content, shows_content ? message.content.text() : "") << what << ": " << text;
    const bool shows_reasoning = text.find("Need it.") != std::string::npos;
    EXPECT_EQ(output.reasoning, shows_reasoning ? message.reasoning : "") << what << ": " << text;
    text::Message again{"assistant", output.content, output.reasoning, output.tool_calls};
    for (std::size_t i = 0; i < again.tool_calls.size(); ++i)
      again.tool_calls[i].id = message.tool_calls[i].id;
    if (!shows_content) again.content = message.content;  // some templates show no words beside calls
    EXPECT_EQ(rendered(again), rendered(message)) << what;
  }

 private:
  std::string rendered(const text::Message& message) {
    text::Conversation all = conversation_;
    all.messages.push_back(message);
    text::TemplateInput input = text::adapt_conversation(all, format_.capabilities(), *format_.output());
    text::ChatRequest request;
    request.messages = std::move(input.messages);
    request.tools = std::move(input.tools);
    request.add_generation_prompt = false;
    request.variables = {{"functions", "[]"}, {"datetime", "today"}};  // Firefunction's
    return chat_.render(request).text;
  }

  text::ChatTemplate chat_;
  text::ChatFormat format_;
  text::Conversation conversation_;
  text::OutputStart start_ = text::OutputStart::answer;
};

TEST(OutputRoundTrip, CallsOfEverySharedTemplateComeBackTheSame) {
  const auto folder = test::shared_data() / "chat" / "templates";
  QUIPU_REQUIRE_SHARED(folder);
  std::vector<std::string> families;
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    RoundTrip trip(test::read_file(entry.path()));
    // Where a template shows no calls they are written into the content, in its family's way.
    const text::Capabilities& can = trip.format().capabilities();
    const std::string& family = trip.format().output()->family;
    SCOPED_TRACE(name + ", family " + family);
    ++checked;
    if (std::find(families.begin(), families.end(), family) == families.end()) families.push_back(family);
    const text::ToolCall& flights = family == "minimax m3" ? kFlightsWithoutNull : kFlights;
    trip.check({"assistant", "", "", {kWeather}}, "one call");
    trip.check({"assistant", "", "", {flights}}, "arguments of all types");
    trip.check({"assistant", "", "", {kTime}}, "no arguments");
    // This template shows calls or text, not both, and ends the answer after each call but the first.
    if (name == "deepseek-ai-DeepSeek-R1-Distill-Llama-8B") continue;
    // The first two show them as two turns, the third one such text as reasoning.
    if (name != "NVIDIA-Nemotron-Nano-v2" && name != "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B" &&
        name != "openai-gpt-oss-120b")
      trip.check({"assistant", "Let me see.", "", {kWeather}}, "text and a call");
    if (can.parallel_tool_calls || !can.tool_calls)
      trip.check({"assistant", "", "", {kWeather, flights, kTime}}, "three calls");
    if (!can.reasoning_key.empty())
      trip.check({"assistant", "", "Need it.", {kWeather}}, "reasoning and a call");
  }
  EXPECT_EQ(checked, 70);
  for (const auto& format : text::output_formats())
    EXPECT_TRUE(format->family == "phi 4" ||  // see below
                std::find(families.begin(), families.end(), format->family) != families.end())
        << "no round trip for the family " << format->family;
}

/// Phi 4's template shows no calls, and hides them behind marks that it has for tools alone.
constexpr const char* kPhi4 =
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% if m.role == 'system' and m.tools %}"
    "{{ '<|tool|>' + m.tools + '<|/tool|>' }}{% endif %}{{ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

TEST(OutputRoundTrip, CallsAreWrittenWhereATemplateShowsNone) {
  RoundTrip trip(kPhi4);
  EXPECT_EQ(trip.format().output()->family, "phi 4");
  EXPECT_FALSE(trip.format().capabilities().tool_calls);
  trip.check({"assistant", "", "", {kWeather}}, "one call");
  trip.check({"assistant", "Let me see.", "", {kFlights}}, "text and a call");
  trip.check({"assistant", "", "", {kWeather, kFlights, kTime}}, "three calls");
}

}  // namespace
}  // namespace quipu

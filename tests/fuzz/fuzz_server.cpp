// Requests: any bytes as a target, or as a body that every reader of the server is asked to read. Each may
// refuse it, with a sentence; nothing else may happen.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/access.hpp"
#include "server/chat_prompt.hpp"
#include "server/generation_fields.hpp"
#include "server/prompt_fields.hpp"
#include "tiny_model.hpp"

namespace {

using namespace quipu;

/// A loaded tiny model; its engine never runs.
const server::Served& served() {
  static const server::Served* const instance = [] {
    test::TemporaryFolder folder;
    test::TinyModelOptions tiny;
    tiny.extra.emplace_back(
        "tokenizer.chat_template",
        test::tiny::text("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"));
    test::write_tiny_model(folder / "tiny.gguf", tiny);
    auto* made = new server::Served;
    engine::EngineOptions options;
    options.context = 64;
    options.batch = 8;
    made->service =
        std::make_unique<server::EngineService>(models::Model::load(folder / "tiny.gguf"), options);
    made->prepare();
    return made;
  }();
  return *instance;
}

template <class Read>
void attempt(Read read) {
  try {
    read();
  } catch (const server::RequestError& error) {
    if (error.message().empty()) std::abort();
  } catch (const Error& error) {
    if (error.message().empty()) std::abort();
  }
}

void read_target(std::string_view text) {
  const std::size_t question = std::min(text.find('?'), text.size());
  server::http::Request request;
  request.path = server::http::percent_decode(text.substr(0, question)).value_or("");
  request.query = text.substr(std::min(question + 1, text.size()));
  request.parameter("model");
  request.headers = {{"Origin", std::string(text)}, {"Host", std::string(text.substr(0, text.size() / 2))}};
  static const server::Origins origins = [] {
    server::Origins made;
    made.allow("http://localhost:*");
    return made;
  }();
  origins.judge(request);
  // What goes into a head stays on its line.
  server::http::Response response;
  response.headers = {{"X-Test", std::string(text)}};
  const std::string head = server::http::format_head(response, server::http::Framing::length, true);
  if (head.find("\r\n\r\n") != head.size() - 4) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_target(text);
  boost::json::object body;
  bool parsed = false;
  attempt([&] {
    body = server::parse_body(text);
    parsed = true;
  });
  if (!parsed) return 0;
  const server::Fields fields(body);
  attempt([&] {
    const engine::Request request = server::read_generation_fields(fields, served());
    request.sampling.validate();  // whatever passes is in range
  });
  attempt([&] { server::read_prompts(fields, "prompt", served().model().tokenizer()); });
  attempt([&] { server::make_prompt(served(), server::read_conversation(fields)); });
  return 0;
}

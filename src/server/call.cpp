#include "server/call.hpp"

#include <utility>

namespace quipu::server {

void Call::respond(http::Response response) { responder->respond(std::move(response)); }

void Call::respond_json(std::string body, int status) {
  http::Response response;
  response.status = status;
  response.body = std::move(body);
  respond(std::move(response));
}

void Call::fail(const RequestError& error) {
  http::Response response = dialect->error(error);
  if (error.retry_after_seconds > 0)
    response.headers.push_back({"Retry-After", std::to_string(error.retry_after_seconds)});
  respond(std::move(response));
}

void Call::fail_current() { fail(current_request_error()); }

void Call::with_model(const std::string& name, std::function<void(const std::shared_ptr<Served>&)> then) {
  auto self = shared_from_this();
  context->models->acquire(
      name, [self, then = std::move(then)](std::shared_ptr<Served> served, const RequestError* error) {
        if (error != nullptr) return self->fail(*error);
        self->context->workers->post([self, then, served = std::move(served)] {
          try {
            then(served);
          } catch (...) {
            self->fail_current();
          }
        });
      });
}

void Call::generate(std::shared_ptr<Served> served, GenerationRequest wanted,
                    std::unique_ptr<AnswerFormat> format) {
  GenerationSetup setup;
  setup.served = std::move(served);
  setup.request = std::move(wanted);
  setup.format = std::move(format);
  setup.responder = responder;
  setup.user = user;
  setup.error_response = [dialect = dialect](const RequestError& error) { return dialect->error(error); };
  setup.on_end = on_summary;
  const std::int64_t window = setup.served->service->memory().context;
  std::int64_t longest = 0;
  for (const auto& prompt : setup.request.prompts)
    longest = std::max(longest, static_cast<std::int64_t>(prompt.size()));
  try {
    context->watch(start_generation(std::move(setup), *context->workers));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::context_overflow) throw;
    RequestError overflow(ErrorKind::context_overflow, error.message());
    overflow.prompt_tokens = longest;
    overflow.context = window;
    throw overflow;
  }
}

}  // namespace quipu::server

// GET /: the page for people. It speaks OpenAI's dialect to the server that gave it.
#include "server/web_page.hpp"

#include "server/dialects/dialects.hpp"

namespace quipu::server {

namespace {

/// Whether an If-None-Match header names the tag (RFC 9110, 13.1.2: weak comparison, lists, *).
bool names_tag(std::string_view header, std::string_view tag) {
  return header == "*" || header.find(tag) != std::string_view::npos;
}

void give_page(const std::shared_ptr<Call>& call) {
  http::Response response;
  response.content_type = "text/html; charset=utf-8";
  response.headers = {{"ETag", std::string(web_page_tag())},
                      {"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", web_page_policy()},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  if (names_tag(call->request.header("If-None-Match"), web_page_tag()))
    response.status = 304;
  else
    response.body = std::string(web_page());
  call->respond(std::move(response));
}

class WebPage final : public Dialect {
 public:
  std::vector<Route> routes() const override {
    // Open: the page is no secret, and asks for the key itself.
    return {{"GET", "/", give_page, /*immediate=*/true, /*needs_key=*/false},
            {"GET", "/index.html", give_page, /*immediate=*/true, /*needs_key=*/false}};
  }

  http::Response error(const RequestError& error) const override {
    http::Response response;
    response.status = error.status();
    response.content_type = "text/plain; charset=utf-8";
    response.body = error.message() + "\n";
    return response;
  }

  bool claims(std::string_view path) const override { return path == "/" || path == "/index.html"; }
};

}  // namespace

std::unique_ptr<Dialect> make_web_page_dialect() { return std::make_unique<WebPage>(); }

}  // namespace quipu::server

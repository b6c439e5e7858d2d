#include "server/web_page.hpp"

// The assembler copies the file; an array in C++ would take the compiler seconds.
asm(R"(
  .pushsection .rodata
  .global quipu_web_page_begin
  .global quipu_web_page_end
quipu_web_page_begin:
  .incbin ")" QUIPU_WEB_PAGE R"("
quipu_web_page_end:
  .byte 0
  .popsection
)");

extern "C" const char quipu_web_page_begin[], quipu_web_page_end[];

namespace quipu::server {

std::string_view web_page() {
  return {quipu_web_page_begin, static_cast<std::size_t>(quipu_web_page_end - quipu_web_page_begin)};
}

const std::string& web_page_policy() {
  static const std::string policy = [] {
    constexpr std::string_view kStart = "<meta http-equiv=\"Content-Security-Policy\" content=\"";
    const std::string_view page = web_page();
    const std::size_t at = page.find(kStart);
    // A page without one may do nothing at all.
    if (at == std::string_view::npos) return std::string("default-src 'none'; frame-ancestors 'none'");
    const std::size_t begin = at + kStart.size();
    return std::string(page.substr(begin, page.find('"', begin) - begin)) + "; frame-ancestors 'none'";
  }();
  return policy;
}

std::string_view web_page_tag() { return "\"" QUIPU_WEB_PAGE_SHA256 "\""; }

}  // namespace quipu::server

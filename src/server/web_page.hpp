// The web page that is built into the binary: webui/dist/index.html, byte for byte.
#pragma once

#include <string>
#include <string_view>

namespace quipu::server {

/// One HTML page that loads nothing else.
std::string_view web_page();

/// The Content-Security-Policy that the page states itself (webui/tools/one_page.js writes it), and that no
/// other page may frame it, which only a header can say.
const std::string& web_page_policy();

/// Strong entity tag with its quotes: the bytes' SHA-256.
std::string_view web_page_tag();

}  // namespace quipu::server

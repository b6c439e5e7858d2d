// The dialects: one line here, one file each.
#pragma once

#include <memory>
#include <vector>

#include "server/call.hpp"

namespace quipu::server {

std::unique_ptr<Dialect> make_anthropic_dialect();
std::unique_ptr<Dialect> make_ollama_dialect();
std::unique_ptr<Dialect> make_llama_cpp_dialect();
std::unique_ptr<Dialect> make_web_page_dialect();
std::unique_ptr<Dialect> make_openai_dialect();

/// All of them. The first one that claims a path answers for it, the last one where nobody does.
std::vector<std::unique_ptr<Dialect>> make_dialects();

}  // namespace quipu::server

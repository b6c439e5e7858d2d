#include "server/dialects/dialects.hpp"

namespace quipu::server {

std::vector<std::unique_ptr<Dialect>> make_dialects() {
  std::vector<std::unique_ptr<Dialect>> list;
  list.push_back(make_anthropic_dialect());
  list.push_back(make_ollama_dialect());
  list.push_back(make_llama_cpp_dialect());
  list.push_back(make_web_page_dialect());
  list.push_back(make_openai_dialect());
  return list;
}

}  // namespace quipu::server

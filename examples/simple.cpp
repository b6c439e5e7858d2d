// The shortest program: a model file and a question in, an answer out.
#include <quipu/quipu.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: simple MODEL.gguf QUESTION\n"), 2;
  try {
    quipu::Model model(argv[1]);
    quipu::Session session(model);
    quipu::GenerateOptions options;
    options.max_tokens = 64;
    options.on_text = [](std::string_view text) {
      return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    };
    if (model.has_chat_template())
      session.chat(std::vector<quipu::ChatMessage>{{"user", argv[2]}}, options);
    else
      session.generate(std::string_view(argv[2]), options);
    std::puts("");
    return 0;
  } catch (const quipu::Error& error) {
    return std::fprintf(stderr, "simple: %s\n", error.what()), 1;
  }
}

// write_tiny_model PATH: the tests' tiny model with a ChatML template.
#include <cstdio>

#include "tiny_model.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "write_tiny_model PATH\n");
    return 2;
  }
  quipu::test::TinyModelOptions options;
  options.trained_context = 1024;
  options.extra.emplace_back(
      "tokenizer.chat_template",
      quipu::test::tiny::text(
          "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"));
  quipu::test::write_tiny_model(argv[1], options);
  return 0;
}

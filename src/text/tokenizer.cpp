#include "text/tokenizer.hpp"

#include "core/error.hpp"
#include "text/families.hpp"
#include "text/token_index.hpp"

namespace quipu::text {

std::unique_ptr<Tokenizer> Tokenizer::from_metadata(const gguf::Metadata& metadata) {
  const std::string& model = metadata.get_string("tokenizer.ggml.model");
  if (model == "gpt2" || model == "gemma4") return make_bpe(metadata);
  if (model == "llama") return make_spm(metadata);
  if (model == "t5") return make_unigram(metadata);
  if (model == "bert") return make_wordpiece(metadata);
  fail(ErrorCode::unsupported,
       "{}: tokenizer.ggml.model is \"{}\", quipu knows gpt2, gemma4, llama, t5 and bert", metadata.origin(),
       printable(model));
}

std::optional<Token> Tokenizer::find(std::string_view text) const {
  const Token token = index_->find(texts_, text);
  if (token < 0) return std::nullopt;
  return token;
}

}  // namespace quipu::text

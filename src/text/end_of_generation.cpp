// Which tokens end a turn. Files name EOS, sometimes EOT and EOM; the others are known by their text.
#include <algorithm>
#include <array>
#include <string_view>

#include "core/log.hpp"
#include "text/vocabulary.hpp"

namespace quipu::text {

namespace {

// Texts that mean the end of a turn in every model that has them.
constexpr std::array<std::string_view, 22> kEndOfTurn = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
    "[e~[",
    "</s>",
};
// Padding and separators of fill-in-the-middle training: what follows is another file.
constexpr std::array<std::string_view, 11> kEndOfFile = {
    "<|fim_pad|>", "<fim-pad>",     "<fim_pad>",  "<PAD>",  "[PAD]",        "<|fim_repo|>",
    "<fim-repo>",  "<|repo_name|>", "<reponame>", "<REPO>", "<|file_sep|>",
};

}  // namespace

void VocabularyTokenizer::find_end_of_generation(const gguf::Metadata& metadata) {
  std::vector<Token> ends;
  const auto has = [&](std::string_view text) { return index_->find(texts_, text) >= 0; };
  // Where these exist, <|end|> closes a message of the model and not its turn …
  const bool channels = (has("<|return|>") && has("<|call|>")) || (has("<|calls|>") && has("<|flush|>"));
  // … and </s> is a mark-up token.
  const bool markup = has("<|tool_response>");
  for (const std::string_view text : kEndOfTurn) {
    const Token token = index_->find(texts_, text);
    if (token < 0 || (channels && text == "<|end|>")) continue;
    TokenType& type = types_[static_cast<std::size_t>(token)];
    if (text == "</s>" && (markup || type == TokenType::normal)) continue;
    if (type == TokenType::normal) {
      log::info("{}: token {} \"{}\" ends a turn but is typed as normal text; it is read as a control token",
                metadata.origin(), token, text);
      type = TokenType::control;
    }
    ends.push_back(token);
  }
  for (const std::string_view text : kEndOfFile) {
    const Token token = index_->find(texts_, text);
    if (token >= 0 && type(token) == TokenType::control) ends.push_back(token);
  }
  for (const char* name : {"eom", "fim_pad", "fim_rep", "fim_sep"}) {
    const auto id = metadata.try_uint(fmt::format("tokenizer.ggml.{}_token_id", name));
    if (id && *id < texts_.size()) ends.push_back(static_cast<Token>(*id));
  }
  if (eos) ends.push_back(*eos);
  if (eot) ends.push_back(*eot);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  end_of_generation_ = std::move(ends);

  if (!eot) {
    for (const std::string_view text : {"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<turn|>", "<|end|>"}) {
      const Token token = index_->find(texts_, text);
      if (token >= 0 && is_end_of_generation(token)) {
        eot = token;
        break;
      }
    }
  }
}

bool Tokenizer::is_end_of_generation(Token token) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), token);
}

}  // namespace quipu::text

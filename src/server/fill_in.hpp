// Prompts that ask for what stands between two texts, by the model's own fill-in-the-middle tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "server/prompt_fields.hpp"

namespace quipu::server {

struct FillInTokens {
  text::Token prefix, suffix, middle;
  std::optional<text::Token> repository, file;
};

/// The tokens that the file names (tokenizer.ggml.fim_pre_token_id …), else those of known names; nothing
/// when the model has none.
std::optional<FillInTokens> fill_in_tokens(const models::Model& model);

struct FillIn {
  struct File {
    std::string name, text;
  };
  std::string prefix, suffix;
  std::string begun;        ///< of the middle
  std::vector<File> files;  ///< that the text may refer to
};

/// [BOS] [repository and files] PREFIX prefix SUFFIX suffix MIDDLE begun. Nothing in the texts is read as a
/// control token.
Prompt fill_in_prompt(const FillInTokens& tokens, const FillIn& fill_in, const text::Tokenizer& tokenizer);

}  // namespace quipu::server

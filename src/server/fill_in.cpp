#include "server/fill_in.hpp"

#include <fmt/format.h>

#include <initializer_list>

namespace quipu::server {

namespace {

struct FillInNames {
  std::initializer_list<const char*> keys;  // behind "tokenizer.ggml."
  std::initializer_list<const char*> texts;
};
// Texts: the vocabularies of Qwen Coder, StarCoder and Granite, DeepSeek Coder, CodeLlama, GLM.
const FillInNames kPrefix{{"fim_pre_token_id", "prefix_token_id"},
                          {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<｜fim▁begin｜>", "▁<PRE>",
                           "<PRE>", "<|code_prefix|>"}};
const FillInNames kSuffix{{"fim_suf_token_id", "suffix_token_id"},
                          {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<｜fim▁hole｜>", "▁<SUF>",
                           "<SUF>", "<|code_suffix|>"}};
const FillInNames kMiddle{{"fim_mid_token_id", "middle_token_id"},
                          {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<｜fim▁end｜>", "▁<MID>",
                           "<MID>", "<|code_middle|>"}};
const FillInNames kRepository{{"fim_rep_token_id"},
                              {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>", "<REPO>"}};
const FillInNames kFile{{"fim_sep_token_id"}, {"<|file_sep|>"}};

std::optional<text::Token> find_token(const models::Model& model, const FillInNames& names) {
  const text::Tokenizer& tokenizer = model.tokenizer();
  for (const char* key : names.keys) {
    const auto id = model.file().metadata().try_uint(fmt::format("tokenizer.ggml.{}", key));
    if (id && *id < tokenizer.size()) return static_cast<text::Token>(*id);
  }
  for (const char* text : names.texts) {
    const auto token = tokenizer.find(text);
    if (token && tokenizer.type(*token) != text::TokenType::normal) return token;
  }
  return std::nullopt;
}

}  // namespace

std::optional<FillInTokens> fill_in_tokens(const models::Model& model) {
  const auto prefix = find_token(model, kPrefix), suffix = find_token(model, kSuffix);
  const auto middle = find_token(model, kMiddle);
  if (!prefix || !suffix || !middle) return std::nullopt;
  return FillInTokens{*prefix, *suffix, *middle, find_token(model, kRepository), find_token(model, kFile)};
}

Prompt fill_in_prompt(const FillInTokens& tokens, const FillIn& fill_in, const text::Tokenizer& tokenizer) {
  Prompt prompt;
  const auto control = [&](text::Token token) {
    prompt.tokens.push_back(token);
    prompt.text += tokenizer.piece(token, true);
  };
  const auto plain = [&](const std::string& text) {
    const auto encoded = tokenizer.encode(text, {false, false});
    prompt.tokens.insert(prompt.tokens.end(), encoded.begin(), encoded.end());
    prompt.text += text;
  };
  if (tokenizer.add_bos && tokenizer.bos) control(*tokenizer.bos);
  if (!fill_in.files.empty() && tokens.repository && tokens.file) {
    control(*tokens.repository);
    plain("project\n");
  }
  for (const FillIn::File& file : fill_in.files) {
    if (tokens.file) {
      control(*tokens.file);
      plain(file.name + "\n" + file.text);
    } else {
      plain(fmt::format("{}\n{}\n\n", file.name, file.text));
    }
  }
  control(tokens.prefix);
  plain(fill_in.prefix);
  control(tokens.suffix);
  plain(fill_in.suffix);
  control(tokens.middle);
  plain(fill_in.begun);
  return prompt;
}

}  // namespace quipu::server

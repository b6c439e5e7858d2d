// Which tokens begin and end a text, and the chat template.
#pragma once

#include <filesystem>

#include "convert/json_file.hpp"
#include "convert/tokenizer/vocabulary.hpp"
#include "formats/gguf/gguf.hpp"

namespace quipu::convert {

/// The files that say it; each may be null.
struct SpecialTokenFiles {
  const JsonFile* tokenizer = nullptr;
  const JsonFile* tokenizer_config = nullptr;
  const JsonFile* special_tokens_map = nullptr;
  const JsonFile* generation_config = nullptr;
  const JsonFile& config;
};

/// Sets the ids of special tokens and whether BOS, EOS and SEP are added.
void add_special_tokens(const SpecialTokenFiles& files, const Vocabulary& vocabulary,
                        gguf::Metadata& metadata, std::vector<std::string>& warnings);

/// Sets tokenizer.chat_template, and one key a name where there are several.
void add_chat_template(const std::filesystem::path& folder, const JsonFile* tokenizer_config,
                       gguf::Metadata& metadata);

}  // namespace quipu::convert

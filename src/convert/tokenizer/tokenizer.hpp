// The tokenizer files of a Hugging Face folder as the `tokenizer.*` keys of GGUF.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convert/json_file.hpp"
#include "formats/gguf/gguf.hpp"

namespace quipu::convert {

/// What the files of a tokenizer do not say.
struct TokenizerNames {
  std::string pre;             ///< the pre-tokenizer; empty: it is recognised
  std::string_view plain_bpe;  ///< what BPE on plain text becomes (Family::plain_bpe)
};

/// Reads tokenizer.json, tokenizer.model, vocab.json with merges.txt or vocab.txt (the first that is there),
/// with tokenizer_config.json, added_tokens.json, special_tokens_map.json, generation_config.json and the
/// chat template. `rows` is the embedding's: the vocabulary is filled up to it with unused tokens. Throws
/// `Error`: no tokenizer, more tokens than rows, a pre-tokenizer or normalizer that quipu has no equal of.
void add_tokenizer(const std::filesystem::path& folder, const JsonFile& config, std::size_t rows,
                   const TokenizerNames& names, gguf::Metadata& metadata, std::vector<std::string>& warnings);

}  // namespace quipu::convert

// A vocabulary while it is put together from a folder's files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/json_file.hpp"
#include "formats/gguf/gguf.hpp"
#include "text/tokenizer.hpp"

namespace quipu::convert {

class Vocabulary {
 public:
  /// At most `rows` tokens.
  explicit Vocabulary(std::size_t rows) : rows_(rows) {}

  std::string model;  ///< tokenizer.ggml.model
  std::string pre = "default";
  std::vector<std::string> merges;
  bool has_scores = false;
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_spaces;
  std::string charsmap;

  /// A token, or another text and type for one that is there. Throws `Error` (bad_file) that names `file`
  /// when the id is not below the number of rows.
  void place(std::uint64_t id, std::string_view text, text::TokenType type, float score,
             const std::string& file);
  /// Fills up with unused tokens to the number of rows.
  void fill();
  /// Normal tokens get their GGUF text and the keys are set.
  void write(gguf::Metadata& metadata) const;

  std::size_t size() const { return tokens_.size(); }
  const std::string& text(std::size_t id) const { return tokens_[id].text; }
  text::TokenType type(std::size_t id) const { return tokens_[id].type; }
  void set_text(std::size_t id, std::string text) { tokens_[id].text = std::move(text); }
  void set_type(std::size_t id, text::TokenType type) { tokens_[id].type = type; }
  void set_score(std::size_t id, float score) { tokens_[id].score = score; }
  bool is_placed(std::size_t id) const { return id < tokens_.size() && tokens_[id].placed; }
  /// By the text it was placed with.
  std::optional<std::size_t> find(std::string_view text) const;

 private:
  struct Entry {
    std::string text;
    text::TokenType type = text::TokenType::unused;
    float score = 0;
    bool placed = false;
  };
  std::size_t rows_;
  std::vector<Entry> tokens_;
  std::unordered_map<std::string, std::size_t> ids_;
};

/// Whether an added token that is not marked special reads like one. Source: llama.cpp's converter.
bool looks_special(std::string_view text);

/// Overlays the added tokens of tokenizer.json, tokenizer_config.json and added_tokens.json; each may be
/// null.
void place_added_tokens(Vocabulary& vocabulary, const JsonFile* tokenizer, const JsonFile* tokenizer_config,
                        const JsonFile* added_tokens);

/// From tokenizer.json: byte-level and SentencePiece-like BPE, Unigram, WordPiece. `pre` as in add_tokenizer.
void read_tokenizer_json(const JsonFile& tokenizer, const std::string& pre, std::string_view plain_bpe,
                         Vocabulary& vocabulary);

}  // namespace quipu::convert

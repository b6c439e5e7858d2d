// What all tokenizer families share: the vocabulary, its special tokens, and the frame of encode and decode.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.hpp"
#include "text/token_index.hpp"
#include "text/tokenizer.hpp"

namespace quipu::text {

/// Values a family has where the file is silent; ids outside of the vocabulary mean none.
struct FamilyDefaults {
  Token bos = -1, eos = -1, unknown = -1, separator = -1, padding = -1, cls = -1, mask = -1;
  bool add_bos = false, add_eos = false, add_space_prefix = false;
  bool needs_scores = false;
  bool cls_and_separator = false;  ///< CLS and SEP stand where others have BOS and EOS
};

/// Undoes the space prefix: drops the space in front of `bytes`, the piece of `token`, when the prefix rule
/// put it there. `prefixed` is the state between calls: true at the start and after special tokens.
void strip_prefix(const Tokenizer& tokenizer, Token token, bool& prefixed, std::string& bytes);

class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<Token> encode(std::string_view text, const EncodeOptions& options) const final;
  std::string piece(Token token, bool special) const final;
  std::string decode(std::span<const Token> tokens, bool special) const final;

 protected:
  VocabularyTokenizer(const gguf::Metadata& metadata, const FamilyDefaults& defaults);

  /// Appends the ids of a text without special tokens. `prefixed`: the text opens the input or follows a
  /// special token, where the space prefix goes.
  virtual void encode_text(std::string_view text, bool prefixed, std::vector<Token>& out) const = 0;
  /// Bytes of a token that is neither control, unknown nor user-defined.
  virtual std::string plain_piece(Token token) const = 0;

  /// Id of a token that a plain text may become: not control, unknown or byte. -1 when there is none.
  Token find_plain(std::string_view text) const { return find_plain(text, TextIndex::hash_of(text)); }
  Token find_plain(std::string_view text, std::uint64_t hash) const {
    const Token token = index_->find(texts_, text, hash);
    return token >= 0 && is_plain(token) ? token : -1;
  }
  const TextIndex& index() const { return *index_; }
  bool is_plain(Token token) const {
    const TokenType kind = type(token);
    return kind != TokenType::control && kind != TokenType::unknown && kind != TokenType::byte;
  }
  /// The value of a byte token `<0x0A>`; -1 for any other text.
  static int byte_value(std::string_view text);
  /// Ids of the byte tokens <0x00> … <0xFF>, -1 where there is none.
  std::vector<Token> byte_tokens() const;

  std::vector<float> scores_;  // empty when the file has none

 private:
  void load_tokens(const gguf::Metadata& metadata);
  void load_types(const gguf::Metadata& metadata);
  void load_scores(const gguf::Metadata& metadata, bool required);
  void load_special_ids(const gguf::Metadata& metadata, const FamilyDefaults& defaults);
  void find_end_of_generation(const gguf::Metadata& metadata);
  void load_stripping(const gguf::Metadata& metadata);
  void build_matchers(const gguf::Metadata& metadata);

  ByteTrie user_defined_;  // matched always
  ByteTrie all_special_;   // with control and unknown tokens, matched when special tokens are parsed
  std::vector<Token> strips_left_, strips_right_;  // take the white space before, after them; sorted
};

}  // namespace quipu::text

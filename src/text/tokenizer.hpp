// Text <-> token ids, from the tokenizer.ggml.* metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_list.hpp"
#include "formats/gguf/gguf.hpp"
#include "text/text_range.hpp"

namespace quipu::text {

using Token = std::int32_t;

enum class TokenType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct EncodeOptions {
  bool add_special = true;    ///< add BOS/EOS (CLS/SEP) as the model asks
  bool parse_special = true;  ///< read control tokens in the text as tokens; false: as plain text
  /// With parse_special: only where these ranges hold the whole token. Ascending and apart; none: anywhere.
  std::optional<std::span<const TextRange>> special_within = std::nullopt;
};

/// Immutable after construction; all methods may be called from any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Builds the tokenizer the metadata describes. Throws `Error` (bad_file, unsupported) that names the key
  /// at fault.
  static std::unique_ptr<Tokenizer> from_metadata(const gguf::Metadata& metadata);

  /// Token ids of `text` (any bytes; invalid UTF-8 is encoded through byte tokens or U+FFFD as the family
  /// does). Time is near-linear in the text's length; the stack does not grow with it. When add_special would
  /// put a BOS in front of a text that already starts with one (parse_special on), only one is kept.
  virtual std::vector<Token> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  /// Bytes of one token as they appear inside a text; empty for control tokens unless `special`.
  virtual std::string piece(Token token, bool special = false) const = 0;
  /// Text of a token sequence. The space that the prefix rule put in front of the first word is removed
  /// again.
  virtual std::string decode(std::span<const Token> tokens, bool special = false) const = 0;

  std::size_t size() const { return texts_.size(); }
  /// The token as stored in the vocabulary (with `Ġ`, `▁` …).
  std::string_view text(Token token) const { return texts_[static_cast<std::size_t>(token)]; }
  TokenType type(Token token) const { return types_[static_cast<std::size_t>(token)]; }
  std::optional<Token> find(std::string_view text) const;
  /// True when generation must stop at this token: EOS, EOT, EOM and the end-of-turn tokens known by name.
  bool is_end_of_generation(Token token) const;

  std::optional<Token> bos, eos, eot, unknown, separator, padding, cls, mask;
  bool add_bos = false, add_eos = false;
  /// The tokenizer family as the file names it: "gpt2", "llama", "bert", "t5", "gemma4".
  std::string model;
  /// Strips one leading space on decode (the family puts one in front on encode).
  bool add_space_prefix = false;

 protected:
  TextList texts_;
  std::vector<TokenType> types_;
  std::vector<Token> end_of_generation_;  // sorted
  struct Index;
  std::shared_ptr<const Index> index_;  // text -> id
};

/// Turns a stream of tokens into text that is valid to print at every step: bytes of an unfinished UTF-8
/// character are held back until it is whole; bytes that can never become one are replaced by U+FFFD. One per
/// stream.
class StreamDecoder {
 public:
  /// `after` is the token before the stream's first one, when the stream continues a text: then a space in
  /// front of the first word is text, and not the prefix that the family puts at the start.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false, std::optional<Token> after = {});
  /// Text that became printable with this token (may be empty).
  std::string push(Token token);
  /// What is still held back, as U+FFFD where incomplete.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  bool at_start_ = true;
  std::string pending_;
};

}  // namespace quipu::text

// Byte-pair encoding with a table of merges: byte-level (GPT-2 and its many heirs), and the form on plain
// UTF-8 with U+2581 for spaces that Gemma 4 uses.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/log.hpp"
#include "text/byte_alphabet.hpp"
#include "text/families.hpp"
#include "text/merges.hpp"
#include "text/pretokenizer.hpp"
#include "text/unicode.hpp"
#include "text/vocabulary.hpp"

namespace quipu::text {

namespace {

constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

std::pair<std::string_view, std::string_view> merge_parts(const gguf::Metadata& metadata,
                                                          const TextList& merges, std::size_t i) {
  const std::string_view merge = merges[i];
  const std::size_t space = merge.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != std::string_view::npos)
    fail(ErrorCode::bad_file, "{}: {}[{}] is \"{}\", expected two parts with one space between them",
         metadata.origin(), kMergesKey, i, printable(merge));
  return {merge.substr(0, space), merge.substr(space + 1)};
}

class Bpe final : public VocabularyTokenizer {
 public:
  Bpe(const gguf::Metadata& metadata, const FamilyDefaults& defaults, const PretokenizerRule& rule)
      : VocabularyTokenizer(metadata, defaults),
        pretokenizer_(rule),
        byte_level_(rule.byte_level),
        ignore_merges_(rule.ignore_merges),
        whole_newline_runs_(rule.whole_newline_runs) {
    load_merges(metadata);
    load_bytes();
  }

 protected:
  void encode_text(std::string_view text, bool prefixed, std::vector<Token>& out) const override;
  std::string plain_piece(Token token) const override {
    return byte_level_ ? from_byte_alphabet(text(token)) : unescape_spaces(text(token));
  }

 private:
  void load_merges(const gguf::Metadata& metadata);
  void load_bytes();
  std::uint32_t symbol(std::string_view text, std::uint64_t hash);
  std::uint32_t symbol(std::string_view text) { return symbol(text, TextIndex::hash_of(text)); }
  /// Whether this symbol, and no other one, is `left` and `right` in a row; true only for tokens.
  bool joins(std::uint32_t symbol, std::string_view left, std::string_view right) const;
  bool encode_whole(std::string_view piece, std::vector<Token>& out) const;
  bool is_invalid_without_tokens(std::string_view piece) const;
  void read_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  void write_tokens(std::string_view piece, const std::vector<Symbol>& symbols,
                    std::vector<Token>& out) const;

  Pretokenizer pretokenizer_;
  bool byte_level_, ignore_merges_, whole_newline_runs_;
  MergeTable merges_;
  // Symbols are token ids; texts that occur in merges and are no tokens get the numbers after the last id.
  TextList extra_texts_;
  TextIndex extra_index_;
  std::array<std::uint32_t, 256> byte_symbols_{};  // symbol of a single byte (byte-level)
  bool lacks_bytes_ = false;
  std::vector<Token> byte_fallback_;  // token of a byte no merge made a token of; -1: none
};

std::uint32_t Bpe::symbol(std::string_view text, std::uint64_t hash) {
  const Token token = find_plain(text, hash);
  if (token >= 0) return static_cast<std::uint32_t>(token);
  const std::int32_t known = extra_index_.find(extra_texts_, text);
  if (known >= 0) return static_cast<std::uint32_t>(size()) + static_cast<std::uint32_t>(known);
  extra_texts_.push_back(text);
  const auto index = static_cast<std::uint32_t>(extra_texts_.size() - 1);
  extra_index_.insert(extra_texts_, index);
  return static_cast<std::uint32_t>(size()) + index;
}

bool Bpe::joins(std::uint32_t symbol, std::string_view left, std::string_view right) const {
  if (symbol >= size() || index().distinct() != size() || !is_plain(static_cast<Token>(symbol))) return false;
  const std::string_view whole = text(static_cast<Token>(symbol));
  return whole.size() == left.size() + right.size() && whole.starts_with(left) && whole.ends_with(right);
}

void Bpe::load_merges(const gguf::Metadata& metadata) {
  const TextList* merges = metadata.try_strings(kMergesKey);
  if (merges == nullptr)
    fail(ErrorCode::bad_file, "{}: missing key {}: a tokenizer of model \"{}\" needs merges",
         metadata.origin(), kMergesKey, printable(model));
  if (merges->size() > std::numeric_limits<std::int32_t>::max() / 2)
    fail(ErrorCode::bad_file, "{}: {} has {} elements, too many", metadata.origin(), kMergesKey,
         merges->size());
  merges_ = MergeTable(merges->size());
  constexpr std::size_t kTogether = TextIndex::kTogether;
  struct Part {
    std::string_view text;
    std::uint64_t hash;
    std::uint32_t symbol;
  };
  std::array<std::array<Part, 2>, kTogether> parts;
  std::uint32_t merged = 0;
  std::string joined;
  for (std::size_t begin = 0; begin < merges->size(); begin += kTogether) {
    const std::size_t count = std::min(kTogether, merges->size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      std::tie(parts[i][0].text, parts[i][1].text) = merge_parts(metadata, *merges, begin + i);
      for (Part& part : parts[i]) {
        part.hash = TextIndex::hash_of(part.text);
        index().prefetch(part.hash);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      for (Part& part : parts[i]) part.symbol = symbol(part.text, part.hash);
      merges_.prefetch(parts[i][0].symbol, parts[i][1].symbol);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [left, right] = parts[i];
      // The tokens that merges make mostly follow each other as the merges do.
      if (!joins(++merged, left.text, right.text)) {
        joined.assign(left.text);
        joined += right.text;
        merged = symbol(joined);
      }
      merges_.add(left.symbol, right.symbol, {static_cast<std::uint32_t>(begin + i), merged});
    }
  }
}

void Bpe::load_bytes() {
  if (!byte_level_) {
    byte_fallback_ = byte_tokens();
    lacks_bytes_ = std::find(byte_fallback_.begin(), byte_fallback_.end(), -1) != byte_fallback_.end();
    return;
  }
  byte_fallback_.assign(256, -1);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_symbols_[byte] = symbol(byte_characters()[byte]);
    if (byte_symbols_[byte] < size()) byte_fallback_[byte] = static_cast<Token>(byte_symbols_[byte]);
  }
  lacks_bytes_ = std::find(byte_fallback_.begin(), byte_fallback_.end(), -1) != byte_fallback_.end();
}

/// An invalid UTF-8 sequence, a piece of its own, with a byte that the vocabulary cannot write (some leave
/// out the bytes that UTF-8 never has): it becomes U+FFFD.
bool Bpe::is_invalid_without_tokens(std::string_view piece) const {
  return valid_prefix(piece) == 0 && std::any_of(piece.begin(), piece.end(), [&](char c) {
           return byte_fallback_[static_cast<unsigned char>(c)] < 0;
         });
}

bool Bpe::encode_whole(std::string_view piece, std::vector<Token>& out) const {
  const bool newlines = whole_newline_runs_ && piece.find_first_not_of('\n') == std::string_view::npos;
  if (!ignore_merges_ && !newlines) return false;
  const Token token = byte_level_ ? find_plain(to_byte_alphabet(piece)) : find_plain(piece);
  if (token < 0) return false;
  out.push_back(token);
  return true;
}

void Bpe::read_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.clear();
  if (byte_level_) {
    for (std::size_t i = 0; i < piece.size(); ++i)
      symbols.push_back({byte_symbols_[static_cast<unsigned char>(piece[i])], static_cast<std::uint32_t>(i)});
    return;
  }
  std::size_t position = 0;
  while (position < piece.size()) {
    const std::size_t length = decode_utf8(piece, position).length;
    const std::string_view character = piece.substr(position, length);
    Symbol symbol{MergeTable::kNoSymbol, static_cast<std::uint32_t>(position)};
    const Token token = find_plain(character);
    if (token >= 0) {
      symbol.id = static_cast<std::uint32_t>(token);
    } else if (const std::int32_t extra = extra_index_.find(extra_texts_, character); extra >= 0) {
      symbol.id = static_cast<std::uint32_t>(size()) + static_cast<std::uint32_t>(extra);
    }
    symbols.push_back(symbol);
    position += length;
  }
}

void Bpe::write_tokens(std::string_view piece, const std::vector<Symbol>& symbols,
                       std::vector<Token>& out) const {
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].id < size()) {
      out.push_back(static_cast<Token>(symbols[i].id));
      continue;
    }
    // No token has this text: its bytes, and where even those are missing the unknown token.
    const std::size_t end = i + 1 < symbols.size() ? symbols[i + 1].begin : piece.size();
    for (std::size_t j = symbols[i].begin; j < end; ++j) {
      const Token byte = byte_fallback_[static_cast<unsigned char>(piece[j])];
      if (byte >= 0)
        out.push_back(byte);
      else if (unknown)
        out.push_back(*unknown);
    }
  }
}

void Bpe::encode_text(std::string_view text, bool, std::vector<Token>& out) const {
  std::string escaped;
  if (!byte_level_) {
    escaped = escape_spaces(text);
    text = escaped;
  }
  std::vector<std::string_view> pieces;
  pretokenizer_.split(text, pieces);
  std::vector<Symbol> symbols;
  MergeScratch scratch;
  for (std::string_view piece : pieces) {
    if (lacks_bytes_ && is_invalid_without_tokens(piece)) piece = kReplacement;
    if (encode_whole(piece, out)) continue;
    read_symbols(piece, symbols);
    merge_symbols(merges_, symbols, scratch);
    write_tokens(piece, symbols, out);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe(const gguf::Metadata& metadata) {
  const std::optional<std::string> pre = metadata.get_string("tokenizer.ggml.model") == "gemma4"
                                             ? "gemma4"
                                             : metadata.try_string("tokenizer.ggml.pre");
  if (!pre)
    log::warning(
        "{}: tokenizer.ggml.pre is missing; the text is split by the rule of GPT-2, which may not be this "
        "model's",
        metadata.origin());
  const PretokenizerRule* rule = find_pretokenizer_rule(pre.value_or("gpt-2"));
  if (rule == nullptr)
    fail(ErrorCode::unsupported, "{}: tokenizer.ggml.pre is \"{}\", quipu knows {}", metadata.origin(),
         printable(*pre), known_pretokenizer_names());
  FamilyDefaults defaults;
  defaults.add_bos = rule->add_bos;
  return std::make_unique<Bpe>(metadata, defaults, *rule);
}

}  // namespace quipu::text

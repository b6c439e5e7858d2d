// Unigram language model (Kudo 2018): the segmentation with the highest sum of token scores, by Viterbi.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "text/charsmap.hpp"
#include "text/families.hpp"
#include "text/unicode.hpp"
#include "text/vocabulary.hpp"

namespace quipu::text {

namespace {

/// A character without a token costs this much more than the worst token (SentencePiece's kUnkPenalty).
constexpr double kUnknownPenalty = 10.0;
/// The search looks this far ahead at each character, so the length bounds the work.
constexpr std::size_t kMaxTokenBytes = 1024;

class Unigram final : public VocabularyTokenizer {
 public:
  Unigram(const gguf::Metadata& metadata, const FamilyDefaults& defaults);

 protected:
  void encode_text(std::string_view text, bool prefixed, std::vector<Token>& out) const override;
  std::string plain_piece(Token token) const override { return unescape_spaces(text(token)); }

 private:
  std::string normalize(std::string_view text) const;
  void load_charsmap(const gguf::Metadata& metadata);
  void write(std::string_view text, Token token, std::vector<Token>& out) const;

  ByteTrie tokens_;
  Charsmap charsmap_;
  bool remove_extra_spaces_;
  bool byte_fallback_ = false;  // all 256 byte tokens are there
  std::vector<Token> bytes_;
  double unknown_score_ = 0;
};

Unigram::Unigram(const gguf::Metadata& metadata, const FamilyDefaults& defaults)
    : VocabularyTokenizer(metadata, defaults),
      remove_extra_spaces_(metadata.try_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false)),
      bytes_(byte_tokens()) {
  load_charsmap(metadata);
  byte_fallback_ = std::find(bytes_.begin(), bytes_.end(), -1) == bytes_.end();
  if (!unknown && !byte_fallback_)
    fail(ErrorCode::bad_file,
         "{}: tokenizer.ggml.unknown_token_id names no token, and there are no 256 byte tokens either",
         metadata.origin());
  double lowest = std::numeric_limits<double>::max();
  std::vector<std::pair<std::string_view, Token>> entries;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (!is_plain(token) || texts_[i].empty()) continue;
    if (texts_[i].size() > kMaxTokenBytes)
      fail(ErrorCode::bad_file, "{}: tokenizer.ggml.tokens[{}] has {} bytes, at most {} are allowed",
           metadata.origin(), i, texts_[i].size(), kMaxTokenBytes);
    entries.emplace_back(texts_[i], token);
    if (type(token) == TokenType::normal) lowest = std::min<double>(lowest, scores_[i]);
  }
  if (lowest == std::numeric_limits<double>::max()) lowest = 0;
  unknown_score_ = lowest - kUnknownPenalty;
  tokens_ = ByteTrie(std::move(entries));
}

void Unigram::load_charsmap(const gguf::Metadata& metadata) {
  constexpr std::string_view key = "tokenizer.ggml.precompiled_charsmap";
  const gguf::Array* array = metadata.try_array(key);
  if (array == nullptr) return;
  std::vector<std::uint8_t> blob;
  blob.reserve(array->size());
  const auto* bytes = std::get_if<std::vector<std::uint64_t>>(&array->items);
  const auto* signed_bytes = std::get_if<std::vector<std::int64_t>>(&array->items);
  if (array->element_type == gguf::ValueType::u8 && bytes != nullptr) {
    for (const std::uint64_t byte : *bytes) blob.push_back(static_cast<std::uint8_t>(byte));
  } else if (array->element_type == gguf::ValueType::i8 && signed_bytes != nullptr) {
    for (const std::int64_t byte : *signed_bytes) blob.push_back(static_cast<std::uint8_t>(byte));
  } else {
    fail(ErrorCode::bad_file, "{}: {} is an array of {}, expected u8 or i8", metadata.origin(), key,
         gguf::to_string(array->element_type));
  }
  if (!blob.empty()) charsmap_ = Charsmap(std::move(blob), metadata.origin());
}

/// Replacements, white space and space prefix as SentencePiece's normaliser; spaces become U+2581.
std::string Unigram::normalize(std::string_view text) const {
  const std::string mapped = charsmap_.normalize(text);
  std::string_view rest = mapped;
  if (remove_extra_spaces_) {
    const std::size_t first = rest.find_first_not_of(' ');
    if (first == std::string_view::npos) return {};
    rest = rest.substr(first, rest.find_last_not_of(' ') - first + 1);
  }
  std::string out;
  out.reserve(rest.size() + rest.size() / 2 + kSpaceMark.size());
  if (add_space_prefix && !rest.empty()) out += kSpaceMark;
  bool after_space = false;
  for (const char c : rest) {
    if (c != ' ')
      out.push_back(c);
    else if (!remove_extra_spaces_ || !after_space)
      out += kSpaceMark;
    after_space = c == ' ';
  }
  return out;
}

void Unigram::write(std::string_view text, Token token, std::vector<Token>& out) const {
  if (token >= 0) {
    out.push_back(token);
  } else if (byte_fallback_) {
    for (const char c : text) out.push_back(bytes_[static_cast<unsigned char>(c)]);
  } else {
    out.push_back(*unknown);
  }
}

void Unigram::encode_text(std::string_view raw, bool, std::vector<Token>& out) const {
  const std::string text = normalize(raw);
  struct Best {
    double score = 0;
    std::uint32_t begin = 0;  // where the last token of the best path to here begins
    Token token = -1;         // -1: a character without a token
    bool reached = false;
  };
  std::vector<Best> best(text.size() + 1);
  best[0].reached = true;
  const auto offer = [&](std::size_t begin, std::size_t end, Token token, double score) {
    Best& there = best[end];
    if (!there.reached || score > there.score)
      there = {score, static_cast<std::uint32_t>(begin), token, true};
  };
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t character = decode_utf8(text, position).length;
    const double score = best[position].score;
    bool single = false;  // this character alone is a token
    std::uint32_t node = tokens_.start(static_cast<unsigned char>(text[position]));
    for (std::size_t length = 1; node != ByteTrie::kNone; ++length) {
      const Token token = tokens_.value(node);
      if (token >= 0) {
        offer(position, position + length, token,
              score + static_cast<double>(scores_[static_cast<std::size_t>(token)]));
        single = single || length == character;
      }
      if (position + length == text.size()) break;
      node = tokens_.next(node, static_cast<unsigned char>(text[position + length]));
    }
    if (!single) offer(position, position + character, -1, score + unknown_score_);
    position += character;
  }

  struct Span {
    std::size_t begin, end;
    Token token;
  };
  std::vector<Span> path;
  for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
    const Best& last = best[end];
    // Neighbouring characters without a token are one unknown.
    if (last.token < 0 && !path.empty() && path.back().token < 0)
      path.back().begin = last.begin;
    else
      path.push_back({last.begin, end, last.token});
  }
  const std::string_view view = text;
  for (auto span = path.rbegin(); span != path.rend(); ++span)
    write(view.substr(span->begin, span->end - span->begin), span->token, out);
}

}  // namespace

std::unique_ptr<Tokenizer> make_unigram(const gguf::Metadata& metadata) {
  FamilyDefaults defaults;
  defaults.eos = 1;
  defaults.unknown = 2;
  defaults.padding = 0;
  defaults.add_eos = true;
  defaults.needs_scores = true;
  return std::make_unique<Unigram>(metadata, defaults);
}

}  // namespace quipu::text

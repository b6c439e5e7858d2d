#include "text/vocabulary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"

namespace quipu::text {

namespace {

constexpr std::size_t kMaxTokens = std::numeric_limits<std::int32_t>::max() / 2;
/// Special tokens are looked for at every position, so their length bounds the work.
constexpr std::size_t kMaxSpecialBytes = 1024;

bool contains(const std::vector<Token>& sorted, Token token) {
  return std::binary_search(sorted.begin(), sorted.end(), token);
}

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

VocabularyTokenizer::VocabularyTokenizer(const gguf::Metadata& metadata, const FamilyDefaults& defaults) {
  model = metadata.get_string("tokenizer.ggml.model");
  load_tokens(metadata);
  load_types(metadata);
  load_scores(metadata, defaults.needs_scores);
  load_special_ids(metadata, defaults);
  find_end_of_generation(metadata);
  build_matchers(metadata);
  load_stripping(metadata);
}

void VocabularyTokenizer::load_tokens(const gguf::Metadata& metadata) {
  constexpr std::string_view key = "tokenizer.ggml.tokens";
  const TextList* tokens = metadata.try_strings(key);
  if (tokens == nullptr)
    fail(ErrorCode::bad_file, "{}: missing key {}: the file has no vocabulary", metadata.origin(), key);
  if (tokens->empty()) fail(ErrorCode::bad_file, "{}: {} has no elements", metadata.origin(), key);
  if (tokens->size() > kMaxTokens)
    fail(ErrorCode::bad_file, "{}: {} has {} elements, at most {} are possible", metadata.origin(), key,
         tokens->size(), kMaxTokens);
  texts_ = *tokens;
  index_ = std::make_shared<const Index>(texts_);
}

void VocabularyTokenizer::load_types(const gguf::Metadata& metadata) {
  constexpr std::string_view key = "tokenizer.ggml.token_type";
  types_.assign(texts_.size(), TokenType::normal);
  const gguf::Array* array = metadata.try_array(key);
  if (array == nullptr) return;
  if (array->element_type != gguf::ValueType::i32 && array->element_type != gguf::ValueType::u32)
    fail(ErrorCode::bad_file, "{}: {} is an array of {}, expected i32", metadata.origin(), key,
         gguf::to_string(array->element_type));
  if (array->size() != texts_.size())
    fail(ErrorCode::bad_file, "{}: {} has {} elements for {} tokens", metadata.origin(), key, array->size(),
         texts_.size());
  const auto set = [&](std::size_t i, auto value) {
    // 0 is "undefined" in old files.
    if (value < 0 || value > 6)
      fail(ErrorCode::bad_file, "{}: {}[{}] is {}, expected 1 to 6", metadata.origin(), key, i, value);
    types_[i] = value == 0 ? TokenType::normal : static_cast<TokenType>(value);
  };
  if (const auto* values = std::get_if<std::vector<std::int64_t>>(&array->items)) {
    for (std::size_t i = 0; i < values->size(); ++i) set(i, (*values)[i]);
  } else if (const auto* unsigned_values = std::get_if<std::vector<std::uint64_t>>(&array->items)) {
    for (std::size_t i = 0; i < unsigned_values->size(); ++i)
      set(i, static_cast<std::int64_t>(std::min<std::uint64_t>((*unsigned_values)[i], 0xffffffff)));
  }
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (types_[i] == TokenType::byte && byte_value(texts_[i]) < 0)
      fail(ErrorCode::bad_file, "{}: tokenizer.ggml.tokens[{}] is a byte token named \"{}\", expected <0xNN>",
           metadata.origin(), i, printable(texts_[i]));
  }
}

void VocabularyTokenizer::load_scores(const gguf::Metadata& metadata, bool required) {
  constexpr std::string_view key = "tokenizer.ggml.scores";
  const gguf::Array* array = metadata.try_array(key);
  if (array == nullptr) {
    if (required)
      fail(ErrorCode::bad_file, "{}: missing key {}: a tokenizer of model \"{}\" needs scores",
           metadata.origin(), key, printable(model));
    return;
  }
  if (const auto* floats = std::get_if<std::vector<double>>(&array->items)) {
    scores_.assign(floats->size(), 0);
    for (std::size_t i = 0; i < floats->size(); ++i) scores_[i] = static_cast<float>((*floats)[i]);
  } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&array->items);
             integers != nullptr && array->element_type == gguf::ValueType::i32) {
    scores_.assign(integers->size(), 0);
    for (std::size_t i = 0; i < integers->size(); ++i) scores_[i] = static_cast<float>((*integers)[i]);
  } else {
    fail(ErrorCode::bad_file, "{}: {} is an array of {}, expected f32", metadata.origin(), key,
         gguf::to_string(array->element_type));
  }
  if (scores_.size() != texts_.size())
    fail(ErrorCode::bad_file, "{}: {} has {} elements for {} tokens", metadata.origin(), key, scores_.size(),
         texts_.size());
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    if (!std::isfinite(scores_[i]))
      fail(ErrorCode::bad_file, "{}: {}[{}] is not a finite number", metadata.origin(), key, i);
  }
}

void VocabularyTokenizer::load_special_ids(const gguf::Metadata& metadata, const FamilyDefaults& defaults) {
  const auto load = [&](std::string_view name, Token fallback) -> std::optional<Token> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    const std::optional<std::uint64_t> id = metadata.try_uint(key);
    if (!id) {
      if (fallback >= 0 && static_cast<std::size_t>(fallback) < texts_.size()) return fallback;
      return std::nullopt;
    }
    if (*id >= texts_.size()) {
      log::warning("{}: {} is {}, but the vocabulary has {} tokens; it is taken as none", metadata.origin(),
                   key, *id, texts_.size());
      return std::nullopt;
    }
    return static_cast<Token>(*id);
  };
  bos = load("bos", defaults.bos);
  eos = load("eos", defaults.eos);
  eot = load("eot", -1);
  unknown = load("unknown", defaults.unknown);
  // The key was misspelt when the format was young, and stayed so.
  separator = load("seperator", defaults.separator);
  if (!separator) separator = load("separator", -1);
  padding = load("padding", defaults.padding);
  cls = load("cls", defaults.cls);
  mask = load("mask", defaults.mask);
  if (defaults.cls_and_separator) {
    if (!bos) bos = cls;
    if (!eos) eos = separator;
  }

  const auto flag = [&](const char* key, bool fallback, bool possible, const char* id_key) {
    const std::optional<bool> stored = metadata.try_bool(key);
    if (stored.value_or(false) && !possible)
      fail(ErrorCode::bad_file, "{}: {} is true, but {} names no token", metadata.origin(), key, id_key);
    return stored.value_or(fallback) && possible;
  };
  add_bos =
      flag("tokenizer.ggml.add_bos_token", defaults.add_bos, bos.has_value(), "tokenizer.ggml.bos_token_id");
  add_eos =
      flag("tokenizer.ggml.add_eos_token", defaults.add_eos, eos.has_value(), "tokenizer.ggml.eos_token_id");
  if (defaults.cls_and_separator)
    // add_sep_token is about a second text; one text always ends with SEP, unless add_eos_token says
    // otherwise.
    add_eos = metadata.try_bool("tokenizer.ggml.add_eos_token").value_or(true) && eos.has_value();
  add_space_prefix = metadata.try_bool("tokenizer.ggml.add_space_prefix").value_or(defaults.add_space_prefix);
}

void VocabularyTokenizer::build_matchers(const gguf::Metadata& metadata) {
  std::vector<std::pair<std::string_view, Token>> users, all;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const TokenType kind = types_[i];
    if (kind != TokenType::user_defined && kind != TokenType::control && kind != TokenType::unknown) continue;
    if (texts_[i].empty()) continue;
    if (texts_[i].size() > kMaxSpecialBytes)
      fail(ErrorCode::bad_file,
           "{}: tokenizer.ggml.tokens[{}] is a special token of {} bytes, at most {} are allowed",
           metadata.origin(), i, texts_[i].size(), kMaxSpecialBytes);
    all.emplace_back(texts_[i], static_cast<Token>(i));
    if (kind == TokenType::user_defined) users.emplace_back(texts_[i], static_cast<Token>(i));
  }
  user_defined_ = ByteTrie(std::move(users));
  all_special_ = ByteTrie(std::move(all));
}

/// GGUF has no place for the lstrip and rstrip flags of added tokens; they are known for these models only.
void VocabularyTokenizer::load_stripping(const gguf::Metadata& metadata) {
  std::string name;
  for (const char c : metadata.try_string("general.name").value_or(""))
    name.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c);
  const std::string pre = metadata.try_string("tokenizer.ggml.pre").value_or("");
  const std::string architecture = metadata.try_string("general.architecture").value_or("");
  if (pre == "jina-v2-de" || pre == "jina-v2-es" || pre == "jina-v2-code" ||
      architecture == "nomic-bert-moe" || architecture == "jina-bert-v3") {
    if (const std::optional<Token> token = find("<mask>")) strips_left_.push_back(*token);
  } else if (name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos) {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const bool special = types_[i] == TokenType::control || types_[i] == TokenType::user_defined;
      if (special && texts_[i] != "<s>" && texts_[i] != "<|endoftext|>")
        strips_right_.push_back(static_cast<Token>(i));
    }
  }
}

int VocabularyTokenizer::byte_value(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    int digit = 0;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'A' && c <= 'F')
      digit = c - 'A' + 10;
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else
      return -1;
    value = value * 16 + digit;
  }
  return value;
}

std::vector<Token> VocabularyTokenizer::byte_tokens() const {
  std::vector<Token> tokens(256, -1);
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (types_[i] != TokenType::byte) continue;
    Token& slot = tokens[static_cast<std::size_t>(byte_value(texts_[i]))];
    if (slot < 0) slot = static_cast<Token>(i);
  }
  return tokens;
}

std::vector<Token> VocabularyTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > std::numeric_limits<std::int32_t>::max())
    fail(ErrorCode::invalid_argument, "a text of {} bytes is too long to tokenize, at most {} are possible",
         text.size(), std::numeric_limits<std::int32_t>::max());
  const ByteTrie& special = options.parse_special ? all_special_ : user_defined_;
  std::vector<Token> tokens;
  if (options.add_special && add_bos) tokens.push_back(*bos);
  const std::size_t opening = tokens.size();

  std::size_t plain = 0;  // start of the text since the last special token
  bool prefixed = true;
  const auto emit_text = [&](std::size_t end) {
    if (end <= plain) return;
    encode_text(text.substr(plain, end - plain), prefixed, tokens);
    prefixed = false;
  };
  std::size_t position = 0;
  std::size_t range = 0;  // of special_within, the first that ends after `position`
  const auto is_allowed = [&](std::size_t length) {
    if (!options.special_within) return true;
    const std::span<const TextRange> ranges = *options.special_within;
    while (range < ranges.size() && ranges[range].end <= position) ++range;
    return range < ranges.size() && ranges[range].begin <= position && position + length <= ranges[range].end;
  };
  while (!special.empty() && position < text.size()) {
    ByteTrie::Match match = special.longest(text, position);
    if (match.length != 0 && !is_allowed(match.length))
      match = user_defined_.empty() ? ByteTrie::Match{} : user_defined_.longest(text, position);
    if (match.length == 0) {
      ++position;
      continue;
    }
    std::size_t end = position;
    if (contains(strips_left_, match.value))
      while (end > plain && is_ascii_space(text[end - 1])) --end;
    emit_text(end);
    // A text that brings its own BOS gets no second one.
    if (!(opening == 1 && tokens.size() == 1 && match.value == *bos)) tokens.push_back(match.value);
    prefixed = true;
    position += match.length;
    if (contains(strips_right_, match.value))
      while (position < text.size() && is_ascii_space(text[position])) ++position;
    plain = position;
  }
  emit_text(text.size());
  if (options.add_special && add_eos) tokens.push_back(*eos);
  return tokens;
}

std::string VocabularyTokenizer::piece(Token token, bool special) const {
  if (token < 0 || static_cast<std::size_t>(token) >= texts_.size())
    fail(ErrorCode::invalid_argument, "token id {} is not in the vocabulary of {} tokens", token,
         texts_.size());
  switch (type(token)) {
    case TokenType::control:
    case TokenType::unknown:
      return special ? std::string(text(token)) : std::string();
    case TokenType::user_defined:
      return std::string(text(token));
    case TokenType::byte:
      return std::string(1, static_cast<char>(byte_value(text(token))));
    case TokenType::normal:
    case TokenType::unused:
      break;
  }
  return plain_piece(token);
}

std::string VocabularyTokenizer::decode(std::span<const Token> tokens, bool special) const {
  std::string out;
  bool prefixed = true;
  for (const Token token : tokens) {
    std::string bytes = piece(token, special);
    strip_prefix(*this, token, prefixed, bytes);
    out += bytes;
  }
  return out;
}

}  // namespace quipu::text

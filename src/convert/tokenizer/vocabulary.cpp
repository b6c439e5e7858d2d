#include "convert/tokenizer/vocabulary.hpp"

#include "core/error.hpp"
#include "text/unicode.hpp"

namespace quipu::convert {
namespace {

namespace json = boost::json;
using text::kSpaceMark;
using text::TokenType;

constexpr float kAddedScore = -1000;  // as llama.cpp's converter writes it
constexpr float kUnusedScore = -10000;

std::string with_spaces(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const bool mark = text.substr(i).starts_with(kSpaceMark);
    result.push_back(mark ? ' ' : text[i]);
    i += mark ? kSpaceMark.size() : 1;
  }
  return result;
}

void place_added(Vocabulary& vocabulary, std::uint64_t id, std::string_view text, bool special,
                 const std::string& file) {
  const bool control = special || looks_special(text);
  // Where a user's token holds the mark for a space, it is matched against the text as it was typed.
  vocabulary.place(id, control ? std::string(text) : with_spaces(text),
                   control ? TokenType::control : TokenType::user_defined, kAddedScore, file);
}

std::uint64_t id_of(const JsonFile& file, const json::value* value, std::string_view where) {
  if (value == nullptr || !value->is_number()) file.reject(where, "without an id", "a number as id");
  json::error_code error;
  const auto id = value->to_number<std::int64_t>(error);
  if (error || id < 0) file.reject(where, "with the id " + kind_of(*value), "an id of at least 0");
  return static_cast<std::uint64_t>(id);
}

/// `{"content": "<s>", "special": true …}`.
void place_described(Vocabulary& vocabulary, const JsonFile& file, std::uint64_t id,
                     const json::value& description, std::string_view where) {
  const json::object* object = description.if_object();
  const json::value* content = object == nullptr ? nullptr : object->if_contains("content");
  if (content == nullptr || !content->is_string())
    file.reject(where, kind_of(description), "an object with \"content\"");
  const json::value* special = object->if_contains("special");
  place_added(vocabulary, id, content->get_string(),
              special != nullptr && special->is_bool() && special->get_bool(), file.name());
}

}  // namespace

bool looks_special(std::string_view text) {
  const auto wrapped = [&](std::string_view first, std::string_view last) {
    return text.size() >= first.size() + last.size() && text.starts_with(first) && text.ends_with(last);
  };
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" ||
         wrapped("<|", "|>") || wrapped("<\xEF\xBD\x9C", "\xEF\xBD\x9C>") || wrapped("<unused", ">");
}

void Vocabulary::place(std::uint64_t id, std::string_view text, TokenType type, float score,
                       const std::string& file) {
  if (id >= rows_)
    fail(ErrorCode::bad_file,
         "{}: token \"{}\" has the id {}, but the embedding has {} rows: the tokenizer is not this model's",
         printable(file, 1000), printable(text), id, rows_);
  if (id >= tokens_.size()) tokens_.resize(id + 1);
  Entry& entry = tokens_[id];
  entry = {std::string(text), type, score, true};
  ids_.insert_or_assign(entry.text, id);
}

std::optional<std::size_t> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(std::string(text));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

void Vocabulary::fill() {
  tokens_.resize(rows_);
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (!tokens_[i].placed) tokens_[i] = {"[PAD" + std::to_string(i) + "]", TokenType::unused, kUnusedScore};
}

void Vocabulary::write(gguf::Metadata& metadata) const {
  using gguf::Value;
  metadata.set("tokenizer.ggml.model", Value::of_string(model));
  metadata.set("tokenizer.ggml.pre", Value::of_string(pre));
  std::vector<std::string> texts;
  std::vector<double> scores;
  std::vector<std::int64_t> types;
  for (const Entry& token : tokens_) {
    texts.push_back(token.text);
    scores.push_back(static_cast<double>(token.score));
    types.push_back(static_cast<std::int64_t>(token.type));
  }
  metadata.set("tokenizer.ggml.tokens", Value::of_strings(std::move(texts)));
  if (has_scores)
    metadata.set("tokenizer.ggml.scores",
                 {gguf::ValueType::array, gguf::Array{gguf::ValueType::f32, std::move(scores)}});
  metadata.set("tokenizer.ggml.token_type",
               {gguf::ValueType::array, gguf::Array{gguf::ValueType::i32, std::move(types)}});
  if (!merges.empty()) metadata.set("tokenizer.ggml.merges", Value::of_strings(merges));
  if (add_space_prefix) metadata.set("tokenizer.ggml.add_space_prefix", Value::of_bool(*add_space_prefix));
  if (remove_extra_spaces)
    metadata.set("tokenizer.ggml.remove_extra_whitespaces", Value::of_bool(*remove_extra_spaces));
  if (!charsmap.empty()) {
    std::vector<std::uint64_t> bytes;
    for (const char c : charsmap) bytes.push_back(static_cast<unsigned char>(c));
    metadata.set("tokenizer.ggml.precompiled_charsmap",
                 {gguf::ValueType::array, gguf::Array{gguf::ValueType::u8, std::move(bytes)}});
  }
}

void place_added_tokens(Vocabulary& vocabulary, const JsonFile* tokenizer, const JsonFile* tokenizer_config,
                        const JsonFile* added_tokens) {
  if (added_tokens != nullptr)
    for (const auto& [text, id] : added_tokens->root().get_object())
      place_added(vocabulary, id_of(*added_tokens, &id, std::string_view(text)), text, false,
                  added_tokens->name());
  if (tokenizer_config != nullptr) {
    const json::value* decoder = tokenizer_config->find("added_tokens_decoder");
    if (decoder != nullptr && decoder->is_object())
      for (const auto& [key, description] : decoder->get_object()) {
        const std::string number(key);
        char* end = nullptr;
        const unsigned long long id = std::strtoull(number.c_str(), &end, 10);
        if (number.empty() || *end != '\0')
          tokenizer_config->reject("added_tokens_decoder",
                                   "an object with the key \"" + printable(number) + "\"", "ids as keys");
        place_described(vocabulary, *tokenizer_config, id, description, "added_tokens_decoder");
      }
  }
  if (tokenizer != nullptr) {
    const json::value* added = tokenizer->find("added_tokens");
    if (added != nullptr && added->is_array())
      for (const json::value& description : added->get_array()) {
        const json::object* object = description.if_object();
        if (object == nullptr) tokenizer->reject("added_tokens", kind_of(description), "objects");
        place_described(vocabulary, *tokenizer, id_of(*tokenizer, object->if_contains("id"), "added_tokens"),
                        description, "added_tokens");
      }
  }
}

}  // namespace quipu::convert

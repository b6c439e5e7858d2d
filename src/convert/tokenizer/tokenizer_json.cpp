// tokenizer.json of the tokenizers library: which kind it is, its vocabulary, and what of its normalizer and
// pre-tokenizer GGUF has a place for.
#include <algorithm>
#include <array>

#include "convert/tokenizer/pretokenizer_finder.hpp"
#include "convert/tokenizer/vocabulary.hpp"
#include "core/error.hpp"
#include "text/unicode.hpp"

namespace quipu::convert {
namespace {

namespace json = boost::json;
using text::kSpaceMark;
using text::TokenType;

/// All parts of a normalizer, pre-tokenizer or decoder: itself, or the members of a Sequence.
void visit_parts(const json::value* part, const auto& visit) {
  const json::object* object = part == nullptr ? nullptr : part->if_object();
  if (object == nullptr) return;
  for (const char* list : {"normalizers", "pretokenizers", "decoders", "processors"})
    if (const json::value* members = object->if_contains(list); members != nullptr && members->is_array()) {
      for (const json::value& member : members->get_array()) visit_parts(&member, visit);
      return;
    }
  const json::value* type = object->if_contains("type");
  if (type != nullptr && type->is_string()) visit(std::string_view(type->get_string()), *object);
}

bool has_part(const json::value* part, std::string_view wanted) {
  bool found = false;
  visit_parts(part, [&](std::string_view type, const json::object&) { found = found || type == wanted; });
  return found;
}

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

bool is_byte_token(std::string_view text) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' && is_hex(text[3]) && is_hex(text[4]);
}

/// The text of GGUF's merges has one space between the two parts; a space inside of a part is written as the
/// byte alphabet does.
std::string merge_part(std::string_view part) {
  std::string result;
  for (const char c : part) {
    if (c == ' ')
      result += "\xC4\xA0";
    else
      result.push_back(c);
  }
  return result;
}

constexpr float kNoScore = -1000;  // as llama.cpp's converter writes it

struct Merge {
  std::string left, right;
};

std::vector<Merge> read_merges(const JsonFile& file) {
  const json::value* merges = file.find("model.merges");
  if (merges == nullptr || !merges->is_array()) file.reject_missing("model.merges");
  std::vector<Merge> result;
  for (const json::value& merge : merges->get_array()) {
    if (merge.is_string()) {
      const std::string_view text = merge.get_string();
      const std::size_t space = text.find(' ');
      if (space == text.npos || space == 0 || space + 1 == text.size())
        file.reject("model.merges", kind_of(merge) + " in it", "two parts with a space between");
      result.push_back({std::string(text.substr(0, space)), std::string(text.substr(space + 1))});
      continue;
    }
    const json::array* pair = merge.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string())
      file.reject("model.merges", kind_of(merge) + " in it", "pairs of strings");
    result.push_back({std::string((*pair)[0].get_string()), std::string((*pair)[1].get_string())});
  }
  return result;
}

/// Places the entries of an object from texts to ids.
void read_text_vocabulary(const JsonFile& file, Vocabulary& vocabulary) {
  const json::value* entries = file.find("model.vocab");
  if (entries == nullptr || !entries->is_object()) file.reject_missing("model.vocab");
  for (const auto& [text, id] : entries->get_object()) {
    json::error_code error;
    const auto number = id.is_number() ? id.to_number<std::int64_t>(error) : -1;
    if (error || number < 0) file.reject("model.vocab", kind_of(id) + " in it", "ids of at least 0");
    vocabulary.place(static_cast<std::uint64_t>(number), std::string_view(text), TokenType::normal, 0,
                     file.name());
  }
}

void read_byte_level(const JsonFile& file, const std::string& pre, Vocabulary& vocabulary) {
  vocabulary.model = "gpt2";
  read_text_vocabulary(file, vocabulary);
  for (const Merge& merge : read_merges(file))
    vocabulary.merges.push_back(merge_part(merge.left) + " " + merge_part(merge.right));
  const json::value none;
  const json::value* parts = file.find("pre_tokenizer");
  if (!pre.empty()) {
    vocabulary.pre = pre;
    return;
  }
  const std::vector<std::string> steps = pretokenizer_steps(parts == nullptr ? none : *parts, file.name());
  vocabulary.pre = find_pretokenizer_name(steps, file.flag_or("model.ignore_merges", false));
  if (vocabulary.pre.empty()) {
    std::string text;
    for (const std::string& step : steps) text += (text.empty() ? "" : " then ") + printable(step, 300);
    fail(ErrorCode::unsupported,
         "{}: the pre_tokenizer cuts text as none that quipu knows: {}; name the one to use with --pre",
         printable(file.name(), 1000), text.empty() ? "it does not cut at all" : text);
  }
}

/// BPE on plain text with U+2581 for spaces and tokens for bytes: what SentencePiece models become. Files
/// named "llama" have the order in which merges are made as scores, others the merges themselves.
void read_sentencepiece_like(const JsonFile& file, std::string_view name, Vocabulary& vocabulary) {
  const bool by_scores = name == "llama";
  vocabulary.model = name;
  vocabulary.has_scores = true;
  read_text_vocabulary(file, vocabulary);
  const std::vector<Merge> merges = read_merges(file);
  const auto last = by_scores ? -static_cast<float>(merges.size()) : kNoScore;
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    if (!vocabulary.is_placed(i)) continue;
    vocabulary.set_score(i, last);
    if (is_byte_token(vocabulary.text(i))) vocabulary.set_type(i, TokenType::byte);
  }
  std::vector<bool> made(vocabulary.size(), false);
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto id = vocabulary.find(merges[i].left + merges[i].right);
    if (!id)
      file.reject("model.merges", "a pair that makes no token in it", "merges into tokens of the vocabulary");
    if (!by_scores) vocabulary.merges.push_back(merges[i].left + " " + merges[i].right);
    if (by_scores && !made[*id]) vocabulary.set_score(*id, -static_cast<float>(i));
    made[*id] = true;
  }
  vocabulary.add_space_prefix = false;
  visit_parts(file.find("normalizer"), [&](std::string_view type, const json::object& part) {
    if (type == "Prepend" && text_at(part, "prepend") == kSpaceMark) vocabulary.add_space_prefix = true;
    // Composition would change the text before it is tokenized; there is no place for it.
    if (type != "Prepend" && type != "Replace")
      fail(ErrorCode::unsupported, "{}: a normalizer of type {} before BPE with U+2581, expected none",
           printable(file.name(), 1000), printable(type));
  });
  visit_parts(file.find("pre_tokenizer"), [&](std::string_view type, const json::object& part) {
    if (type != "Metaspace") return;
    const std::string scheme = text_at(part, "prepend_scheme");
    const json::value* old = part.if_contains("add_prefix_space");
    vocabulary.add_space_prefix =
        scheme.empty() ? old == nullptr || !old->is_bool() || old->get_bool() : scheme != "never";
  });
}

std::string decoded_base64(const JsonFile& file, std::string_view text) {
  std::string result;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) file.reject("normalizer.precompiled_charsmap", "no base64", "base64");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      result.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return result;
}

void read_unigram(const JsonFile& file, Vocabulary& vocabulary) {
  vocabulary.model = "t5";
  vocabulary.has_scores = true;
  const json::value* entries = file.find("model.vocab");
  if (entries == nullptr || !entries->is_array()) file.reject_missing("model.vocab");
  std::uint64_t id = 0;
  const bool byte_fallback = file.flag_or("model.byte_fallback", false);
  for (const json::value& entry : entries->get_array()) {
    const json::array* pair = entry.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_number())
      file.reject("model.vocab", kind_of(entry) + " in it", "pairs of a token and its score");
    const std::string_view text = (*pair)[0].get_string();
    const bool is_byte = byte_fallback && is_byte_token(text);
    vocabulary.place(id++, text, is_byte ? TokenType::byte : TokenType::normal, (*pair)[1].to_number<float>(),
                     file.name());
  }
  if (const auto unknown = file.try_count("model.unk_id"); unknown && *unknown < vocabulary.size())
    vocabulary.set_type(*unknown, TokenType::unknown);
  vocabulary.add_space_prefix = false;
  vocabulary.remove_extra_spaces = false;
  const auto spaces = [&](std::string_view type, const json::object& part) {
    if (type == "Precompiled")
      vocabulary.charsmap = decoded_base64(file, text_at(part, "precompiled_charsmap"));
    if (type == "WhitespaceSplit" || (type == "Strip")) vocabulary.remove_extra_spaces = true;
    if (type == "Replace") {
      const json::value* pattern = part.if_contains("pattern");
      const json::object* form = pattern == nullptr ? nullptr : pattern->if_object();
      if (form != nullptr && form->contains("Regex")) vocabulary.remove_extra_spaces = true;
    }
    if (type == "Metaspace") {
      const std::string scheme = text_at(part, "prepend_scheme");
      const json::value* old = part.if_contains("add_prefix_space");
      vocabulary.add_space_prefix =
          scheme.empty() ? old == nullptr || !old->is_bool() || old->get_bool() : scheme != "never";
    }
  };
  visit_parts(file.find("normalizer"), spaces);
  visit_parts(file.find("pre_tokenizer"), spaces);
}

void read_wordpiece(const JsonFile& file, Vocabulary& vocabulary) {
  vocabulary.model = "bert";
  vocabulary.pre = "jina-v2-en";  // the name that llama.cpp gives BERT's pre-tokenizer
  read_text_vocabulary(file, vocabulary);
  const std::string prefix = file.try_text("model.continuing_subword_prefix").value_or("##");
  if (prefix != "##")
    file.reject("model.continuing_subword_prefix", "\"" + printable(prefix) + "\"", "\"##\"");
}

}  // namespace

void read_tokenizer_json(const JsonFile& tokenizer, const std::string& pre, std::string_view plain_bpe,
                         Vocabulary& vocabulary) {
  const json::value* vocab = tokenizer.find("model.vocab");
  // Older files leave the type out.
  const std::string type = tokenizer.try_text("model.type")
                               .value_or(tokenizer.has("model.merges")           ? "BPE"
                                         : vocab != nullptr && vocab->is_array() ? "Unigram"
                                                                                 : "WordPiece");
  if (type == "BPE") {
    for (const char* key : {"model.continuing_subword_prefix", "model.end_of_word_suffix"})
      if (const auto affix = tokenizer.try_text(key); affix && !affix->empty())
        fail(ErrorCode::unsupported, "{}: {} is \"{}\", expected none", printable(tokenizer.name(), 1000),
             key, printable(*affix));
    const bool byte_level = has_part(tokenizer.find("pre_tokenizer"), "ByteLevel") ||
                            has_part(tokenizer.find("decoder"), "ByteLevel");
    byte_level ? read_byte_level(tokenizer, pre, vocabulary)
               : read_sentencepiece_like(tokenizer, plain_bpe, vocabulary);
  } else if (type == "Unigram") {
    read_unigram(tokenizer, vocabulary);
  } else if (type == "WordPiece") {
    read_wordpiece(tokenizer, vocabulary);
  } else {
    fail(ErrorCode::unsupported, "{}: model.type is \"{}\", expected BPE, Unigram or WordPiece",
         printable(tokenizer.name(), 1000), printable(type));
  }
}

}  // namespace quipu::convert

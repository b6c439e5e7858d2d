// WordPiece as BERT uses it: normalise, split into words, then the longest vocabulary entry first. In GGUF
// the pieces that start a word carry U+2581 and those that continue one carry nothing.
#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "text/category.hpp"
#include "text/families.hpp"
#include "text/unicode.hpp"
#include "text/vocabulary.hpp"

namespace quipu::text {

namespace {

/// Longer words become one [UNK] (max_input_chars_per_word of BERT's tokenizer).
constexpr std::size_t kMaxWordCharacters = 100;

bool is_control(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CN ||
         kind == UTF8PROC_CATEGORY_CS || kind == UTF8PROC_CATEGORY_CO;
}

bool is_punctuation(char32_t c) {
  if ((c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126))
    return true;
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

/// The ideograph blocks of BERT's original tokenizer.
bool is_ideograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

class WordPiece final : public VocabularyTokenizer {
 public:
  WordPiece(const gguf::Metadata& metadata, const FamilyDefaults& defaults)
      : VocabularyTokenizer(metadata, defaults),
        lowercase_(metadata.try_bool("tokenizer.ggml.normalizer.lowercase").value_or(true)),
        strip_accents_(metadata.try_bool("tokenizer.ggml.normalizer.strip_accents").value_or(lowercase_)) {
    if (!unknown)
      fail(ErrorCode::bad_file, "{}: tokenizer.ggml.unknown_token_id names no token, which WordPiece needs",
           metadata.origin());
    for (std::size_t i = 0; i < size(); ++i) longest_ = std::max(longest_, texts_[i].size());
  }

 protected:
  void encode_text(std::string_view text, bool prefixed, std::vector<Token>& out) const override;
  std::string plain_piece(Token token) const override { return unescape_spaces(text(token)); }

 private:
  struct Word {
    std::string text;  // opens with U+2581
    std::size_t characters = 0;
  };
  void add_character(char32_t c, Word& word, std::vector<Token>& out) const;
  void finish(Word& word, std::vector<Token>& out) const;

  bool lowercase_, strip_accents_;
  std::size_t longest_ = 0;  // bytes of the longest vocabulary entry
};

void WordPiece::finish(Word& word, std::vector<Token>& out) const {
  if (word.characters == 0) return;
  const std::size_t before = out.size();
  const std::string_view text = word.text;
  std::size_t position = 0;
  while (word.characters <= kMaxWordCharacters && position < text.size()) {
    std::size_t length = std::min(longest_, text.size() - position);
    Token token = -1;
    while (length > 0 && (token = find_plain(text.substr(position, length))) < 0) --length;
    if (length == 0) break;
    out.push_back(token);
    position += length;
  }
  if (position < text.size()) {
    out.resize(before);
    out.push_back(*unknown);
  }
  word = {};
}

void WordPiece::add_character(char32_t c, Word& word, std::vector<Token>& out) const {
  if (strip_accents_ && category(c) == UTF8PROC_CATEGORY_MN) return;
  if (lowercase_) c = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  const bool alone = is_punctuation(c) || is_ideograph(c);
  if (alone) finish(word, out);
  if (word.characters == 0) word.text = kSpaceMark;
  append_utf8(word.text, c);
  ++word.characters;
  if (alone) finish(word, out);
}

void WordPiece::encode_text(std::string_view text, bool, std::vector<Token>& out) const {
  Word word;
  std::size_t position = 0;
  while (position < text.size()) {
    const DecodedChar next = decode_utf8(text, position);
    position += next.length;
    const char32_t c = next.value;
    if (is_white_space(c)) {
      finish(word, out);
      continue;
    }
    if (c == 0xfffd || is_control(c)) continue;
    if (!strip_accents_) {
      add_character(c, word, out);
      continue;
    }
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, UTF8PROC_DECOMPOSE, &boundary);
    if (count < 1 || count > 32) {
      add_character(c, word, out);
      continue;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) add_character(static_cast<char32_t>(parts[i]), word, out);
  }
  finish(word, out);
}

}  // namespace

std::unique_ptr<Tokenizer> make_wordpiece(const gguf::Metadata& metadata) {
  FamilyDefaults defaults;
  defaults.unknown = 100;
  defaults.cls = 101;
  defaults.separator = 102;
  defaults.mask = 103;
  defaults.padding = 0;
  defaults.add_bos = true;
  defaults.add_space_prefix = true;
  defaults.cls_and_separator = true;
  return std::make_unique<WordPiece>(metadata, defaults);
}

}  // namespace quipu::text

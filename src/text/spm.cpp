// SentencePiece BPE: neighbours whose joined text is a token are merged, highest score first, leftmost among
// equals (Kudo and Richardson 2018, the "bpe" model type). Characters without a token become byte tokens.
#include <algorithm>
#include <string>
#include <vector>

#include "text/families.hpp"
#include "text/unicode.hpp"
#include "text/vocabulary.hpp"

namespace quipu::text {

namespace {

constexpr std::uint32_t kEnd = 0xffffffff;

struct Piece {
  std::uint32_t begin, length;  // length 0: merged into the piece on its left
  std::uint32_t previous, next;
};

struct Candidate {
  float score;
  std::uint32_t left, right, length;
};

class Spm final : public VocabularyTokenizer {
 public:
  Spm(const gguf::Metadata& metadata, const FamilyDefaults& defaults)
      : VocabularyTokenizer(metadata, defaults) {
    byte_fallback_ = byte_tokens();
    for (std::size_t i = 0; i < size(); ++i)
      if (is_plain(static_cast<Token>(i))) longest_ = std::max(longest_, texts_[i].size());
  }

 protected:
  void encode_text(std::string_view text, bool prefixed, std::vector<Token>& out) const override;
  std::string plain_piece(Token token) const override { return unescape_spaces(text(token)); }

 private:
  static std::vector<Piece> characters(std::string_view text);
  void merge(std::string_view text, std::vector<Piece>& pieces) const;
  void write(std::string_view piece, std::vector<Token>& out) const;

  std::vector<Token> byte_fallback_;
  std::size_t longest_ = 0;  // bytes of the longest token: longer pairs need no look-up
};

std::vector<Piece> Spm::characters(std::string_view text) {
  std::vector<Piece> pieces;
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t length = decode_utf8(text, position).length;
    const auto index = static_cast<std::uint32_t>(pieces.size());
    pieces.push_back({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(length),
                      index == 0 ? kEnd : index - 1, index + 1});
    position += length;
  }
  if (!pieces.empty()) pieces.back().next = kEnd;
  return pieces;
}

void Spm::merge(std::string_view text, std::vector<Piece>& pieces) const {
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  };
  std::vector<Candidate> heap;
  const auto candidate = [&](std::uint32_t left, std::uint32_t right) {
    const std::uint32_t length = pieces[left].length + pieces[right].length;
    if (length > longest_) return false;
    const Token token = find_plain(text.substr(pieces[left].begin, length));
    if (token < 0) return false;
    heap.push_back({scores_[static_cast<std::size_t>(token)], left, right, length});
    return true;
  };
  for (std::uint32_t i = 0; i + 1 < pieces.size(); ++i) candidate(i, i + 1);
  std::make_heap(heap.begin(), heap.end(), worse);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate best = heap.back();
    heap.pop_back();
    Piece& left = pieces[best.left];
    Piece& right = pieces[best.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) continue;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (left.next != kEnd) {
      pieces[left.next].previous = best.left;
      if (candidate(best.left, left.next)) std::push_heap(heap.begin(), heap.end(), worse);
    }
    if (left.previous != kEnd && candidate(left.previous, best.left))
      std::push_heap(heap.begin(), heap.end(), worse);
  }
}

void Spm::write(std::string_view piece, std::vector<Token>& out) const {
  const Token token = find_plain(piece);
  if (token >= 0) {
    out.push_back(token);
    return;
  }
  for (const char c : piece) {
    const Token byte = byte_fallback_[static_cast<unsigned char>(c)];
    if (byte >= 0) {
      out.push_back(byte);
    } else if (unknown) {  // one for the character, as SentencePiece does without byte fallback
      out.push_back(*unknown);
      return;
    }
  }
}

void Spm::encode_text(std::string_view text, bool prefixed, std::vector<Token>& out) const {
  std::string escaped = add_space_prefix && prefixed ? std::string(kSpaceMark) : std::string();
  escaped += escape_spaces(text);
  std::vector<Piece> pieces = characters(escaped);
  merge(escaped, pieces);
  const std::string_view all = escaped;
  for (std::uint32_t i = 0; i != kEnd; i = pieces[i].next)
    write(all.substr(pieces[i].begin, pieces[i].length), out);
}

}  // namespace

std::unique_ptr<Tokenizer> make_spm(const gguf::Metadata& metadata) {
  FamilyDefaults defaults;
  defaults.bos = 1;
  defaults.eos = 2;
  defaults.unknown = 0;
  defaults.add_bos = true;
  defaults.add_space_prefix = true;
  defaults.needs_scores = true;
  return std::make_unique<Spm>(metadata, defaults);
}

}  // namespace quipu::text

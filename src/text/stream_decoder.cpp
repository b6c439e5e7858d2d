#include "text/unicode.hpp"
#include "text/vocabulary.hpp"

namespace quipu::text {

namespace {

/// Moves everything that is decided from `pending` to the result: whole characters, and U+FFFD for what can
/// never become one (one for each maximal subpart, as the Unicode standard advises).
std::string take_decided(std::string& pending) {
  std::string out;
  std::size_t position = 0;
  while (position < pending.size()) {
    const DecodedChar next = decode_utf8(pending, position);
    if (next.incomplete) break;
    if (next.valid)
      out.append(pending, position, next.length);
    else
      out += kReplacement;
    position += next.length;
  }
  pending.erase(0, position);
  return out;
}

}  // namespace

void strip_prefix(const Tokenizer& tokenizer, Token token, bool& prefixed, std::string& bytes) {
  switch (tokenizer.type(token)) {
    case TokenType::control:
    case TokenType::user_defined:
      prefixed = true;
      return;
    case TokenType::unknown:  // stands for characters in the middle of a text
      prefixed = false;
      return;
    case TokenType::normal:
    case TokenType::unused:
    case TokenType::byte:
      break;
  }
  if (prefixed && tokenizer.add_space_prefix && !bytes.empty() && bytes.front() == ' ') bytes.erase(0, 1);
  prefixed = false;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool special, std::optional<Token> after)
    : tokenizer_(&tokenizer), special_(special) {
  if (!after) return;
  const TokenType kind = tokenizer.type(*after);
  at_start_ = kind == TokenType::control || kind == TokenType::user_defined;
}

std::string StreamDecoder::push(Token token) {
  std::string bytes = tokenizer_->piece(token, special_);
  strip_prefix(*tokenizer_, token, at_start_, bytes);
  pending_ += bytes;
  return take_decided(pending_);
}

std::string StreamDecoder::finish() {
  std::string out = take_decided(pending_);
  if (!pending_.empty()) out += kReplacement;
  pending_.clear();
  at_start_ = true;
  return out;
}

}  // namespace quipu::text

// Vocabularies for tests of grammars.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/token_table.hpp"

namespace quipu::test {

/// Every byte, then `more` as further tokens, then control tokens, then an end token.
inline std::shared_ptr<const text::grammar::TokenTable> byte_table(
    const std::vector<std::string>& more = {}, const std::vector<std::string>& controls = {}) {
  using text::grammar::TokenTable;
  std::vector<TokenTable::Entry> entries;
  for (int b = 0; b < 256; ++b)
    entries.push_back({std::string(1, static_cast<char>(b)), TokenTable::Use::text});
  for (const std::string& text : more) entries.push_back({text, TokenTable::Use::text});
  for (const std::string& name : controls) entries.push_back({name, TokenTable::Use::control});
  entries.push_back({"<end>", TokenTable::Use::end});
  return std::make_shared<const TokenTable>(std::move(entries));
}

/// Spells texts with a vocabulary's tokens, greedily.
class Speller {
 public:
  /// Tokens of at most so many bytes, where that is enough for the text.
  explicit Speller(const text::grammar::TokenTable& table, std::size_t most = 1000)
      : table_(table), most_(most) {}

  std::vector<text::Token> spell(std::string_view text) const {
    std::vector<text::Token> tokens;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t length = 0;
      const text::Token token = longest(text.substr(at), length);
      if (token < 0) return {};
      tokens.push_back(token);
      at += length;
    }
    return tokens;
  }

 private:
  text::Token longest(std::string_view text, std::size_t& length) const {
    const auto& nodes = table_.nodes();
    text::Token best = -1;
    std::uint32_t node = 0;
    for (std::size_t depth = 0; depth < text.size(); ++depth) {
      std::uint32_t child = node + 1;
      const std::uint32_t end = nodes[node].end;
      while (child < end && nodes[child].byte != static_cast<unsigned char>(text[depth]))
        child = nodes[child].end;
      if (child >= end) break;
      node = child;
      if (nodes[node].token && (depth < most_ || best < 0)) {
        table_.for_each_token(node, [&](std::size_t token) { best = static_cast<text::Token>(token); });
        length = depth + 1;
      }
    }
    return best;
  }
  const text::grammar::TokenTable& table_;
  std::size_t most_;
};

}  // namespace quipu::test

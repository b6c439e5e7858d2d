// What the fuzz targets of grammars have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "text/grammar/grammar.hpp"

namespace quipu::test {

template <class Make>
void fuzz_constraint(const std::uint8_t* data, std::size_t size, const Make& make) {
  using namespace text::grammar;
  static const auto table = [] {
    std::vector<TokenTable::Entry> entries;
    for (int b = 0; b < 256; ++b)
      entries.push_back({std::string(1, static_cast<char>(b)), TokenTable::Use::text});
    for (const char* text : {"ab", "\": ", "\", \"", "{\"", "\"}", "\xc3\xa9", "12", "aaaa"})
      entries.push_back({text, TokenTable::Use::text});
    entries.push_back({"<|x|>", TokenTable::Use::control});
    entries.push_back({"<end>", TokenTable::Use::end});
    return std::make_shared<const TokenTable>(std::move(entries));
  }();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t border = std::min(input.find('\0'), input.size());
  std::string_view text = input.substr(std::min(border + 1, input.size()));
  text = text.substr(0, 200);
  try {
    const auto constraint = std::make_shared<Constraint>(make(input.substr(0, border)), table);
    Matcher matcher(constraint);
    for (std::size_t i = 0;; ++i) {
      const auto allowed = matcher.allowed();
      bool any = false;
      for (const std::uint64_t word : *allowed) any |= word != 0;
      if (!any) std::abort();
      if (i == text.size()) break;
      const auto token = static_cast<text::Token>(static_cast<unsigned char>(text[i]));
      const bool accepted = matcher.accept(token);
      if (accepted != has_bit(*allowed, static_cast<std::size_t>(token))) std::abort();
      if (!accepted) break;
    }
    // From here the shortest way must lead to an end. Longer ones are estimates.
    for (std::size_t left = matcher.tokens_to_end(); left > 0 && left < 160;) {
      const auto closing = matcher.closing();
      std::size_t token = 0;
      while (token < table->size() && !has_bit(*closing, token)) ++token;
      if (token == table->size() || !matcher.accept(static_cast<text::Token>(token))) std::abort();
      const std::size_t now = matcher.tokens_to_end();
      if (now >= left || (now == 0 && !matcher.is_accepting())) std::abort();
      left = now;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::unsupported) std::abort();
  }
}

}  // namespace quipu::test

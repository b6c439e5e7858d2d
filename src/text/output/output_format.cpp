#include "text/output/output_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace quipu::text {

std::vector<PatternPart> parse_pattern(std::string_view pattern) {
  struct Place {
    std::string_view text;
    PatternPart::Kind kind;
  };
  using Kind = PatternPart::Kind;
  constexpr std::array<Place, 6> kPlaces = {{{"{name}", Kind::name},
                                             {"{id}", Kind::id},
                                             {"{arguments}", Kind::arguments},
                                             {"{key}", Kind::key},
                                             {"{value}", Kind::value},
                                             {"{type}", Kind::type}}};
  std::vector<PatternPart> parts;
  std::string literal;
  const auto flush = [&] {
    if (!literal.empty()) parts.push_back({Kind::literal, std::move(literal)});
    literal.clear();
  };
  while (!pattern.empty()) {
    const auto place = std::find_if(kPlaces.begin(), kPlaces.end(), [&](const Place& candidate) {
      return pattern.substr(0, candidate.text.size()) == candidate.text;
    });
    if (place == kPlaces.end()) {
      literal += pattern.front();
      pattern.remove_prefix(1);
      continue;
    }
    flush();
    parts.push_back({place->kind});
    pattern.remove_prefix(place->text.size());
  }
  flush();
  return parts;
}

std::vector<Token> marker_tokens(const OutputFormat& format, const Tokenizer& tokenizer) {
  std::vector<std::string> literals = format.markup;
  for (const CallFormat& call : format.calls)
    for (const std::string& part :
         {call.section_open, call.section_close, call.call, call.separator, call.parameter})
      literals.push_back(part);
  literals.insert(literals.end(), {format.reasoning.open, format.reasoning.close});
  for (const CallFormat& call : format.calls)
    if (call.arguments == ArgumentSyntax::gemma) literals.emplace_back("<|\"|>");
  if (format.channels) {
    literals.insert(literals.end(), {format.channels->open, format.channels->header_end});
    literals.insert(literals.end(), format.channels->ends.begin(), format.channels->ends.end());
  }
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < tokenizer.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (tokenizer.type(token) != TokenType::control) continue;
    const std::string_view text = tokenizer.text(token);
    if (!text.empty() && std::any_of(literals.begin(), literals.end(), [&](const std::string& literal) {
          return literal.find(text) != std::string::npos;
        }))
      tokens.push_back(token);
  }
  return tokens;
}

std::string make_call_id(IdStyle style, std::uint64_t seed, std::size_t index, std::string_view name) {
  if (style == IdStyle::count) return fmt::format("{}", index);
  if (style == IdStyle::kimi) return fmt::format("functions.{}:{}", name, index);
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id = style == IdStyle::mistral ? "" : "call_";
  // SplitMix64 (Steele, Lea, Flood 2014).
  std::uint64_t state = seed + 0x9e3779b97f4a7c15ULL * (index * 32 + 1);
  for (int i = 0; i < (style == IdStyle::mistral ? 9 : 24); ++i) {
    state += 0x9e3779b97f4a7c15ULL;
    std::uint64_t mixed = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    id += kLetters[(mixed ^ (mixed >> 31)) % kLetters.size()];
  }
  return id;
}

}  // namespace quipu::text

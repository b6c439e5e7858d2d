#include "text/grammar/token_table.hpp"

#include <algorithm>
#include <charconv>

#include "text/grammar/masks.hpp"

namespace quipu::text::grammar {

TokenTable::TokenTable(std::vector<Entry> entries)
    : entries_(std::move(entries)), cache_(std::make_shared<PrefixCache>()) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const auto token = static_cast<Token>(i);
    if (entry.use == Use::text && (entry.text.empty() || entry.text.size() > 60000)) entry.use = Use::never;
    if (entry.use == Use::text) ordered_.push_back(token);
    if (entry.use == Use::control) controls_.push_back(token);
    if (entry.use == Use::end) ends_.push_back(token);
    if (entry.use == Use::control || entry.use == Use::end) names_.emplace(entry.text, token);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].use == Use::never && !entries_[i].text.empty())
      names_.emplace(entries_[i].text, static_cast<Token>(i));
  const auto text = [&](Token token) -> const std::string& { return this->entry(token).text; };
  std::stable_sort(ordered_.begin(), ordered_.end(), [&](Token a, Token b) { return text(a) < text(b); });

  texts_.assign(words(), 0);
  for (const Token token : ordered_) set_bit(texts_, static_cast<std::size_t>(token));
  nodes_.push_back({0, 0, 0, false});
  first_.push_back(0);
  std::vector<std::uint32_t> path{0};  // the nodes of the last text
  for (std::size_t i = 0; i < ordered_.size(); ++i) {
    const std::string& now = text(ordered_[i]);
    const std::string_view before = i == 0 ? std::string_view() : std::string_view(text(ordered_[i - 1]));
    const auto [a, b] = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
    const auto shared = static_cast<std::size_t>(b - now.begin());
    while (path.size() > shared + 1) {
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (std::size_t d = shared; d < now.size(); ++d) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint16_t>(d + 1), static_cast<unsigned char>(now[d]), false});
      first_.push_back(static_cast<std::uint32_t>(i));
    }
    nodes_[path.back()].token = true;
    max_depth_ = std::max(max_depth_, now.size());
  }
  for (const std::uint32_t node : path) nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
  first_.push_back(static_cast<std::uint32_t>(ordered_.size()));
  kinds_below_.assign(nodes_.size(), 0);
  std::vector<std::uint32_t> parent(nodes_.size(), 0);
  std::vector<std::uint32_t> at_depth(max_depth_ + 1, 0);
  for (std::uint32_t i = 1; i < nodes_.size(); ++i) {
    at_depth[nodes_[i].depth] = i;
    parent[i] = at_depth[nodes_[i].depth - 1];
  }
  for (std::size_t i = nodes_.size(); i-- > 1;)
    kinds_below_[parent[i]] |=
        static_cast<std::uint16_t>(kinds_below_[i] | (1u << byte_kind(nodes_[i].byte)));
  // A node's tokens are those up to the next node's first: equal texts lie side by side.
}

unsigned TokenTable::byte_kind(unsigned char byte) {
  if (byte >= 'a' && byte <= 'z') return byte <= 'f' ? 0 : 1;
  if (byte >= 'A' && byte <= 'Z') return byte <= 'F' ? 2 : 3;
  if (byte >= '0' && byte <= '9') return 4;
  switch (byte) {
    case ' ':
      return 5;
    case '\t':
    case '\n':
    case '\v':
    case '\f':
    case '\r':
      return 6;
    case '"':
      return 7;
    case '\\':
      return 8;
    case '-':
    case '_':
      return 9;
    case '.':
    case ',':
      return 10;
    case '/':
    case ':':
      return 11;
    default:
      return byte >= 0x80 ? 15 : byte < 0x20 ? 14 : byte < 0x30 ? 13 : 12;
  }
}

std::shared_ptr<const TokenTable> TokenTable::of(const Tokenizer& tokenizer) {
  std::vector<Entry> entries(tokenizer.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto token = static_cast<Token>(i);
    Entry& entry = entries[i];
    if (tokenizer.is_end_of_generation(token)) {
      entry = {tokenizer.piece(token, true), Use::end};
      continue;
    }
    switch (tokenizer.type(token)) {
      case TokenType::control:
        entry = {std::string(tokenizer.text(token)), Use::control};
        break;
      case TokenType::unknown:
      case TokenType::unused:
        entry = {std::string(tokenizer.text(token)), Use::never};
        break;
      default:
        entry.text = tokenizer.piece(token);
        break;
    }
  }
  return std::make_shared<const TokenTable>(std::move(entries));
}

std::optional<Token> TokenTable::find_control(std::string_view name) const {
  const auto it = names_.find(std::string(name));
  return it == names_.end() ? std::nullopt : std::optional<Token>(it->second);
}

std::optional<Token> TokenTable::find(std::string_view name) const {
  if (name.size() > 4 && name.substr(0, 2) == "<[" && name.substr(name.size() - 2) == "]>") {
    const std::string_view digits = name.substr(2, name.size() - 4);
    std::size_t id = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), id);
    if (error == std::errc() && end == digits.end())
      return id < size() ? std::optional(static_cast<Token>(id)) : std::nullopt;
  }
  if (const auto control = find_control(name)) return control;
  std::uint32_t at = 0;
  for (const char c : name) {
    const std::uint32_t end = nodes_[at].end;
    std::uint32_t child = at + 1;
    while (child < end && nodes_[child].byte != static_cast<unsigned char>(c)) child = nodes_[child].end;
    if (child >= end) return std::nullopt;
    at = child;
  }
  std::optional<Token> found;
  for_each_token(at, [&](std::size_t token) { found = static_cast<Token>(token); });
  return found;
}

}  // namespace quipu::text::grammar

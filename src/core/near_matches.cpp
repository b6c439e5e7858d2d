#include "core/near_matches.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <string>
#include <utility>

namespace quipu {
namespace {

/// Letters and digits only, in lower case: "gpt-oss" and "GPT_OSS" are the same name.
std::string bare(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 64))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Insertions, deletions and replacements from one to the other. Source: Levenshtein 1966.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string_view> near_matches(std::string_view name,
                                           const std::vector<std::string_view>& names) {
  constexpr std::size_t kMost = 5, kShared = 3;
  const std::string wanted = bare(name);
  std::vector<std::pair<std::size_t, std::string_view>> found;
  for (const std::string_view candidate : names) {
    const std::string other = bare(candidate);
    const auto shared = static_cast<std::size_t>(
        std::mismatch(wanted.begin(), wanted.end(), other.begin(), other.end()).first - wanted.begin());
    const std::size_t distance = edits(wanted, other);
    if (shared >= kShared || distance <= std::max(wanted.size(), other.size()) / 3)
      found.emplace_back(distance, candidate);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> near;
  for (std::size_t i = 0; i < std::min(kMost, found.size()); ++i) near.push_back(found[i].second);
  return near;
}

}  // namespace quipu

// How byte-level BPE families cut a text into pieces before merging.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/regex.hpp"

namespace quipu::text {

/// One family's rule. Steps are applied in order: each cuts every piece left by those before into its matches
/// and the stretches between matches, and both are kept.
struct PretokenizerRule {
  /// An expression in PCRE2 syntax, or one of the two kDigits… names below.
  std::vector<std::string_view> steps;
  bool ignore_merges = false;       ///< a piece that is a whole vocabulary entry is taken before any merge
  bool add_bos = false;             ///< default where tokenizer.ggml.add_bos_token is absent
  bool byte_level = true;           ///< false: merges on plain UTF-8, spaces as U+2581, byte tokens <0xNN>
  bool whole_newline_runs = false;  ///< a run of newlines that is one entry is taken before any merge
};

/// Digits in groups of three, counted from the right: 1|234|567. The expressions of the original tokenizers
/// look ahead to the end of the run at each group, which is quadratic; these are the same cuts, found from
/// the run's length.
inline constexpr std::string_view kDigitsFromRight = "digits-from-right";
/// The same, but a run that is followed by a letter or an underscore stays whole.
inline constexpr std::string_view kDigitsFromRightAtBoundary = "digits-from-right-at-boundary";

/// The rule that tokenizer.ggml.pre names; nullptr when quipu does not know it.
const PretokenizerRule* find_pretokenizer_rule(std::string_view name);
/// Every rule there is; names are separated by spaces, the most usual one first.
struct NamedPretokenizerRule {
  std::string_view names;
  const PretokenizerRule* rule;
};
std::vector<NamedPretokenizerRule> pretokenizer_rules();
/// The names it knows, separated by commas, for messages.
std::string known_pretokenizer_names();

class Pretokenizer {
 public:
  explicit Pretokenizer(const PretokenizerRule& rule);

  /// Appends the pieces of `text`, views into it, in order and without gaps. Invalid UTF-8 sequences are
  /// pieces of their own. Throws `Error` (unsupported) when an expression exceeds its limits.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  void split_valid(std::string_view text, RegexScratch& scratch, std::vector<std::string_view>& pieces) const;

  enum class Kind { regex, digits, digits_at_boundary };
  struct Step {
    Kind kind;
    std::size_t regex;  ///< index into regexes_
  };
  std::vector<Step> steps_;
  std::vector<Regex> regexes_;
};

}  // namespace quipu::text

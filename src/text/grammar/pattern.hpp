// Regular expressions of ECMA-262 (flag u) as expressions.
#pragma once

#include <string_view>

#include "text/grammar/code_points.hpp"

namespace quipu::text::grammar {

/// Longest pattern, in bytes.
inline constexpr std::size_t kMaxPattern = 65536;

enum class Anchoring {
  whole,     ///< the pattern is the whole text
  anywhere,  ///< the text has a match somewhere, as JSON Schema's `pattern` means it
};

/// The texts that a pattern matches. Alternation, groups, classes, counted and lazy repeats, anchors, the
/// escapes \d \w \s \t … \xHH \uHHHH \u{…} \p{General_Category}, lookahead outside of repeats. Throws `Error`
/// that quotes the pattern and gives the offset: invalid_argument for what is no pattern, unsupported for
/// lookbehind, backreferences, \b, flags, other properties.
Id pattern(Encoder& encoder, std::string_view source, Anchoring anchoring);

}  // namespace quipu::text::grammar

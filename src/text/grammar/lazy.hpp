// Grammars that hold only from a trigger on, as llama.cpp's lazy grammars.
#pragma once

#include <span>
#include <string>

#include "text/grammar/grammar.hpp"

namespace quipu::text::grammar {

struct Trigger {
  std::string text;  ///< a word, or the text of the token
  Token token = -1;  ///< a token that writes no text and triggers; -1: the word does, wherever it stands
};

/// Any text; from the first trigger on, that trigger included, one of the grammar. The text may end without
/// any. A token that triggers is read as the token that the grammar names, or as the characters of its text.
/// For grammars from GBNF. Throws `Error` (invalid_argument): no triggers, an empty one, or one that the
/// grammar does not begin with.
Grammar lazy(const Grammar& grammar, std::span<const Trigger> triggers);

}  // namespace quipu::text::grammar

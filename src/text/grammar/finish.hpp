// From what a front end built to what the automaton runs on.
#pragma once

#include "text/grammar/expression.hpp"

namespace quipu::text::grammar {

/// Copies the grammar that starts at `root` into `to` (new and empty): rules without any finite text are
/// taken out, regular parts become lexemes, `to` is frozen. Returns the start there. Throws `Error`
/// (invalid_argument): no text fits, or a rule that calls itself before it reads anything, by name.
Id finish(const Store& from, Id root, Store& to);

}  // namespace quipu::text::grammar

// GBNF, the grammar files of llama.cpp.
#pragma once

#include <string_view>

#include "text/grammar/expression.hpp"

namespace quipu::text::grammar {

/// Longest grammar text, in bytes.
inline constexpr std::size_t kMaxGbnf = std::size_t{4} << 20;

/// Rules `name ::= …` with literals, classes, `.`, groups, alternatives, `* + ? {m} {m,} {m,n}`, comments,
/// the escapes \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH, and tokens of the vocabulary: one by its text,
/// <…>, or by its number, <[id]>, and any one but that, !<…> and !<[id]>. Returns the rule `root`. Throws
/// `Error` with line and column.
Id gbnf(Store& store, std::string_view source, std::string_view root = "root");

}  // namespace quipu::text::grammar

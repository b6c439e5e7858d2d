// Plain prompts of the completion dialects: text, token ids, or a mix.
#pragma once

#include <string>
#include <vector>

#include "server/request_fields.hpp"
#include "text/tokenizer.hpp"

namespace quipu::server {

struct Prompt {
  std::vector<text::Token> tokens;
  std::string text;  ///< as given; of ids, what they spell
};

/// The prompts of field `name`: a string, a list of token ids, or a list of those. A list that mixes strings
/// and ids, as llama.cpp has it, is one prompt. BOS goes in front of text as the model asks, once;
/// "add_special_tokens" false leaves it out. Throws a 400: missing, empty, a token outside of the vocabulary.
std::vector<Prompt> read_prompts(const Fields& fields, std::string_view name,
                                 const text::Tokenizer& tokenizer);

}  // namespace quipu::server

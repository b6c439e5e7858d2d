// One factory a tokenizer family; each throws `Error` that names the key at fault.
#pragma once

#include <memory>

#include "text/tokenizer.hpp"

namespace quipu::text {

std::unique_ptr<Tokenizer> make_bpe(const gguf::Metadata& metadata);        ///< "gpt2", "gemma4"
std::unique_ptr<Tokenizer> make_spm(const gguf::Metadata& metadata);        ///< "llama"
std::unique_ptr<Tokenizer> make_unigram(const gguf::Metadata& metadata);    ///< "t5"
std::unique_ptr<Tokenizer> make_wordpiece(const gguf::Metadata& metadata);  ///< "bert"

}  // namespace quipu::text

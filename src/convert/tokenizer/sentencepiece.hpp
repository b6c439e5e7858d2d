// SentencePiece models: the fields of the protobuf message that a tokenizer needs. Source: the message
// ModelProto in the SentencePiece repository (sentencepiece_model.proto), and the protobuf wire format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convert/tokenizer/vocabulary.hpp"

namespace quipu::convert {

struct SentencePieceModel {
  enum class Kind : std::uint8_t { unigram = 1, bpe = 2, word = 3, characters = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    std::uint32_t type = 1;  ///< normal, unknown, control, user-defined, unused, byte: as in GGUF
  };
  std::vector<Piece> pieces;
  Kind kind = Kind::unigram;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true;
  std::string charsmap;
};

/// Throws `Error` (bad_file) that names the file and the offset.
SentencePieceModel parse_sentencepiece(std::span<const std::byte> bytes, const std::string& file);

/// The model's pieces as a vocabulary of the GGUF model "llama" (BPE) or "t5" (Unigram). Throws `Error`:
/// unsupported for the other kinds, bad_file for more pieces than rows.
void read_sentencepiece(const SentencePieceModel& model, const std::string& file, Vocabulary& vocabulary);

}  // namespace quipu::convert

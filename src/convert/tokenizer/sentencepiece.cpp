#include "convert/tokenizer/sentencepiece.hpp"

#include <cmath>
#include <cstring>
#include <string_view>

#include "core/error.hpp"

namespace quipu::convert {
namespace {

constexpr std::size_t kMostPieces = std::size_t{1} << 22;

/// The wire format: fields of a number and a payload. Nothing is read outside of the bytes.
class Message {
 public:
  Message(std::string_view bytes, std::size_t offset, const std::string& file)
      : bytes_(bytes), offset_(offset), file_(&file) {}

  struct Field {
    std::uint64_t number = 0, wire = 0, value = 0;
    std::string_view bytes;  // of wire type 2
    std::size_t offset = 0;  // of those bytes in the file
  };

  bool next(Field& field) {
    if (position_ == bytes_.size()) return false;
    const std::uint64_t tag = varint();
    field.number = tag >> 3;
    field.wire = tag & 7;
    field.bytes = {};
    if (field.number == 0) refuse("a field with number 0");
    switch (field.wire) {
      case 0:
        field.value = varint();
        return true;
      case 1:
        field.value = fixed<std::uint64_t>();
        return true;
      case 2: {
        const std::uint64_t length = varint();
        if (length > bytes_.size() - position_) refuse("a field that is longer than the file");
        field.offset = offset_ + position_;
        field.bytes = bytes_.substr(position_, length);
        position_ += length;
        return true;
      }
      case 5:
        field.value = fixed<std::uint32_t>();
        return true;
      default:
        refuse("an unknown wire type");
    }
  }
  Message inner(const Field& field) const { return {field.bytes, field.offset, *file_}; }
  void require(const Field& field, std::uint64_t wire) const {
    if (field.wire != wire) refuse("a field of another wire type than expected");
  }

 private:
  [[noreturn]] void refuse(std::string_view found) const {
    fail(ErrorCode::bad_file, "{}: not a SentencePiece model: {} at offset {}", printable(*file_, 1000),
         found, offset_ + position_);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (position_ == bytes_.size()) refuse("the end inside of a number");
      const auto byte = static_cast<unsigned char>(bytes_[position_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number of more than ten bytes");
  }
  template <class T>
  T fixed() {
    if (bytes_.size() - position_ < sizeof(T)) refuse("the end inside of a number");
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::string_view bytes_;
  std::size_t position_ = 0, offset_;
  const std::string* file_;
};

float to_float(std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  float value;
  std::memcpy(&value, &low, sizeof(value));
  return value;
}

SentencePieceModel::Piece parse_piece(Message message, std::size_t index, const std::string& file) {
  SentencePieceModel::Piece piece;
  Message::Field field;
  while (message.next(field)) {
    if (field.number == 1) {
      message.require(field, 2);
      piece.text = field.bytes;
    } else if (field.number == 2) {
      message.require(field, 5);
      piece.score = to_float(field.value);
    } else if (field.number == 3) {
      message.require(field, 0);
      piece.type = static_cast<std::uint32_t>(field.value);
      if (field.value < 1 || field.value > 6)
        fail(ErrorCode::bad_file, "{}: piece {} has the type {}, expected 1 to 6", printable(file, 1000),
             index, field.value);
    }
  }
  if (piece.text.empty() || !std::isfinite(piece.score))
    fail(ErrorCode::bad_file,
         "{}: piece {} has the text \"{}\" and the score {}, expected a text and a number",
         printable(file, 1000), index, printable(piece.text), piece.score);
  return piece;
}

}  // namespace

SentencePieceModel parse_sentencepiece(std::span<const std::byte> bytes, const std::string& file) {
  SentencePieceModel model;
  Message message({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 0, file);
  Message::Field field;
  while (message.next(field)) {
    if (field.number < 1 || field.number > 3) continue;
    message.require(field, 2);
    if (field.number == 1) {
      if (model.pieces.size() == kMostPieces)
        fail(ErrorCode::bad_file, "{}: more than {} pieces", printable(file, 1000), kMostPieces);
      model.pieces.push_back(parse_piece(message.inner(field), model.pieces.size(), file));
      continue;
    }
    Message inner = message.inner(field);
    Message::Field part;
    while (inner.next(part)) {
      if (field.number == 2 && part.number == 3 && part.value >= 1 && part.value <= 4)
        model.kind = static_cast<SentencePieceModel::Kind>(part.value);
      if (field.number != 3) continue;
      if (part.number == 2) model.charsmap = part.bytes;
      if (part.number == 3) model.add_dummy_prefix = part.value != 0;
      if (part.number == 4) model.remove_extra_whitespaces = part.value != 0;
    }
  }
  if (model.pieces.empty())
    fail(ErrorCode::bad_file, "{}: not a SentencePiece model: it has no pieces", printable(file, 1000));
  return model;
}

void read_sentencepiece(const SentencePieceModel& model, const std::string& file, Vocabulary& vocabulary) {
  const bool is_bpe = model.kind == SentencePieceModel::Kind::bpe;
  if (!is_bpe && model.kind != SentencePieceModel::Kind::unigram)
    fail(ErrorCode::unsupported, "{}: a SentencePiece model of words or characters, expected BPE or Unigram",
         printable(file, 1000));
  vocabulary.model = is_bpe ? "llama" : "t5";
  vocabulary.has_scores = true;
  vocabulary.add_space_prefix = model.add_dummy_prefix;
  if (!is_bpe) {
    vocabulary.remove_extra_spaces = model.remove_extra_whitespaces;
    vocabulary.charsmap = model.charsmap;
  }
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    vocabulary.place(i, piece.text, static_cast<text::TokenType>(piece.type), piece.score, file);
  }
}

}  // namespace quipu::convert

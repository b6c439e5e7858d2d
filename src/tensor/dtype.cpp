#include "tensor/dtype.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "core/error.hpp"
#include "tensor/codecs.hpp"

namespace quipu {
namespace {

using namespace codecs;

// Sizes: docs/formats.md. In the order of the GGUF numbers.
constexpr std::array kTable{
    DTypeInfo{DType::f32, "F32", 1, 4, false, decode_f32, encode_f32},
    DTypeInfo{DType::f16, "F16", 1, 2, false, decode_f16, encode_f16},
    DTypeInfo{DType::q4_0, "Q4_0", 32, 18, false, decode_q4_0, encode_q4_0},
    DTypeInfo{DType::q4_1, "Q4_1", 32, 20, false, decode_q4_1, encode_q4_1},
    DTypeInfo{DType::q5_0, "Q5_0", 32, 22, false, decode_q5_0, encode_q5_0},
    DTypeInfo{DType::q5_1, "Q5_1", 32, 24, false, decode_q5_1, encode_q5_1},
    DTypeInfo{DType::q8_0, "Q8_0", 32, 34, false, decode_q8_0, encode_q8_0},
    DTypeInfo{DType::q8_1, "Q8_1", 32, 36, false, nullptr, nullptr},
    DTypeInfo{DType::q2_k, "Q2_K", 256, 84, false, decode_q2_k, encode_q2_k},
    DTypeInfo{DType::q3_k, "Q3_K", 256, 110, false, decode_q3_k, encode_q3_k},
    DTypeInfo{DType::q4_k, "Q4_K", 256, 144, false, decode_q4_k, encode_q4_k},
    DTypeInfo{DType::q5_k, "Q5_K", 256, 176, false, decode_q5_k, encode_q5_k},
    DTypeInfo{DType::q6_k, "Q6_K", 256, 210, false, decode_q6_k, encode_q6_k},
    DTypeInfo{DType::q8_k, "Q8_K", 256, 292, false, nullptr, nullptr},
    DTypeInfo{DType::iq2_xxs, "IQ2_XXS", 256, 66, false, nullptr, nullptr},
    DTypeInfo{DType::iq2_xs, "IQ2_XS", 256, 74, false, nullptr, nullptr},
    DTypeInfo{DType::iq3_xxs, "IQ3_XXS", 256, 98, false, nullptr, nullptr},
    DTypeInfo{DType::iq1_s, "IQ1_S", 256, 50, false, nullptr, nullptr},
    DTypeInfo{DType::iq4_nl, "IQ4_NL", 32, 18, false, decode_iq4_nl, encode_iq4_nl},
    DTypeInfo{DType::iq3_s, "IQ3_S", 256, 110, false, nullptr, nullptr},
    DTypeInfo{DType::iq2_s, "IQ2_S", 256, 82, false, nullptr, nullptr},
    DTypeInfo{DType::iq4_xs, "IQ4_XS", 256, 136, false, decode_iq4_xs, encode_iq4_xs},
    DTypeInfo{DType::i8, "I8", 1, 1, true, nullptr, nullptr},
    DTypeInfo{DType::i16, "I16", 1, 2, true, nullptr, nullptr},
    DTypeInfo{DType::i32, "I32", 1, 4, true, nullptr, nullptr},
    DTypeInfo{DType::i64, "I64", 1, 8, true, nullptr, nullptr},
    DTypeInfo{DType::f64, "F64", 1, 8, false, nullptr, nullptr},
    DTypeInfo{DType::iq1_m, "IQ1_M", 256, 56, false, nullptr, nullptr},
    DTypeInfo{DType::bf16, "BF16", 1, 2, false, decode_bf16, encode_bf16},
    DTypeInfo{DType::tq1_0, "TQ1_0", 256, 54, false, nullptr, nullptr},
    DTypeInfo{DType::tq2_0, "TQ2_0", 256, 66, false, nullptr, nullptr},
    DTypeInfo{DType::mxfp4, "MXFP4", 32, 17, false, decode_mxfp4, encode_mxfp4},
    DTypeInfo{DType::nvfp4, "NVFP4", 64, 36, false, nullptr, nullptr},
    DTypeInfo{DType::q1_0, "Q1_0", 128, 18, false, nullptr, nullptr},
    DTypeInfo{DType::q2_0, "Q2_0", 64, 18, false, nullptr, nullptr},
};

// Row of each GGUF number, or kNoRow. Rows are looked up in inner loops, so by index.
constexpr std::size_t kNoRow = kTable.size();
constexpr std::size_t kNumbers = 1 + static_cast<std::size_t>(kTable.back().dtype);
constexpr std::array<std::size_t, kNumbers> kRowOfNumber = [] {
  std::array<std::size_t, kNumbers> rows{};
  for (std::size_t& row : rows) row = kNoRow;
  for (std::size_t row = 0; row < kTable.size(); ++row)
    rows[static_cast<std::size_t>(kTable[row].dtype)] = row;
  return rows;
}();

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return upper(x) == upper(y); });
}

}  // namespace

std::span<const DTypeInfo> all_dtypes() { return kTable; }

const DTypeInfo* find_dtype(std::uint32_t gguf_number) {
  if (gguf_number >= kNumbers || kRowOfNumber[gguf_number] == kNoRow) return nullptr;
  return &kTable[kRowOfNumber[gguf_number]];
}

const DTypeInfo* find_dtype(std::string_view name) {
  for (const DTypeInfo& row : kTable)
    if (equal_ignoring_case(row.name, name)) return &row;
  return nullptr;
}

const DTypeInfo& info(DType dtype) {
  const DTypeInfo* row = find_dtype(static_cast<std::uint32_t>(dtype));
  if (row == nullptr)
    fail(ErrorCode::internal, "{} is not a tensor type number", static_cast<std::uint32_t>(dtype));
  return *row;
}

std::size_t row_bytes(DType dtype, std::size_t n) {
  const DTypeInfo& row = info(dtype);
  if (n % row.block_size != 0)
    fail(ErrorCode::invalid_argument, "a row of {} elements cannot be {}; expected a multiple of {}", n,
         row.name, row.block_size);
  const std::size_t blocks = n / row.block_size;
  if (blocks > std::numeric_limits<std::size_t>::max() / row.block_bytes)
    fail(ErrorCode::invalid_argument, "a row of {} {} elements does not fit the address space", n, row.name);
  return blocks * row.block_bytes;
}

}  // namespace quipu

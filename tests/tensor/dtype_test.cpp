#include "tensor/dtype.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include "core/error.hpp"
#include "support.hpp"
#include "tensor/tensor.hpp"

namespace quipu {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// types.txt lists what ggml itself reports.
TEST(DTypeTable, NumbersNamesAndSizesAreThoseOfGgml) {
  std::ifstream file(test::source_path("tests/goldens/tensor/types.txt"));
  ASSERT_TRUE(file.is_open());
  std::size_t count = 0;
  std::uint32_t number = 0, elements = 0, bytes = 0;
  for (std::string name; file >> number >> name >> elements >> bytes; ++count) {
    const DTypeInfo* row = find_dtype(number);
    ASSERT_NE(row, nullptr) << number << ' ' << name;
    EXPECT_EQ(row->name, upper(name));
    EXPECT_EQ(row->block_size, elements) << name;
    EXPECT_EQ(row->block_bytes, bytes) << name;
  }
  EXPECT_EQ(count, all_dtypes().size());
}

TEST(DTypeTable, HasNoRowTwice) {
  std::set<std::string_view> names;
  for (const DTypeInfo& row : all_dtypes()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(find_dtype(static_cast<std::uint32_t>(row.dtype)), &row);
    EXPECT_EQ(find_dtype(row.name), &row);
    EXPECT_EQ(&info(row.dtype), &row);
    EXPECT_EQ(to_string(row.dtype), row.name);
  }
}

TEST(DTypeTable, WithdrawnAndUnknownNumbersAreUnknown) {
  for (const std::uint32_t number : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 999U, 0xFFFFFFFFU})
    EXPECT_EQ(find_dtype(number), nullptr) << number;
}

TEST(DTypeTable, NamesAreFoundInAnyCase) {
  EXPECT_EQ(find_dtype("q4_k")->dtype, DType::q4_k);
  EXPECT_EQ(find_dtype("Q4_K")->dtype, DType::q4_k);
  EXPECT_EQ(find_dtype("bF16")->dtype, DType::bf16);
  for (const std::string_view name : {"", "q4", "q4_k ", "q4_kk", "float"})
    EXPECT_EQ(find_dtype(name), nullptr);
}

TEST(DTypeTable, OnlyIntegersAreIntegers) {
  for (const DTypeInfo& row : all_dtypes()) {
    const bool integer = row.name == "I8" || row.name == "I16" || row.name == "I32" || row.name == "I64";
    EXPECT_EQ(row.is_integer, integer) << row.name;
  }
}

TEST(DTypeTable, HasBothCodecsOfATypeOrNeither) {
  const std::set<std::string_view> expected{"F32",  "F16",    "BF16",   "Q4_0", "Q4_1", "Q5_0",
                                            "Q5_1", "Q8_0",   "Q2_K",   "Q3_K", "Q4_K", "Q5_K",
                                            "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
  for (const DTypeInfo& row : all_dtypes()) {
    EXPECT_EQ(row.decode != nullptr, expected.contains(row.name)) << row.name;
    EXPECT_EQ(row.encode != nullptr, expected.contains(row.name)) << row.name;
  }
}

TEST(RowBytes, CountsBlocks) {
  EXPECT_EQ(row_bytes(DType::f32, 3), 12U);
  EXPECT_EQ(row_bytes(DType::q4_0, 64), 36U);
  EXPECT_EQ(row_bytes(DType::q6_k, 512), 420U);
  EXPECT_EQ(row_bytes(DType::mxfp4, 0), 0U);
}

std::string message_of(DType dtype, std::size_t n) {
  try {
    row_bytes(dtype, n);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(RowBytes, RefusesPartsOfABlockAndNamesBothNumbers) {
  EXPECT_EQ(message_of(DType::q4_0, 33), "a row of 33 elements cannot be Q4_0; expected a multiple of 32");
  EXPECT_EQ(message_of(DType::q6_k, 128), "a row of 128 elements cannot be Q6_K; expected a multiple of 256");
}

TEST(RowBytes, RefusesSizesBeyondTheAddressSpace) {
  const std::size_t largest = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(row_bytes(DType::f32, largest / 4), largest / 4 * 4);
  EXPECT_NE(message_of(DType::f32, largest / 4 + 1).find("does not fit"), std::string::npos);
}

TEST(TensorView, CountsRowsElementsAndBytes) {
  TensorView tensor{"w", DType::q8_0, {64, 3, 2, 1}, nullptr};
  EXPECT_EQ(tensor.width(), 64);
  EXPECT_EQ(tensor.rows(), 6);
  EXPECT_EQ(tensor.elements(), 384);
  EXPECT_EQ(tensor.row_bytes(), 68U);
  EXPECT_EQ(tensor.bytes(), 408U);
}

TEST(TensorView, ShapeTextLeavesTrailingOnesOut) {
  TensorView tensor;
  EXPECT_EQ(shape_text(tensor), "1");
  tensor.shape = {16, 32, 1, 1};
  EXPECT_EQ(shape_text(tensor), "16x32");
  tensor.shape = {1, 1, 1, 5};
  EXPECT_EQ(shape_text(tensor), "1x1x1x5");
  tensor.shape = {7, 1, 1, 1};
  EXPECT_EQ(shape_text(tensor), "7");
}

}  // namespace
}  // namespace quipu

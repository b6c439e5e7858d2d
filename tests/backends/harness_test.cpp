// The comparer of the op tests, tested itself.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness.hpp"

namespace quipu::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Comparer, AcceptsWhatLiesWithinTheTolerance) {
  const std::vector<float> want{1.0F, -2.0F, 0.0F, kInf};
  const std::vector<float> got{1.0009F, -2.0019F, 0.00009F, kInf};
  EXPECT_EQ(difference(got, want, {1e-4, 1e-3}), "");
}

TEST(Comparer, RefusesWhatLiesBeyondItOnEitherSideAndOfEitherSign) {
  for (const float want : {1.0F, -1.0F})
    for (const float got : {want * 1.002F, want * 0.998F, -want, 0.0F})
      EXPECT_NE(difference(std::vector<float>{got}, std::vector<float>{want}, {1e-4, 1e-3}), "")
          << got << " for " << want;
}

TEST(Comparer, RefusesNaNAndInfinityWhereANumberIsExpected) {
  for (const float bad : {kNaN, kInf, -kInf})
    EXPECT_NE(difference(std::vector<float>{bad}, std::vector<float>{1.0F}, {1e30, 1e30}), "");
  EXPECT_NE(difference(std::vector<float>{1.0F}, std::vector<float>{kNaN}, {1e30, 1e30}), "");
  EXPECT_NE(difference(std::vector<float>{-kInf}, std::vector<float>{kInf}, {1e30, 1e30}), "");
}

TEST(Comparer, RefusesAnotherNumberOfValues) {
  EXPECT_NE(difference(std::vector<float>{1, 2}, std::vector<float>{1}, {1, 1}), "");
  EXPECT_NE(difference(std::vector<float>{}, std::vector<float>{1}, {1, 1}), "");
  EXPECT_NE(byte_difference(std::vector<float>{}, std::vector<float>{1}), "");
}

TEST(Comparer, NamesTheWorstElement) {
  const std::vector<float> want{1, 1, 1}, got{1.1F, 3.0F, 1.2F};
  EXPECT_NE(difference(got, want, {0.01, 0}).find("element 1:"), std::string::npos);
  EXPECT_NE(difference(got, want, {0.01, 0}).find("3 of 3"), std::string::npos);
}

TEST(Comparer, TellsBytesApartThatCompareEqual) {
  EXPECT_EQ(byte_difference(std::vector<float>{0.0F, kNaN}, std::vector<float>{0.0F, kNaN}), "");
  EXPECT_NE(byte_difference(std::vector<float>{-0.0F}, std::vector<float>{0.0F}), "");
  EXPECT_NE(byte_difference(std::vector<float>{std::nextafter(1.0F, 2.0F)}, std::vector<float>{1.0F}), "");
}

TEST(Harness, UnwrittenCacheBytesAreNaNInEveryCacheDtype) {
  for (const DType dtype : graph::kCacheDtypes) {
    const std::vector<std::byte> row(row_bytes(dtype, 32), std::byte{0xFF});
    std::vector<float> values(32);
    info(dtype).decode(row.data(), values.data(), values.size());
    for (const float value : values) EXPECT_TRUE(std::isnan(value)) << to_string(dtype);
  }
}

TEST(Harness, RandomFloatsAreAFunctionOfTheSeed) {
  EXPECT_EQ(random_floats(7, 100), random_floats(7, 100));
  EXPECT_NE(random_floats(7, 100), random_floats(8, 100));
}

}  // namespace
}  // namespace quipu::test

// Half and bfloat16 conversions: every 16-bit pattern, and every boundary between two neighbours.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tensor/dtype.hpp"

namespace quipu {
namespace {

// The value of a finite pattern by the definition in IEEE 754, as exact double.
double value_of(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = static_cast<int>(bits) & ((1 << fraction_bits) - 1);
  const double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(Half, EveryPatternDecodesToItsDefinition) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(h));
    if ((h & 0x7C00) != 0x7C00) {
      ASSERT_EQ(static_cast<double>(value), value_of(h, 5, 10)) << h;
      ASSERT_EQ(std::signbit(value), h >= 0x8000) << h;
    } else if ((h & 0x3FF) == 0) {
      ASSERT_TRUE(std::isinf(value) && std::signbit(value) == (h >= 0x8000)) << h;
    } else {
      ASSERT_TRUE(std::isnan(value)) << h;
    }
  }
}

TEST(Half, EveryFiniteAndInfinitePatternSurvivesTheRoundTrip) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(h));
    const std::uint16_t again = f32_to_f16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE((again & 0x7C00) == 0x7C00 && (again & 0x3FF) != 0) << h;
    } else {
      ASSERT_EQ(again, h);
    }
  }
}

// For neighbours a < b: below the midpoint goes to a, above it to b, the midpoint to the even one.
TEST(Half, RoundsToNearestEvenBetweenEveryTwoNeighbours) {
  for (std::uint32_t h = 0; h < 0x7C00; ++h) {
    // 65536 would follow the largest half if the exponent went on: IEEE rounds by it to infinity.
    const double above = h == 0x7BFF ? 65536.0 : value_of(h + 1, 5, 10);
    const float middle = static_cast<float>((value_of(h, 5, 10) + above) / 2);
    const std::uint32_t even = h % 2 == 0 ? h : h + 1;
    ASSERT_EQ(f32_to_f16(middle), even) << h;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0F)), h) << h;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e6F)), h + 1) << h;
    ASSERT_EQ(f32_to_f16(-middle), 0x8000 + even) << h;
  }
}

TEST(Half, LargeTinyAndSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(infinity), 0x7C00);
  EXPECT_EQ(f32_to_f16(-infinity), 0xFC00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(f32_to_f16(65519.996F), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0x7F800001U)) & 0x7E00, 0x7E00);  // a signalling NaN, payload low
}

TEST(BFloat16, EveryPatternDecodesToItsDefinitionAndBack) {
  for (std::uint32_t b = 0; b < 0x10000; ++b) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(b));
    const std::uint16_t again = f32_to_bf16(value);
    if ((b & 0x7F80) != 0x7F80) {
      ASSERT_EQ(static_cast<double>(value), value_of(b, 8, 7)) << b;
      ASSERT_EQ(again, b);
    } else if ((b & 0x7F) == 0) {
      ASSERT_TRUE(std::isinf(value)) << b;
      ASSERT_EQ(again, b);
    } else {
      ASSERT_TRUE(std::isnan(value)) << b;
      ASSERT_TRUE((again & 0x7F80) == 0x7F80 && (again & 0x7F) != 0) << b;
    }
  }
}

TEST(BFloat16, RoundsToNearestEvenBetweenEveryTwoNeighbours) {
  for (std::uint32_t b = 0; b < 0x7F80; ++b) {
    const std::uint32_t middle = (b << 16) + 0x8000;
    const std::uint32_t even = b % 2 == 0 ? b : b + 1;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle)), even) << b;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle - 1)), b) << b;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle + 1)), b + 1) << b;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle | 0x80000000U)), even | 0x8000) << b;
  }
}

TEST(BFloat16, LargestFloatRoundsToInfinityAndNanStaysNan) {
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7F800001U)), 0x7FC0);  // payload would vanish: made quiet
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0xFFFFFFFFU)), 0xFFFF);
}

TEST(FloatRows, KeepSpecialValues) {
  const float values[3] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                           -0.0F};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::byte bytes[12];
    float back[3];
    info(dtype).encode(values, bytes, 3);
    info(dtype).decode(bytes, back, 3);
    EXPECT_EQ(back[0], values[0]);
    EXPECT_TRUE(std::isnan(back[1]));
    EXPECT_EQ(bits_of(back[2]), 0x80000000U);
  }
}

}  // namespace
}  // namespace quipu

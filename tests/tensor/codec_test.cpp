// The block formats against ggml: tools/goldens/make_tensor_goldens.py wrote the expected bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support.hpp"
#include "tensor/blocks.hpp"
#include "tensor/dtype.hpp"

namespace quipu {
namespace {

std::vector<std::byte> read_golden(const std::string& name) {
  std::ifstream file(test::source_path("tests/goldens/tensor/" + name), std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<float> read_floats(const std::string& name) {
  const std::vector<std::byte> bytes = read_golden(name);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

// The same bits, or both NaN.
bool same_float(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
}

std::vector<std::byte> encode(const DTypeInfo& type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(row_bytes(type.dtype, values.size()));
  type.encode(values.data(), bytes.data(), values.size());
  return bytes;
}

std::vector<float> decode(const DTypeInfo& type, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / type.block_bytes * type.block_size);
  type.decode(bytes.data(), values.data(), values.size());
  return values;
}

std::vector<float> round_trip(const DTypeInfo& type, const std::vector<float>& values) {
  return decode(type, encode(type, values));
}

std::vector<float> normals(std::size_t n, float deviation) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

class BlockFormat : public testing::TestWithParam<const char*> {
 protected:
  const DTypeInfo& type() const { return *find_dtype(std::string_view(GetParam())); }
};

TEST_P(BlockFormat, DecodesEveryBitPatternAsGgml) {
  const std::vector<std::byte> blocks = read_golden(std::string(GetParam()) + ".blocks");
  const std::vector<float> expected = read_floats(std::string(GetParam()) + ".decoded");
  ASSERT_EQ(expected.size(), 1024U);
  const std::vector<float> decoded = decode(type(), blocks);
  ASSERT_EQ(decoded.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_TRUE(same_float(decoded[i], expected[i]))
        << "element " << i << ": " << decoded[i] << " vs " << expected[i];
}

TEST_P(BlockFormat, EncodesToTheBytesOfGgml) {
  const std::vector<float> values = read_floats("input.f32");
  ASSERT_EQ(values.size(), 2048U);
  const std::vector<std::byte> expected = read_golden(std::string(GetParam()) + ".encoded");
  const std::vector<std::byte> encoded = encode(type(), values);
  ASSERT_EQ(encoded.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(encoded[i], expected[i])
        << "byte " << i % type().block_bytes << " of block " << i / type().block_bytes;
}

TEST_P(BlockFormat, BlocksMayLieAtAnyAddress) {
  const std::vector<std::byte> blocks = read_golden(std::string(GetParam()) + ".blocks");
  const std::vector<float> expected = decode(type(), blocks);
  std::vector<std::byte> shifted(blocks.size() + 1);
  std::memcpy(shifted.data() + 1, blocks.data(), blocks.size());
  std::vector<float> decoded(expected.size());
  type().decode(shifted.data() + 1, decoded.data(), decoded.size());
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_TRUE(same_float(decoded[i], expected[i]));

  const std::vector<float> values = read_floats("input.f32");
  const std::vector<std::byte> encoded = encode(type(), values);
  std::vector<std::byte> target(encoded.size() + 1);
  type().encode(values.data(), target.data() + 1, values.size());
  EXPECT_EQ(std::memcmp(target.data() + 1, encoded.data(), encoded.size()), 0);
}

TEST_P(BlockFormat, TouchesOnlyTheGivenBlocks) {
  const std::vector<float> values = read_floats("input.f32");
  for (const std::size_t blocks : {0U, 1U, 3U}) {
    const std::size_t n = blocks * type().block_size, size = blocks * type().block_bytes;
    std::vector<std::byte> bytes(size + 1, std::byte{0x5A});
    type().encode(values.data(), bytes.data(), n);
    EXPECT_EQ(bytes[size], std::byte{0x5A}) << blocks << " blocks";
    std::vector<float> out(n + 1, 42.0F);
    type().decode(bytes.data(), out.data(), n);
    EXPECT_EQ(out[n], 42.0F) << blocks << " blocks";
  }
}

TEST_P(BlockFormat, StoresNanAndInfinityAsZeroAndSparesTheirNeighbours) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> clean = normals(256, 1);
  for (const std::size_t i : {0U, 31U, 100U, 255U}) clean[i] = 0;
  std::vector<float> dirty = clean;
  dirty[0] = nan, dirty[31] = infinity, dirty[100] = -infinity, dirty[255] = -nan;
  EXPECT_EQ(encode(type(), dirty), encode(type(), clean));
}

TEST_P(BlockFormat, ZerosStayZero) {
  for (const float zero : {0.0F, -0.0F})
    for (const float v : round_trip(type(), std::vector<float>(512, zero))) EXPECT_EQ(v, 0.0F);
}

TEST_P(BlockFormat, ExtremeMagnitudesGiveSomeBlockWithoutUndefinedBehaviour) {
  std::vector<float> values = normals(512, 1);
  const float largest = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  for (const float unit : {largest / 8, 1e20F, 1e-20F, 1e-38F, least * 16, least}) {
    std::vector<float> scaled = values;
    for (float& v : scaled) v *= unit;
    EXPECT_EQ(round_trip(type(), scaled).size(), 512U);  // the sanitizers judge the rest
  }
  values[0] = largest, values[1] = -largest, values[256] = least, values[257] = -least;
  EXPECT_EQ(round_trip(type(), values).size(), 512U);
}

INSTANTIATE_TEST_SUITE_P(All, BlockFormat,
                         testing::Values("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
                                         "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"),
                         [](const auto& test) { return std::string(test.param); });

// Bounds of each element's error from the definition of the format.
struct Extent {
  float least, largest, magnitude;
};
Extent extent(const float* x) {
  Extent e{x[0], x[0], 0};
  for (std::size_t i = 0; i < kSmallBlock; ++i) {
    e.least = std::min(e.least, x[i]);
    e.largest = std::max(e.largest, x[i]);
    e.magnitude = std::max(e.magnitude, std::fabs(x[i]));
  }
  return e;
}

template <class Bound>
void expect_errors_within(const char* name, Bound bound) {
  const std::vector<float> values = normals(64 * kSmallBlock, 0.5F);
  const std::vector<float> decoded = round_trip(*find_dtype(std::string_view(name)), values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Extent e = extent(values.data() + i / kSmallBlock * kSmallBlock);
    ASSERT_LE(std::fabs(decoded[i] - values[i]), bound(e) * 1.001F) << name << " element " << i;
  }
}

constexpr float kHalfRounding = 0x1p-11F;  // relative error of a scale stored as a half

TEST(RoundTrip, Q8_0IsWithinHalfAStepOf127) {
  expect_errors_within("Q8_0", [](Extent e) { return e.magnitude * (0.5F / 127 + kHalfRounding); });
}
// The codes -8..7 (-16..15) reach the extreme on one side only: a value of the other sign loses a step.
TEST(RoundTrip, Q4_0IsWithinAStepOf8) {
  expect_errors_within("Q4_0", [](Extent e) { return e.magnitude * (1.0F / 8 + kHalfRounding); });
}
TEST(RoundTrip, Q5_0IsWithinAStepOf16) {
  expect_errors_within("Q5_0", [](Extent e) { return e.magnitude * (1.0F / 16 + kHalfRounding); });
}
TEST(RoundTrip, Q4_1IsWithinHalfAStepOf15) {
  expect_errors_within("Q4_1", [](Extent e) {
    return (e.largest - e.least) * (0.5F / 15 + kHalfRounding) + std::fabs(e.least) * kHalfRounding;
  });
}
TEST(RoundTrip, Q5_1IsWithinHalfAStepOf31) {
  expect_errors_within("Q5_1", [](Extent e) {
    return (e.largest - e.least) * (0.5F / 31 + kHalfRounding) + std::fabs(e.least) * kHalfRounding;
  });
}
// Magnitude in [2^k, 2^(k+1)): the largest code is 1.5 * 2^k, the widest gap 0.5 * 2^k.
TEST(RoundTrip, Mxfp4IsWithinHalfOfTheBlocksPowerOfTwo) {
  expect_errors_within("MXFP4",
                       [](Extent e) { return 0.5F * std::exp2(std::floor(std::log2(e.magnitude))); });
}

// A step of s makes an error of s / sqrt(12) on average. Sub-blocks of 16 normal values reach 2, of 32
// values 2.05 deviations to either side; the bounds leave a quarter for the rounding of scales.
TEST(RoundTrip, SuperBlocksHaveTheRootMeanSquareErrorOfTheirStep) {
  struct Case {
    const char* name;
    double step;  // in standard deviations
  };
  const std::vector<float> values = normals(64 * kSuperBlock, 1);
  for (const Case c :
       {Case{"Q2_K", 4.0 / 3}, Case{"Q3_K", 4.0 / 7}, Case{"Q4_K", 4.1 / 15}, Case{"Q5_K", 4.1 / 31},
        Case{"Q6_K", 4.0 / 63}, Case{"IQ4_NL", 4.1 / 15}, Case{"IQ4_XS", 4.1 / 15}}) {
    const std::vector<float> decoded = round_trip(*find_dtype(std::string_view(c.name)), values);
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += std::pow(decoded[i] - values[i], 2);
    const double error = std::sqrt(sum / static_cast<double>(values.size()));
    EXPECT_LT(error, 1.25 * c.step / std::sqrt(12.0)) << c.name;
    EXPECT_GT(error, 0.4 * c.step / std::sqrt(12.0)) << c.name << " is better than its bits allow";
  }
}

// By hand from the layout: element 33 of a Q4_K block lies in the high nibble of qs[1], sub-block 1.
TEST(Layout, Q4KElementByHand) {
  BlockQ4_K block{};
  block.d = 0x3C00;     // 1.0
  block.dmin = 0x3800;  // 0.5
  block.scales[1] = 3;  // scale of sub-block 1
  block.scales[5] = 6;  // minimum of sub-block 1
  block.qs[1] = 0xA0;   // q = 10
  std::vector<std::byte> bytes(sizeof block);
  std::memcpy(bytes.data(), &block, sizeof block);
  EXPECT_EQ(decode(info(DType::q4_k), bytes)[33], 1.0F * 3 * 10 - 0.5F * 6);
}

TEST(Layout, PackedScalesByHand) {
  const std::uint8_t k4[12] = {0xC1, 0x3F, 0, 0, 0x82, 0, 0, 0, 0x53, 0, 0, 0};
  EXPECT_EQ(scale_min_k4(k4, 0).scale, 1);
  EXPECT_EQ(scale_min_k4(k4, 0).min, 2);
  EXPECT_EQ(scale_min_k4(k4, 1).scale, 63);
  EXPECT_EQ(scale_min_k4(k4, 4).scale, 0x3 | 3 << 4);
  EXPECT_EQ(scale_min_k4(k4, 4).min, 0x5 | 2 << 4);
  const std::uint8_t q3[12] = {0x2F, 0, 0, 0, 0, 0, 0, 0, 0xE3, 0, 0, 0};
  EXPECT_EQ(scale_q3_k(q3, 0), (0xF | 3 << 4) - 32);
  EXPECT_EQ(scale_q3_k(q3, 4), (0 | 0 << 4) - 32);
  EXPECT_EQ(scale_q3_k(q3, 8), (0x2 | 2 << 4) - 32);
  EXPECT_EQ(scale_q3_k(q3, 12), (0 | 3 << 4) - 32);
}

TEST(Layout, E8m0HalfIsAPowerOfTwo) {
  for (int e = 0; e < 256; ++e) EXPECT_EQ(e8m0_half(static_cast<std::uint8_t>(e)), std::ldexp(1.0F, e - 128));
}

}  // namespace
}  // namespace quipu

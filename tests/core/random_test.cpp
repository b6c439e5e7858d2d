// Philox and XXH64 against the vectors of their authors.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "core/checksum.hpp"
#include "core/philox.hpp"

namespace quipu {
namespace {

using Block = std::array<std::uint32_t, 4>;

// Random123 distribution, file kat_vectors, "philox4x32 10".
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Seed 0, position 0 has counter and key zero: words 0 and 1 of the first answer above.
TEST(PhiloxUniform, IsTheTop53BitsOfTheFirstTwoWords) {
  const std::uint64_t bits = 0xe169c58d6627e8d5ULL >> 11;
  EXPECT_EQ(philox_uniform(0, 0), static_cast<double>(bits) / 9007199254740992.0);
}

TEST(PhiloxUniform, DependsOnSeedPositionAndIndexAndOnNothingElse) {
  std::set<double> draws;
  const std::uint64_t high = 1ULL << 32;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, high})
    for (const std::uint64_t position : {std::uint64_t{0}, std::uint64_t{1}, high})
      for (const std::uint32_t index : {0U, 1U}) {
        draws.insert(philox_uniform(seed, position, index));
        EXPECT_EQ(philox_uniform(seed, position, index), philox_uniform(seed, position, index));
      }
  EXPECT_EQ(draws.size(), 18U);
}

// The mean of n uniform draws has a standard deviation of 1 / sqrt(12 n): 0.0009 here.
TEST(PhiloxUniform, LooksUniform) {
  double sum = 0, least = 1, largest = 0;
  for (std::uint64_t position = 0; position < 100000; ++position) {
    const double u = philox_uniform(42, position);
    sum += u, least = std::fmin(least, u), largest = std::fmax(largest, u);
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.004);
  EXPECT_GE(least, 0);
  EXPECT_LT(least, 0.001);
  EXPECT_LT(largest, 1);
  EXPECT_GT(largest, 0.999);
}

std::uint64_t hash(std::string_view text, std::uint64_t seed = 0) {
  return xxh64(std::as_bytes(std::span(text.data(), text.size())), seed);
}

// Published values: xxHash specification and the python-xxhash README.
TEST(Xxh64, GivesPublishedValues) {
  EXPECT_EQ(hash(""), 0xef46db3751d8e999ULL);
  EXPECT_EQ(hash("a"), 0xd24ec4f1a98c6e5bULL);
  EXPECT_EQ(hash("abc"), 0x44bc2cf5ad770999ULL);
  EXPECT_EQ(hash("xxhash"), 0x32dd38952c4bc720ULL);
  EXPECT_EQ(hash("xxhash", 20141025), 0xb559b98d844e0635ULL);
}

// Bytes (131 i + 7) mod 256, hashed by python-xxhash 3.x: every path of the tail, with and without a seed.
TEST(Xxh64, AgreesWithTheReferenceLibraryForEveryTailLength) {
  struct Case {
    std::size_t length;
    std::uint64_t plain, seeded;
  };
  constexpr Case kCases[] = {
      {1, 0xa96c7f0ce858bbb7, 0x585882422a6165e7},   {3, 0xbed43740ee6332bb, 0x45fa1406538fa168},
      {4, 0xfa212ae44b3bb23d, 0xa65107f22943365a},   {7, 0x2744460dd675d2c0, 0xc9b637e2c4599de2},
      {8, 0x994b676b71ce94dd, 0xce592d5f53e192ec},   {15, 0x09e6451ed2ff8b1d, 0x47a857d1f90c35e1},
      {16, 0x94ad0095e72b24d5, 0x3f8fea7c86a04013},  {31, 0x6711d55e306b5d8f, 0x24c4e99ab0404b5e},
      {32, 0x07f7b8e3bc5d6e25, 0x046e99bbda1a814b},  {33, 0x09f85eeb4e1cbe9f, 0xd7fe2bfee6e4cded},
      {39, 0xb13c137a0fb701c3, 0x5fed1b08fdcb15f5},  {44, 0xd02b2028c27a5329, 0xcc4d0434adee37ac},
      {63, 0xb7c9968c066cb6a5, 0xbd457f9ea47180c8},  {64, 0x50d4159a0411632e, 0xa768f350a8e4fcf6},
      {100, 0x9ddada11d3dc2d8f, 0x35546bd9a4779ae4}, {256, 0xa2dbe913965256fc, 0x0fdd97b3e0f22d80}};
  std::array<std::byte, 256> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 131 + 7);
  for (const Case& c : kCases) {
    EXPECT_EQ(xxh64(std::span(bytes).first(c.length)), c.plain) << c.length;
    EXPECT_EQ(xxh64(std::span(bytes).first(c.length), 0x9E3779B97F4A7C15), c.seeded) << c.length;
  }
}

}  // namespace
}  // namespace quipu

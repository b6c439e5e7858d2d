// Rotary frequencies against transformers (tools/goldens/make_rope_goldens.py) and by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "golden.hpp"
#include "models/model.hpp"

namespace quipu {
namespace {

using models::Hyperparameters;
using models::RopeScalingType;

TEST(RopeFrequencies, EveryMethodAgreesWithTransformers) {
  const test::Golden golden(test::golden_path("rope.golden.gguf"));
  const auto cases = golden.metadata().get_uint("golden.cases");
  ASSERT_EQ(cases, 13u);
  for (std::size_t i = 0; i < cases; ++i) {
    const auto c = *golden.metadata().try_floats("golden.case." + std::to_string(i));
    Hyperparameters h;
    h.rope_scaling.type = static_cast<RopeScalingType>(static_cast<int>(c[0]));
    h.rope_dims = h.key_dim = static_cast<std::uint32_t>(c[1]);
    h.rope_freq_base = c[2];
    h.rope_scaling.factor = c[3];
    h.rope_scaling.original_context = static_cast<std::uint32_t>(c[4]);
    h.rope_scaling.beta_fast = c[5];
    h.rope_scaling.beta_slow = c[6];
    // transformers' factor replaces the paper's 0.1 ln(s) + 1, GGUF's multiplies it.
    if (c[7] != 0) h.rope_scaling.attention_factor = c[7] / (0.1 * std::log(c[3]) + 1);
    const auto found = models::rope_frequencies(h, std::nullopt);
    EXPECT_NEAR(found.magnitude, c[8], 1e-6) << "case " << i;
    const auto expected = golden.floats("inv_freq." + std::to_string(i));
    ASSERT_EQ(found.inv_freq->size(), expected.size());
    for (std::size_t j = 0; j < expected.size(); ++j)
      EXPECT_NEAR((*found.inv_freq)[j] / expected[j], 1, 2e-6) << "case " << i << " pair " << j;
  }
}

TEST(RopeFrequencies, WithoutExtrapolationYarnIsPlainInterpolation) {
  Hyperparameters h;
  h.rope_dims = h.key_dim = 4;
  h.rope_scaling = {RopeScalingType::yarn, 4.0, 64, 0.0, 1.0, 32.0, 1.0};
  const auto found = models::rope_frequencies(h, std::nullopt);
  EXPECT_DOUBLE_EQ((*found.inv_freq)[0], 0.25);
  EXPECT_DOUBLE_EQ((*found.inv_freq)[1], 0.0025);
  EXPECT_EQ(found.magnitude, 1.0f);
}

TEST(RopeFrequencies, FactorsOfTheFileDivide) {
  Hyperparameters h;
  h.rope_dims = h.key_dim = 4;
  const float values[] = {1.0f, 8.0f};
  const TensorView factors{
      "rope_freqs.weight", DType::f32, {2, 1, 1, 1}, reinterpret_cast<const std::byte*>(values)};
  const auto found = models::rope_frequencies(h, factors);
  EXPECT_DOUBLE_EQ((*found.inv_freq)[0], 1.0);
  EXPECT_DOUBLE_EQ((*found.inv_freq)[1], 0.01 / 8);
}

TEST(RopeFrequencies, FactorsThatAreNoPositiveNumbersAreRefused) {
  Hyperparameters h;
  h.rope_dims = h.key_dim = 4;
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY}) {
    const float values[] = {1.0f, bad};
    const TensorView factors{
        "rope_freqs.weight", DType::f32, {2, 1, 1, 1}, reinterpret_cast<const std::byte*>(values)};
    EXPECT_THROW(models::rope_frequencies(h, factors), Error) << bad;
  }
}

}  // namespace
}  // namespace quipu

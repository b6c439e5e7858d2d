// Counter-based random numbers: a pure function of (seed, position, index).
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), Philox4x32-10.
#pragma once

#include <array>
#include <cstdint>

namespace quipu {

/// One Philox4x32-10 block.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// Uniform in [0, 1) with 53 random bits; draw number `index` of (`seed`, `position`).
double philox_uniform(std::uint64_t seed, std::uint64_t position, std::uint32_t index = 0);

}  // namespace quipu

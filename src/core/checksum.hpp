// A 64-bit checksum for state files and fingerprints (not cryptographic).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quipu {

/// XXH64 of `bytes`. Source: the xxHash specification 0.1.1.
std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace quipu

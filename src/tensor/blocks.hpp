// Byte layouts of the block formats, as they lie in a GGUF file (little-endian; docs/formats.md draws them).
// The codecs and the CPU kernels share these. Blocks in a file are aligned to at most 2 bytes: copy a block
// out, or read its fields where they lie; never cast to a wider type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace quipu {

/// Bits of an IEEE half; `f16_to_f32` converts.
using Half = std::uint16_t;

inline constexpr std::size_t kSmallBlock = 32;   ///< elements of Q4_0 … Q8_1, IQ4_NL, MXFP4
inline constexpr std::size_t kSuperBlock = 256;  ///< elements of the K-quants and IQ4_XS

// Blocks of 32 with 4-bit codes: byte j holds element j in its low and element j + 16 in its high nibble.

/// x = d * (q - 8)
struct BlockQ4_0 {
  Half d;
  std::uint8_t qs[16];
};
/// x = d * q + m
struct BlockQ4_1 {
  Half d, m;
  std::uint8_t qs[16];
};
/// x = d * (q - 16); bit j of the 32-bit little-endian `qh` is bit 4 of element j.
struct BlockQ5_0 {
  Half d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
/// x = d * q + m; `qh` as in Q5_0.
struct BlockQ5_1 {
  Half d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
/// x = d * q
struct BlockQ8_0 {
  Half d;
  std::int8_t qs[32];
};
/// x = kIq4Values[q] * d
struct BlockIQ4_NL {
  Half d;
  std::uint8_t qs[16];
};
/// x = kMxfp4Values[q] * e8m0_half(e): OCP Microscaling FP4 (E2M1) elements with a shared E8M0 exponent.
struct BlockMXFP4 {
  std::uint8_t e;
  std::uint8_t qs[16];
};

// Super-blocks of 256, cut into sub-blocks with small integer scales.

/// 16 sub-blocks of 16: x = d * (scale & 15) * q - dmin * (scale >> 4), q in 2 bits.
/// Elements 128 h + 32 s + l (l < 32) are bits 2 s, 2 s + 1 of qs[32 h + l].
struct BlockQ2_K {
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  Half d, dmin;
};
/// 16 sub-blocks of 16: x = d * (scale - 32) * (q - 4), q in 3 bits: the low two as in Q2_K, the high one is
/// bit 4 h + s of hmask[l]. Scales have 6 bits, see `scale_q3_k`.
struct BlockQ3_K {
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  Half d;
};
/// 8 sub-blocks of 32: x = d * scale * q - dmin * min. Elements 64 p + l (l < 32) are the low, 64 p + 32 + l
/// the high nibbles of qs[32 p + l]. Scales and minima have 6 bits, see `scale_min_k4`.
struct BlockQ4_K {
  Half d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};
/// Q4_K with a fifth bit: bit b of qh[l] belongs to element 32 b + l.
struct BlockQ5_K {
  Half d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
/// 16 sub-blocks of 16: x = d * scale * (q - 32), q in 6 bits. Within each half h of 128 elements: elements
/// 64 n + 32 c + l (n, c < 2, l < 32) have their low four bits in nibble n of ql[64 h + 32 c + l] and their
/// high two bits in bits 2 (2 n + c) of qh[32 h + l].
struct BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  Half d;
};
/// 8 sub-blocks of 32 laid out as IQ4_NL: x = d * (scale - 32) * kIq4Values[q]; the low four bits of scale b
/// are nibble b & 1 of scales_l[b / 2], the high two are bits 2 b of the 16-bit scales_h.
struct BlockIQ4_XS {
  Half d;
  std::uint16_t scales_h;
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockIQ4_NL) == 18 && sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_XS) == 136);

/// Code points of IQ4_NL and IQ4_XS, in units of the block scale.
inline constexpr std::array<std::int8_t, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the values of E2M1 (sign in bit 3), so that they are integers; `e8m0_half` halves the scale.
inline constexpr std::array<std::int8_t, 16> kMxfp4Values{0, 1,  2,  3,  4,  6,  8,  12,
                                                          0, -1, -2, -3, -4, -6, -8, -12};

/// 2^(e - 128): half the E8M0 scale 2^(e - 127). Exact for every e; 255 (NaN in the OCP specification) is
/// read as 2^127, as GGUF files' reference implementation does.
float e8m0_half(std::uint8_t e);

/// Six-bit scale and minimum of sub-block `j` (0..7) of Q4_K and Q5_K.
struct ScaleMin {
  std::uint8_t scale, min;
};
inline ScaleMin scale_min_k4(const std::uint8_t (&packed)[12], int j) {
  if (j < 4)
    return {static_cast<std::uint8_t>(packed[j] & 63), static_cast<std::uint8_t>(packed[j + 4] & 63)};
  return {static_cast<std::uint8_t>((packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4)),
          static_cast<std::uint8_t>(packed[j + 4] >> 4 | (packed[j] >> 6 << 4))};
}

/// Scale of sub-block `j` (0..15) of Q3_K, bias removed: -32..31. Low four bits: nibble j / 8 of
/// packed[j % 8]; high two: bits 2 (j / 4) of packed[8 + j % 4].
inline int scale_q3_k(const std::uint8_t (&packed)[12], int j) {
  const int low = packed[j % 8] >> (j / 8 * 4) & 15;
  const int high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

/// Scale of sub-block `j` (0..7) of IQ4_XS, bias removed: -32..31.
inline int scale_iq4_xs(const BlockIQ4_XS& block, int j) {
  const int low = block.scales_l[j / 2] >> (j % 2 * 4) & 15;
  const int high = block.scales_h >> (2 * j) & 3;
  return (low | high << 4) - 32;
}

}  // namespace quipu

#include "backends/cpu/simd_avx512.hpp"

#include <type_traits>

// The vector types first, then the kernels written over them. Only what tiles are better at is here; the rest
// of the table is AVX-512's.
#include "backends/cpu/kernels.hpp"

// The order matters.
// clang-format off
#include "backends/cpu/lanes.inl"
#include "backends/cpu/math.inl"
#include "backends/cpu/formats.inl"
#include "backends/cpu/linear_words.inl"
#include "backends/cpu/tiles.inl"
#include "backends/cpu/linear_rows.inl"
#include "backends/cpu/linear_quant.inl"
#include "backends/cpu/linear_amx.inl"
#include "backends/cpu/linear_amx_blocks.inl"
#include "backends/cpu/linear_amx_super.inl"
#include "backends/cpu/linear_amx_bf16.inl"
// clang-format on

namespace quipu::backends {
namespace {

Kernels with_tiles(Kernels k) {
  k.name = "AVX-512 VNNI + AMX";
  k.word_rows = SIZE_MAX;
  k.wide_rows = kAmxRows;
  k.linear[3] = linear_amx<Blocks32<FormatQ4_0>, 3>;
  k.linear[4] = linear_amx<Blocks32<FormatQ4_1>, 4>;
  k.linear[5] = linear_amx<Blocks32<FormatQ5_0>, 5>;
  k.linear[6] = linear_amx<Blocks32<FormatQ5_1>, 6>;
  k.linear[7] = linear_amx<Blocks32<FormatQ8_0>, 7>;
  k.linear[8] = linear_amx<Blocks32<FormatIQ4_NL>, 8>;
  k.linear[9] = linear_amx<Blocks32<FormatMXFP4>, 9>;
  k.linear[10] = linear_amx<Blocks256<FormatQ2_K>, 10>;
  k.linear[11] = linear_amx<Blocks256<FormatQ3_K>, 11>;
  k.linear[12] = linear_amx<Blocks256<FormatQ4_K>, 12>;
  k.linear[13] = linear_amx<Blocks256<FormatQ5_K>, 13>;
  k.linear[14] = linear_amx<Blocks256<FormatQ6_K>, 14>;
  k.linear[15] = linear_amx<Blocks256<FormatIQ4_XS>, 15>;
  k.linear[2] = linear_amx_bf16;
  return k;
}

}  // namespace

const Kernels& kernels_amx() {
  static const Kernels table = with_tiles(kernels_avx512());
  return table;
}

}  // namespace quipu::backends

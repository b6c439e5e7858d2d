// What the kernels on AMX tiles share: their configuration, bfloat16 values, and blocks of 16 x 16 dwords.

namespace quipu::backends {
namespace {

constexpr std::size_t kTileBytes = 1024;  ///< of a full tile

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t column_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// GCC 12 declares _tile_loadconfig as reading eight bytes: without the barrier the stores to the rest are
/// dropped and the next tile instruction faults.
inline void load_config(const TileConfig& config) {
  asm volatile("" ::: "memory");
  _tile_loadconfig(&config);
  asm volatile("" ::: "memory");
}

/// Rows and columns of a 16 x 16 block of dwords exchanged.
inline void transpose16(__m512i (&v)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]),
                  d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4;
       ++i) {  // quarters: t[i + 4 r] holds columns i, i + 4, i + 8, i + 12 of rows 4 r … 4 r + 3
    const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x44),
                  b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xee);
    v[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[i + 4] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[i + 8] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

/// 16 values to bfloat16, rounded to nearest even.
inline __m256i to_bf16(__m512 x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }
inline __m512 from_bf16(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
}  // namespace
}  // namespace quipu::backends

// The vector types of the kernels, on AVX-512: 16 float lanes, 16 integer lanes, and a register of four
// 128-bit quarters for quantised weights. simd_avx2.hpp and simd_baseline.hpp offer the same names with the
// same results.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backends/cpu/simd_x86.hpp"

namespace quipu::backends {
namespace {

constexpr const char* kIsaName = "AVX-512 VNNI";

// ---- 16 floats ----

struct V16 {
  __m512 v;
};
struct I16 {
  __m512i v;
};

inline __mmask16 first(std::size_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline V16 set1(float x) { return {_mm512_set1_ps(x)}; }
inline V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline V16 load_n(const float* p, std::size_t n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
inline void store(float* p, V16 a) { _mm512_storeu_ps(p, a.v); }
inline void store_n(float* p, V16 a, std::size_t n) { _mm512_mask_storeu_ps(p, first(n), a.v); }
inline V16 operator+(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V16 operator-(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V16 operator*(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V16 operator/(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
/// Like maxps/minps: the second operand when either is NaN.
inline V16 vmax(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline V16 vmin(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V16 round_even(V16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline V16 abs(V16 a) { return {_mm512_abs_ps(a.v)}; }
/// a < b ? x : y, by lane.
inline V16 select_less(V16 a, V16 b, V16 x, V16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}

inline I16 iset1(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I16 operator+(I16 a, I16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I16 operator-(I16 a, I16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline I16 operator&(I16 a, I16 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I16 operator|(I16 a, I16 b) { return {_mm512_or_si512(a.v, b.v)}; }
inline I16 imax(I16 a, I16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <int n>
inline I16 shl(I16 a) {
  return {_mm512_slli_epi32(a.v, n)};
}
template <int n>
inline I16 sar(I16 a) {
  return {_mm512_srai_epi32(a.v, n)};
}
/// Nearest even; lanes outside int32 and NaN give INT32_MIN.
inline I16 to_int(V16 a) { return {_mm512_cvtps_epi32(a.v)}; }
inline V16 to_float(I16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline I16 bits(V16 a) { return {_mm512_castps_si512(a.v)}; }
inline V16 from_bits(I16 a) { return {_mm512_castsi512_ps(a.v)}; }
inline std::int32_t reduce_imax(I16 a) { return _mm512_reduce_max_epi32(a.v); }
inline std::int32_t reduce_iadd(I16 a) { return _mm512_reduce_add_epi32(a.v); }
inline void store_int8(std::int8_t* p, I16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a.v));
}
/// As 16-bit words, of every four 0, 2, 1, 3.
inline void store_words_0213(void* p, I16 a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_shuffle_epi32(a.v, _MM_PERM_DBCA)));
}

/// The lane tree: (l, l+8), (l, l+4), (l, l+2), (l, l+1).
inline float reduce_add(V16 a) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
inline float reduce_max(V16 a) {
  __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/// Lane trees of 16 vectors at once: lane i of the result is reduce_add(a[i]), bit for bit.
inline V16 reduce_add16(const V16* a) {
  __m512 t[8];
  for (int i = 0; i < 8; ++i) {  // pairs (l, l+8): vectors i and i+8 side by side
    t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i].v, a[i + 8].v, 0x44),
                         _mm512_shuffle_f32x4(a[i].v, a[i + 8].v, 0xee));
  }
  __m512 u[4];
  for (int i = 0; i < 4; ++i) {  // (l, l+4): quarters i, i+8, i+4, i+12
    u[i] =
        _mm512_add_ps(_mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd));
  }
  __m512 w[2];
  for (int i = 0; i < 2; ++i) {  // (l, l+2)
    w[i] = _mm512_add_ps(_mm512_shuffle_ps(u[i], u[i + 2], 0x44), _mm512_shuffle_ps(u[i], u[i + 2], 0xee));
  }
  const __m512 r = _mm512_add_ps(_mm512_shuffle_ps(w[0], w[1], 0x88), _mm512_shuffle_ps(w[0], w[1], 0xdd));
  // r holds, by quarter, [i, i+2, i+1, i+3] of i = 0, 8, 4, 12.
  const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
  return {_mm512_permutexvar_ps(order, r)};
}

/// Quarters of four vectors exchanged: quarter j of a[i] becomes quarter i of a[j].
inline void exchange_quarters(V16* a) {
  const __m512 t0 = _mm512_shuffle_f32x4(a[0].v, a[1].v, 0x44),
               t1 = _mm512_shuffle_f32x4(a[0].v, a[1].v, 0xee);
  const __m512 t2 = _mm512_shuffle_f32x4(a[2].v, a[3].v, 0x44),
               t3 = _mm512_shuffle_f32x4(a[2].v, a[3].v, 0xee);
  a[0].v = _mm512_shuffle_f32x4(t0, t2, 0x88);
  a[1].v = _mm512_shuffle_f32x4(t0, t2, 0xdd);
  a[2].v = _mm512_shuffle_f32x4(t1, t3, 0x88);
  a[3].v = _mm512_shuffle_f32x4(t1, t3, 0xdd);
}

inline V16 load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline V16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p))};
}
inline void store_f16(std::uint16_t* p, V16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline V16 load_bf16(const std::uint16_t* p) {
  return {_mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}
inline V16 load_bf16_n(const std::uint16_t* p, std::size_t n) {
  return {_mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), p)), 16))};
}

// ---- quantised weights: a register Q of kQuarters 128-bit quarters; a group of kGroup rows. In quads,
// quarter l of register j holds 16 bytes of row kQuarters * l' ... see qload: row = 4 l + j. ----

using Q = __m512i;
using FG = __m512;  // kGroup floats, one a row
constexpr int kQuarters = 4;
constexpr int kGroup = 16;
/// What `qwide` adds to signed bytes.
constexpr int kWideZero = 128;
constexpr bool kPairSums = false;

/// Row pointers of a group; rows past the end repeat the last one.
struct Rows {
  const std::uint8_t* p[kGroup];
};
inline void rows_set(Rows& r, const std::uint8_t* base, std::size_t stride, std::size_t count) {
  for (std::size_t i = 0; i < kGroup; ++i) r.p[i] = base + (i < count ? i : count - 1) * stride;
}
/// 16 bytes at `off` of rows j, 4 + j, 8 + j, 12 + j.
inline Q qload(const Rows& r, int j, std::size_t off) {
  const auto at = [&](int l) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(r.p[4 * l + j] + off));
  };
  __m512i v = _mm512_castsi128_si512(at(0));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, at(1));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, at(2));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, at(3));
}
inline std::int32_t dword_at(const std::uint8_t* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return x;
}
/// A dword at `off` of each row.
inline Q qload_dword(const Rows& r, std::size_t off) {
  // Sixteen loads and inserts: gathers are slow on many processors.
  const auto four = [&](int i) {
    __m128i v = _mm_loadu_si32(r.p[i] + off);
    v = _mm_insert_epi32(v, dword_at(r.p[i + 1] + off), 1);
    v = _mm_insert_epi32(v, dword_at(r.p[i + 2] + off), 2);
    return _mm_insert_epi32(v, dword_at(r.p[i + 3] + off), 3);
  };
  __m512i v = _mm512_castsi128_si512(four(0));
  v = _mm512_inserti32x4(v, four(4), 1);
  v = _mm512_inserti32x4(v, four(8), 2);
  return _mm512_inserti32x4(v, four(12), 3);
}
inline Q qset1_8(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
inline Q qset1_32(std::int32_t x) { return _mm512_set1_epi32(x); }
inline Q qzero() { return _mm512_setzero_si512(); }
inline Q qand(Q a, Q b) { return _mm512_and_si512(a, b); }
inline Q qor(Q a, Q b) { return _mm512_or_si512(a, b); }
inline Q qsub8(Q a, Q b) { return _mm512_sub_epi8(a, b); }
inline Q qsub16(Q a, Q b) { return _mm512_sub_epi16(a, b); }
inline Q qmul16(Q a, Q b) { return _mm512_mullo_epi16(a, b); }
inline Q qmul32(Q a, Q b) { return _mm512_mullo_epi32(a, b); }
inline Q qadd32(Q a, Q b) { return _mm512_add_epi32(a, b); }
inline Q qsub32(Q a, Q b) { return _mm512_sub_epi32(a, b); }
template <int n>
inline Q qshr16(Q a) {
  return _mm512_srli_epi16(a, n);
}
template <int n>
inline Q qshl16(Q a) {
  return _mm512_slli_epi16(a, n);
}
template <int n>
inline Q qsar16(Q a) {
  return _mm512_srai_epi16(a, n);
}
template <int n>
inline Q qshr32(Q a) {
  return _mm512_srli_epi32(a, n);
}
template <int n>
inline Q qshl32(Q a) {
  return _mm512_slli_epi32(a, n);
}
template <int n>
inline Q qsar32(Q a) {
  return _mm512_srai_epi32(a, n);
}
/// a == b ? x : y, by dword.
inline Q qselect_equal32(Q a, Q b, Q x, Q y) {
  return _mm512_mask_blend_epi32(_mm512_cmpeq_epi32_mask(a, b), y, x);
}
/// Bytes of a 16-entry table, for index bytes 0..15.
inline Q qtable(const std::int8_t* table16) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table16)));
}
inline Q qlookup(Q table, Q index) { return _mm512_shuffle_epi8(table, index); }
/// 0x10 in byte i of row where bit i of the row's 16 bits at `off` is set.
inline Q qfifth_bits(const Rows& r, int j, std::size_t off) {
  std::uint16_t b[4];
  for (int l = 0; l < 4; ++l) __builtin_memcpy(&b[l], r.p[4 * l + j] + off, 2);
  const std::uint64_t mask = static_cast<std::uint64_t>(b[0]) | static_cast<std::uint64_t>(b[1]) << 16 |
                             static_cast<std::uint64_t>(b[2]) << 32 | static_cast<std::uint64_t>(b[3]) << 48;
  return _mm512_maskz_set1_epi8(mask, 16);
}
/// Signed bytes in the form qdot_wide multiplies.
inline Q qwide(Q a) { return _mm512_xor_si512(a, _mm512_set1_epi8(static_cast<char>(0x80))); }
inline Q qbroadcast16(const std::int8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Q qbroadcast4(const std::int8_t* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return _mm512_set1_epi32(x);
}
/// acc + four products a dword: unsigned bytes u (<= 127 unless wide) times signed bytes x (-127..127).
inline Q qdot(Q acc, Q u, Q x) { return _mm512_dpbusd_epi32(acc, u, x); }
inline Q qdot_wide(Q acc, Q u, Q x) { return _mm512_dpbusd_epi32(acc, u, x); }
/// acc + two products of signed words a dword.
inline Q qdot_words(Q acc, Q u, Q x) { return _mm512_dpwssd_epi32(acc, u, x); }
/// Sums of each quarter of quads: dword of row 4 l + j is the sum of quarter l of register j.
inline Q qtree(Q a, Q b, Q c, Q d) {
  const Q ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const Q cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
/// Quads to dwords: register i becomes dword i of every row.
inline void qtranspose(Q& a, Q& b, Q& c, Q& d) {
  const Q t0 = _mm512_unpacklo_epi32(a, b), t1 = _mm512_unpackhi_epi32(a, b);
  const Q t2 = _mm512_unpacklo_epi32(c, d), t3 = _mm512_unpackhi_epi32(c, d);
  a = _mm512_unpacklo_epi64(t0, t2);
  b = _mm512_unpackhi_epi64(t0, t2);
  c = _mm512_unpacklo_epi64(t1, t3);
  d = _mm512_unpackhi_epi64(t1, t3);
}
/// Quads to columns: register i becomes bytes 4 l to 4 l + 3 of columns kGroup * h to kGroup * h + kGroup -
/// 1, a dword each, where i = l * (16 / kGroup) + h and byte r is that of row r.
inline void qcolumns(Q& a, Q& b, Q& c, Q& d) {
  const Q t0 = _mm512_unpacklo_epi8(a, b), t1 = _mm512_unpackhi_epi8(a, b);
  const Q t2 = _mm512_unpacklo_epi8(c, d), t3 = _mm512_unpackhi_epi8(c, d);
  const Q u0 = _mm512_unpacklo_epi16(t0, t2), u1 = _mm512_unpackhi_epi16(t0, t2);
  const Q u2 = _mm512_unpacklo_epi16(t1, t3), u3 = _mm512_unpackhi_epi16(t1, t3);
  const Q v0 = _mm512_shuffle_i32x4(u0, u1, 0x44), v1 = _mm512_shuffle_i32x4(u0, u1, 0xee);
  const Q v2 = _mm512_shuffle_i32x4(u2, u3, 0x44), v3 = _mm512_shuffle_i32x4(u2, u3, 0xee);
  a = _mm512_shuffle_i32x4(v0, v2, 0x88);
  b = _mm512_shuffle_i32x4(v0, v2, 0xdd);
  c = _mm512_shuffle_i32x4(v1, v3, 0x88);
  d = _mm512_shuffle_i32x4(v1, v3, 0xdd);
}
inline Q qget(const void* p) { return _mm512_loadu_si512(p); }
inline void qput(void* p, Q a) { _mm512_storeu_si512(p, a); }

inline FG fg_zero() { return _mm512_setzero_ps(); }
inline FG fg_set1(float x) { return _mm512_set1_ps(x); }
inline FG fg_load(const float* p) { return _mm512_loadu_ps(p); }
inline FG fg_load_f16(const std::uint16_t* p) { return load_f16(p).v; }
inline FG fg_load_bf16(const std::uint16_t* p) { return load_bf16(p).v; }
inline void fg_store(float* p, FG a) { _mm512_storeu_ps(p, a); }
inline void fg_store_n(float* p, FG a, std::size_t n) { _mm512_mask_storeu_ps(p, first(n), a); }
inline FG fg_fma(FG a, FG b, FG c) { return _mm512_fmadd_ps(a, b, c); }
inline FG fg_mul(FG a, FG b) { return _mm512_mul_ps(a, b); }
inline FG fg_add(FG a, FG b) { return _mm512_add_ps(a, b); }
inline FG fg_negate(FG a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
inline FG fg_from_int(Q a) { return _mm512_cvtepi32_ps(a); }
inline FG fg_from_bits(Q a) { return _mm512_castsi512_ps(a); }
/// The half in the low (high) 16 bits of each dword.
inline FG fg_half_low(Q a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
inline FG fg_half_high(Q a) { return fg_half_low(_mm512_srli_epi32(a, 16)); }
inline void fg_halves(Q a, FG& low, FG& high) {
  low = fg_half_low(a);
  high = fg_half_high(a);
}
inline FG fg_load_halves(const Rows& r, std::size_t off) { return fg_half_low(qload_dword(r, off)); }

}  // namespace
}  // namespace quipu::backends

// The vector types of simd_avx512.hpp on AVX2: 16 float lanes in two registers, groups of eight rows.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backends/cpu/simd_x86.hpp"

namespace quipu::backends {
namespace {

#if defined(__AVXVNNI__)
constexpr const char* kIsaName = "AVX-VNNI";
#else
constexpr const char* kIsaName = "AVX2";
#endif

struct V16 {
  __m256 a, b;
};
struct I16 {
  __m256i a, b;
};

inline V16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline V16 load_n(const float* p, std::size_t n) {
  alignas(32) float t[16] = {};
  __builtin_memcpy(t, p, n * sizeof(float));
  return load(t);
}
inline void store(float* p, V16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline void store_n(float* p, V16 x, std::size_t n) {
  alignas(32) float t[16];
  store(t, x);
  __builtin_memcpy(p, t, n * sizeof(float));
}
inline V16 operator+(V16 x, V16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline V16 operator-(V16 x, V16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline V16 operator*(V16 x, V16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline V16 operator/(V16 x, V16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline V16 fma(V16 x, V16 y, V16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline V16 vmax(V16 x, V16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline V16 vmin(V16 x, V16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline V16 round_even(V16 x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, mode), _mm256_round_ps(x.b, mode)};
}
inline V16 abs(V16 x) {
  const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, m), _mm256_and_ps(x.b, m)};
}
inline V16 select_less(V16 p, V16 q, V16 x, V16 y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ))};
}

inline I16 iset1(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I16 operator+(I16 x, I16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I16 operator-(I16 x, I16 y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline I16 operator&(I16 x, I16 y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline I16 operator|(I16 x, I16 y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
inline I16 imax(I16 x, I16 y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
template <int n>
inline I16 shl(I16 x) {
  return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
template <int n>
inline I16 sar(I16 x) {
  return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
}
inline I16 to_int(V16 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline V16 to_float(I16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I16 bits(V16 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline V16 from_bits(I16 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline std::int32_t reduce_imax(I16 x) {
  const __m256i m = _mm256_max_epi32(x.a, x.b);
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
inline std::int32_t reduce_iadd(I16 x) {
  const __m256i m = _mm256_add_epi32(x.a, x.b);
  __m128i q = _mm_add_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
inline void store_int8(std::int8_t* p, I16 x) {
  const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}

inline void store_words_0213(void* p, I16 x) {
  const __m256i a = _mm256_shuffle_epi32(x.a, 0xd8), b = _mm256_shuffle_epi32(x.b, 0xd8);
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
}

inline float reduce8(__m256 h) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
inline float reduce_add(V16 x) { return reduce8(_mm256_add_ps(x.a, x.b)); }
inline float reduce_max(V16 x) {
  const __m256 h = _mm256_max_ps(x.a, x.b);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
/// Lane trees of eight vectors whose lanes l and l + 8 are added up already.
inline __m256 reduce_halves8(const __m256* h) {
  __m256 t[4];
  for (int i = 0; i < 4; ++i)  // (l, l+4): vectors i and i+4 side by side
    t[i] = _mm256_add_ps(_mm256_permute2f128_ps(h[i], h[i + 4], 0x20),
                         _mm256_permute2f128_ps(h[i], h[i + 4], 0x31));
  __m256 u[2];
  for (int i = 0; i < 2; ++i)  // (l, l+2)
    u[i] = _mm256_add_ps(_mm256_shuffle_ps(t[i], t[i + 2], 0x44), _mm256_shuffle_ps(t[i], t[i + 2], 0xee));
  const __m256 r = _mm256_add_ps(_mm256_shuffle_ps(u[0], u[1], 0x88), _mm256_shuffle_ps(u[0], u[1], 0xdd));
  return _mm256_permute_ps(r, 0xd8);  // from [i, i+2, i+1, i+3]
}
inline V16 reduce_halves16(const __m256* h) { return {reduce_halves8(h), reduce_halves8(h + 8)}; }
inline V16 reduce_add16(const V16* x) {
  __m256 h[16];
  for (int i = 0; i < 16; ++i) h[i] = _mm256_add_ps(x[i].a, x[i].b);
  return reduce_halves16(h);
}

inline __m256 half8(const std::uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
/// Quarters of four vectors exchanged: quarter j of a[i] becomes quarter i of a[j].
inline void exchange_quarters(V16* a) {
  const V16 r[4] = {a[0], a[1], a[2], a[3]};
  a[0] = {_mm256_permute2f128_ps(r[0].a, r[1].a, 0x20), _mm256_permute2f128_ps(r[2].a, r[3].a, 0x20)};
  a[1] = {_mm256_permute2f128_ps(r[0].a, r[1].a, 0x31), _mm256_permute2f128_ps(r[2].a, r[3].a, 0x31)};
  a[2] = {_mm256_permute2f128_ps(r[0].b, r[1].b, 0x20), _mm256_permute2f128_ps(r[2].b, r[3].b, 0x20)};
  a[3] = {_mm256_permute2f128_ps(r[0].b, r[1].b, 0x31), _mm256_permute2f128_ps(r[2].b, r[3].b, 0x31)};
}

inline V16 load_f16(const std::uint16_t* p) { return {half8(p), half8(p + 8)}; }
inline V16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  std::uint16_t t[16] = {};
  __builtin_memcpy(t, p, n * sizeof(std::uint16_t));
  return load_f16(t);
}
inline void store_f16(std::uint16_t* p, V16 x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, mode));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, mode));
}
inline __m256 bfloat8(const std::uint16_t* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline V16 load_bf16(const std::uint16_t* p) { return {bfloat8(p), bfloat8(p + 8)}; }
inline V16 load_bf16_n(const std::uint16_t* p, std::size_t n) {
  std::uint16_t t[16] = {};
  __builtin_memcpy(t, p, n * sizeof(std::uint16_t));
  return load_bf16(t);
}

using Q = __m256i;
using FG = __m256;
constexpr int kQuarters = 2;
constexpr int kGroup = 8;
#if defined(__AVXVNNI__)
constexpr int kWideZero = 128;
#else
constexpr int kWideZero = 0;
#endif

struct Rows {
  const std::uint8_t* p[kGroup];
};
inline void rows_set(Rows& r, const std::uint8_t* base, std::size_t stride, std::size_t count) {
  for (std::size_t i = 0; i < kGroup; ++i) r.p[i] = base + (i < count ? i : count - 1) * stride;
}
inline Q qload(const Rows& r, int j, std::size_t off) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(r.p[j] + off))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(r.p[4 + j] + off)), 1);
}
inline std::int32_t dword_at(const std::uint8_t* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return x;
}
inline Q qload_dword(const Rows& r, std::size_t off) {
  const auto four = [&](int i) {
    __m128i v = _mm_loadu_si32(r.p[i] + off);
    v = _mm_insert_epi32(v, dword_at(r.p[i + 1] + off), 1);
    v = _mm_insert_epi32(v, dword_at(r.p[i + 2] + off), 2);
    return _mm_insert_epi32(v, dword_at(r.p[i + 3] + off), 3);
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(4), 1);
}
/// Halves at `off` of every row.
inline FG fg_load_halves(const Rows& r, std::size_t off) {
  __m128i v = _mm_setzero_si128();
  const auto half = [&](int i) {
    std::uint16_t x;
    __builtin_memcpy(&x, r.p[i] + off, 2);
    return x;
  };
  v = _mm_insert_epi16(v, half(0), 0);
  v = _mm_insert_epi16(v, half(1), 1);
  v = _mm_insert_epi16(v, half(2), 2);
  v = _mm_insert_epi16(v, half(3), 3);
  v = _mm_insert_epi16(v, half(4), 4);
  v = _mm_insert_epi16(v, half(5), 5);
  v = _mm_insert_epi16(v, half(6), 6);
  v = _mm_insert_epi16(v, half(7), 7);
  return _mm256_cvtph_ps(v);
}
inline Q qset1_8(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
inline Q qset1_32(std::int32_t x) { return _mm256_set1_epi32(x); }
inline Q qzero() { return _mm256_setzero_si256(); }
inline Q qand(Q a, Q b) { return _mm256_and_si256(a, b); }
inline Q qor(Q a, Q b) { return _mm256_or_si256(a, b); }
inline Q qsub8(Q a, Q b) { return _mm256_sub_epi8(a, b); }
inline Q qsub16(Q a, Q b) { return _mm256_sub_epi16(a, b); }
inline Q qmul16(Q a, Q b) { return _mm256_mullo_epi16(a, b); }
inline Q qmul32(Q a, Q b) { return _mm256_mullo_epi32(a, b); }
inline Q qadd32(Q a, Q b) { return _mm256_add_epi32(a, b); }
inline Q qsub32(Q a, Q b) { return _mm256_sub_epi32(a, b); }
template <int n>
inline Q qshr16(Q a) {
  return _mm256_srli_epi16(a, n);
}
template <int n>
inline Q qshl16(Q a) {
  return _mm256_slli_epi16(a, n);
}
template <int n>
inline Q qsar16(Q a) {
  return _mm256_srai_epi16(a, n);
}
template <int n>
inline Q qshr32(Q a) {
  return _mm256_srli_epi32(a, n);
}
template <int n>
inline Q qshl32(Q a) {
  return _mm256_slli_epi32(a, n);
}
template <int n>
inline Q qsar32(Q a) {
  return _mm256_srai_epi32(a, n);
}
inline Q qselect_equal32(Q a, Q b, Q x, Q y) { return _mm256_blendv_epi8(y, x, _mm256_cmpeq_epi32(a, b)); }
inline Q qtable(const std::int8_t* table16) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table16)));
}
inline Q qlookup(Q table, Q index) { return _mm256_shuffle_epi8(table, index); }
inline Q qfifth_bits(const Rows& r, int j, std::size_t off) {
  std::uint16_t b[2];
  for (int l = 0; l < 2; ++l) __builtin_memcpy(&b[l], r.p[4 * l + j] + off, 2);
  const __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi16(static_cast<short>(b[0]))),
                                            _mm_set1_epi16(static_cast<short>(b[1])), 1);
  const __m256i spread =
      _mm256_shuffle_epi8(v, _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0,
                                              0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), _mm256_set1_epi8(16));
}
inline Q qwide(Q a) { return kWideZero == 0 ? a : _mm256_xor_si256(a, qset1_8(kWideZero)); }
inline Q qbroadcast16(const std::int8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Q qbroadcast4(const std::int8_t* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return _mm256_set1_epi32(x);
}
#if defined(__AVXVNNI__)
constexpr bool kPairSums = false;
inline Q qdot(Q acc, Q u, Q x) { return _mm256_dpbusd_avx_epi32(acc, u, x); }
inline Q qdot_wide(Q acc, Q u, Q x) { return qdot(acc, u, x); }
inline Q qdot_words(Q acc, Q u, Q x) { return _mm256_dpwssd_avx_epi32(acc, u, x); }
#else
constexpr bool kPairSums = true;
/// Keeps the compiler from adding up the products of a chain as a tree, which takes more registers than there
/// are.
inline Q in_chain(Q sum) {
  asm("" : "+x"(sum));
  return sum;
}
inline Q qdot_words(Q acc, Q u, Q x) { return in_chain(_mm256_add_epi32(acc, _mm256_madd_epi16(u, x))); }
#endif
/// The sums of a's, b's, c's and d's four dwords, in each half.
inline Q qtree(Q a, Q b, Q c, Q d) {
  const Q ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const Q cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}
#if !defined(__AVXVNNI__)
/// Sixteen sums of two products of bytes, |u| <= most <= 128. Wide: both are signed, so |u| times x with u's
/// sign.
template <bool wide>
inline Q qpairs(Q u, Q x) {
  if constexpr (wide) return _mm256_maddubs_epi16(_mm256_abs_epi8(u), _mm256_sign_epi8(x, u));
  return _mm256_maddubs_epi16(u, x);
}
/// Sum over j < n of u(j) * (16 * high(j) + low(j)), by dword: as much as fits is added up in 16 bits.
template <bool wide, int most, int n, class U, class H, class L>
inline Q qsum_planes(const U& u, const H& high, const L& low) {
  constexpr int fit = 32767 / (2 * most * 127);  // low is at most 8
  static_assert(fit >= 1 && 2 * most * 8 * n <= 32767);
  Q pairs = qpairs<wide>(u(0), low(0));
  for (int j = 1; j < n; ++j) pairs = _mm256_add_epi16(pairs, qpairs<wide>(u(j), low(j)));
  Q sum = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  for (int j = 0; j < n; ++j) {
    const Q next = qpairs<wide>(u(j), high(j));
    pairs = j % fit == 0 ? next : _mm256_add_epi16(pairs, next);
    if (j % fit == fit - 1 || j == n - 1) sum = qdot_words(sum, pairs, _mm256_set1_epi16(16));
  }
  return sum;
}
#endif
inline void qtranspose(Q& a, Q& b, Q& c, Q& d) {
  const Q t0 = _mm256_unpacklo_epi32(a, b), t1 = _mm256_unpackhi_epi32(a, b);
  const Q t2 = _mm256_unpacklo_epi32(c, d), t3 = _mm256_unpackhi_epi32(c, d);
  a = _mm256_unpacklo_epi64(t0, t2);
  b = _mm256_unpackhi_epi64(t0, t2);
  c = _mm256_unpacklo_epi64(t1, t3);
  d = _mm256_unpackhi_epi64(t1, t3);
}
inline void qcolumns(Q& a, Q& b, Q& c, Q& d) {
  const Q t0 = _mm256_unpacklo_epi8(a, b), t1 = _mm256_unpackhi_epi8(a, b);
  const Q t2 = _mm256_unpacklo_epi8(c, d), t3 = _mm256_unpackhi_epi8(c, d);
  const Q u0 = _mm256_unpacklo_epi16(t0, t2), u1 = _mm256_unpackhi_epi16(t0, t2);
  const Q u2 = _mm256_unpacklo_epi16(t1, t3), u3 = _mm256_unpackhi_epi16(t1, t3);
  a = _mm256_permute2x128_si256(u0, u1, 0x20);
  b = _mm256_permute2x128_si256(u2, u3, 0x20);
  c = _mm256_permute2x128_si256(u0, u1, 0x31);
  d = _mm256_permute2x128_si256(u2, u3, 0x31);
}
inline Q qget(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void qput(void* p, Q a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }

inline FG fg_zero() { return _mm256_setzero_ps(); }
inline FG fg_set1(float x) { return _mm256_set1_ps(x); }
inline FG fg_load(const float* p) { return _mm256_loadu_ps(p); }
inline FG fg_load_f16(const std::uint16_t* p) { return half8(p); }
inline FG fg_load_bf16(const std::uint16_t* p) { return bfloat8(p); }
inline void fg_store(float* p, FG a) { _mm256_storeu_ps(p, a); }
inline void fg_store_n(float* p, FG a, std::size_t n) {
  alignas(32) float t[8];
  _mm256_store_ps(t, a);
  __builtin_memcpy(p, t, n * sizeof(float));
}
inline FG fg_fma(FG a, FG b, FG c) { return _mm256_fmadd_ps(a, b, c); }
inline FG fg_mul(FG a, FG b) { return _mm256_mul_ps(a, b); }
inline FG fg_add(FG a, FG b) { return _mm256_add_ps(a, b); }
inline FG fg_negate(FG a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
inline FG fg_from_int(Q a) { return _mm256_cvtepi32_ps(a); }
inline FG fg_from_bits(Q a) { return _mm256_castsi256_ps(a); }
inline FG fg_half_low(Q a) {
  const __m256i low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
  const __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0xd8);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(w));
}
inline FG fg_half_high(Q a) { return fg_half_low(_mm256_srli_epi32(a, 16)); }
inline void fg_halves(Q a, FG& low, FG& high) {
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  const __m256i w = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(a, order), 0xd8);
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(w));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(w, 1));
}

}  // namespace
}  // namespace quipu::backends

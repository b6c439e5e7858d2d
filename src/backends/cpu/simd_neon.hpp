// The vector types of simd_avx512.hpp on Advanced SIMD with dot products (Armv8.2): 16 float lanes in four
// registers, groups of four rows.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace quipu::backends {
namespace {

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr const char* kIsaName = "NEON dotprod + i8mm";
#else
constexpr const char* kIsaName = "NEON dotprod";
#endif

struct V16 {
  float32x4_t v[4];
};
struct I16 {
  int32x4_t v[4];
};

template <class T, class F>
inline T quads(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

inline V16 set1(float x) {
  return quads<V16>([&](int) { return vdupq_n_f32(x); });
}
inline V16 load(const float* p) {
  return quads<V16>([&](int i) { return vld1q_f32(p + 4 * i); });
}
inline V16 load_n(const float* p, std::size_t n) {
  float t[16] = {};
  __builtin_memcpy(t, p, n * sizeof(float));
  return load(t);
}
inline void store(float* p, V16 x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
}
inline void store_n(float* p, V16 x, std::size_t n) {
  float t[16];
  store(t, x);
  __builtin_memcpy(p, t, n * sizeof(float));
}
inline V16 operator+(V16 x, V16 y) {
  return quads<V16>([&](int i) { return vaddq_f32(x.v[i], y.v[i]); });
}
inline V16 operator-(V16 x, V16 y) {
  return quads<V16>([&](int i) { return vsubq_f32(x.v[i], y.v[i]); });
}
inline V16 operator*(V16 x, V16 y) {
  return quads<V16>([&](int i) { return vmulq_f32(x.v[i], y.v[i]); });
}
inline V16 operator/(V16 x, V16 y) {
  return quads<V16>([&](int i) { return vdivq_f32(x.v[i], y.v[i]); });
}
inline V16 fma(V16 x, V16 y, V16 z) {
  return quads<V16>([&](int i) { return vfmaq_f32(z.v[i], x.v[i], y.v[i]); });
}
// x86's rule, not vmaxq's: the second operand where the comparison fails.
inline float32x4_t max4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
inline V16 vmax(V16 x, V16 y) {
  return quads<V16>([&](int i) { return max4(x.v[i], y.v[i]); });
}
inline V16 vmin(V16 x, V16 y) {
  return quads<V16>([&](int i) { return vbslq_f32(vcltq_f32(x.v[i], y.v[i]), x.v[i], y.v[i]); });
}
inline V16 round_even(V16 x) {
  return quads<V16>([&](int i) { return vrndnq_f32(x.v[i]); });
}
inline V16 abs(V16 x) {
  return quads<V16>([&](int i) { return vabsq_f32(x.v[i]); });
}
inline V16 select_less(V16 p, V16 q, V16 x, V16 y) {
  return quads<V16>([&](int i) { return vbslq_f32(vcltq_f32(p.v[i], q.v[i]), x.v[i], y.v[i]); });
}

inline I16 iset1(std::int32_t x) {
  return quads<I16>([&](int) { return vdupq_n_s32(x); });
}
inline I16 operator+(I16 x, I16 y) {
  return quads<I16>([&](int i) { return vaddq_s32(x.v[i], y.v[i]); });
}
inline I16 operator-(I16 x, I16 y) {
  return quads<I16>([&](int i) { return vsubq_s32(x.v[i], y.v[i]); });
}
inline I16 operator&(I16 x, I16 y) {
  return quads<I16>([&](int i) { return vandq_s32(x.v[i], y.v[i]); });
}
inline I16 operator|(I16 x, I16 y) {
  return quads<I16>([&](int i) { return vorrq_s32(x.v[i], y.v[i]); });
}
inline I16 imax(I16 x, I16 y) {
  return quads<I16>([&](int i) { return vmaxq_s32(x.v[i], y.v[i]); });
}
template <int n>
inline I16 shl(I16 x) {
  return quads<I16>([&](int i) { return vshlq_n_s32(x.v[i], n); });
}
template <int n>
inline I16 sar(I16 x) {
  return quads<I16>([&](int i) { return vshrq_n_s32(x.v[i], n); });
}
/// To nearest; INT32_MIN for NaN and what does not fit, as x86 has it (here the conversion alone would
/// saturate).
inline int32x4_t nearest4(float32x4_t x) {
  const uint32x4_t fits =
      vandq_u32(vcgeq_f32(x, vdupq_n_f32(-2147483648.0F)), vcltq_f32(x, vdupq_n_f32(2147483648.0F)));
  return vbslq_s32(fits, vcvtnq_s32_f32(x), vdupq_n_s32(INT32_MIN));
}
inline I16 to_int(V16 x) {
  return quads<I16>([&](int i) { return nearest4(x.v[i]); });
}
inline V16 to_float(I16 x) {
  return quads<V16>([&](int i) { return vcvtq_f32_s32(x.v[i]); });
}
inline I16 bits(V16 x) {
  return quads<I16>([&](int i) { return vreinterpretq_s32_f32(x.v[i]); });
}
inline V16 from_bits(I16 x) {
  return quads<V16>([&](int i) { return vreinterpretq_f32_s32(x.v[i]); });
}
inline std::int32_t reduce_imax(I16 x) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.v[0], x.v[1]), vmaxq_s32(x.v[2], x.v[3])));
}
inline std::int32_t reduce_iadd(I16 x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3])));
}
inline int16x8_t narrow(int32x4_t a, int32x4_t b) { return vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)); }
inline void store_int8(std::int8_t* p, I16 x) {
  const int16x8_t a = narrow(x.v[0], x.v[1]), b = narrow(x.v[2], x.v[3]);
  vst1q_s8(p, vcombine_s8(vqmovn_s16(a), vqmovn_s16(b)));
}
inline void store_words_0213(void* p, I16 x) {
  constexpr std::uint8_t order[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
  std::uint8_t* to = static_cast<std::uint8_t*>(p);
  for (int i = 0; i < 4; i += 2)
    vst1q_u8(to + 8 * i, vqtbl1q_u8(vreinterpretq_u8_s16(narrow(x.v[i], x.v[i + 1])), vld1q_u8(order)));
}

/// Lanes l, l+8, then l, l+4.
inline float32x4_t fold(V16 x) { return vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3])); }
inline float reduce_add(V16 x) {
  const float32x4_t q = fold(x);
  const float32x2_t h = vadd_f32(vget_low_f32(q), vget_high_f32(q));
  return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
inline float reduce_max(V16 x) {
  const float32x4_t q = max4(max4(x.v[0], x.v[2]), max4(x.v[1], x.v[3]));
  const float32x4_t h = max4(q, vextq_f32(q, q, 2));
  return vgetq_lane_f32(max4(h, vextq_f32(h, h, 1)), 0);
}
inline V16 reduce_add16(const V16* x) {
  return quads<V16>([&](int i) {
    const float32x4_t a = fold(x[4 * i]), b = fold(x[4 * i + 1]), c = fold(x[4 * i + 2]),
                      d = fold(x[4 * i + 3]);
    const auto half = [](float32x4_t p, float32x4_t q) {  // l, l+2 of p and of q
      return vaddq_f32(vcombine_f32(vget_low_f32(p), vget_low_f32(q)),
                       vcombine_f32(vget_high_f32(p), vget_high_f32(q)));
    };
    const float32x4_t ab = half(a, b), cd = half(c, d);
    return vaddq_f32(vuzp1q_f32(ab, cd), vuzp2q_f32(ab, cd));
  });
}

inline float32x4_t half4(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
/// Quarters of four vectors exchanged: quarter j of a[i] becomes quarter i of a[j].
inline void exchange_quarters(V16* a) {
  const V16 r[4] = {a[0], a[1], a[2], a[3]};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) a[i].v[j] = r[j].v[i];
}

inline V16 load_f16(const std::uint16_t* p) {
  return quads<V16>([&](int i) { return half4(vld1_u16(p + 4 * i)); });
}
inline V16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  std::uint16_t t[16] = {};
  __builtin_memcpy(t, p, n * sizeof(std::uint16_t));
  return load_f16(t);
}
inline void store_f16(std::uint16_t* p, V16 x) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
inline V16 load_bf16(const std::uint16_t* p) {
  return quads<V16>([&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}
inline V16 load_bf16_n(const std::uint16_t* p, std::size_t n) {
  std::uint16_t t[16] = {};
  __builtin_memcpy(t, p, n * sizeof(std::uint16_t));
  return load_bf16(t);
}
inline void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }

using Q = uint8x16_t;
using FG = float32x4_t;
constexpr int kQuarters = 1;
constexpr int kGroup = 4;
constexpr int kWideZero = 0;
constexpr bool kPairSums = false;

inline uint32x4_t dwords(Q a) { return vreinterpretq_u32_u8(a); }
inline uint16x8_t words(Q a) { return vreinterpretq_u16_u8(a); }
inline int32x4_t integers(Q a) { return vreinterpretq_s32_u8(a); }
inline int8x16_t signs(Q a) { return vreinterpretq_s8_u8(a); }
inline Q bytes(uint32x4_t a) { return vreinterpretq_u8_u32(a); }
inline Q bytes(uint16x8_t a) { return vreinterpretq_u8_u16(a); }
inline Q bytes(int32x4_t a) { return vreinterpretq_u8_s32(a); }

struct Rows {
  const std::uint8_t* p[kGroup];
};
inline void rows_set(Rows& r, const std::uint8_t* base, std::size_t stride, std::size_t count) {
  for (std::size_t i = 0; i < kGroup; ++i) r.p[i] = base + (i < count ? i : count - 1) * stride;
}
inline Q qload(const Rows& r, int j, std::size_t off) { return vld1q_u8(r.p[j] + off); }
inline Q qload_dword(const Rows& r, std::size_t off) {
  std::uint32_t d[4];
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&d[i], r.p[i] + off, 4);
  return bytes(vld1q_u32(d));
}
inline Q qset1_8(int x) { return vdupq_n_u8(static_cast<std::uint8_t>(x)); }
inline Q qset1_32(std::int32_t x) { return bytes(vdupq_n_s32(x)); }
inline Q qzero() { return vdupq_n_u8(0); }
inline Q qand(Q a, Q b) { return vandq_u8(a, b); }
inline Q qor(Q a, Q b) { return vorrq_u8(a, b); }
inline Q qsub8(Q a, Q b) { return vsubq_u8(a, b); }
inline Q qsub16(Q a, Q b) { return bytes(vsubq_u16(words(a), words(b))); }
inline Q qmul32(Q a, Q b) { return bytes(vmulq_u32(dwords(a), dwords(b))); }
inline Q qadd32(Q a, Q b) { return bytes(vaddq_u32(dwords(a), dwords(b))); }
inline Q qsub32(Q a, Q b) { return bytes(vsubq_u32(dwords(a), dwords(b))); }
template <int n>
inline Q qshr16(Q a) {
  return bytes(vshrq_n_u16(words(a), n));
}
template <int n>
inline Q qshl16(Q a) {
  return bytes(vshlq_n_u16(words(a), n));
}
template <int n>
inline Q qsar16(Q a) {
  return vreinterpretq_u8_s16(vshrq_n_s16(vreinterpretq_s16_u8(a), n));
}
template <int n>
inline Q qshr32(Q a) {
  if constexpr (n == 0) return a;
  if constexpr (n != 0) return bytes(vshrq_n_u32(dwords(a), n));
}
template <int n>
inline Q qshl32(Q a) {
  return bytes(vshlq_n_u32(dwords(a), n));
}
template <int n>
inline Q qsar32(Q a) {
  return bytes(vshrq_n_s32(integers(a), n));
}
inline Q qselect_equal32(Q a, Q b, Q x, Q y) {
  return bytes(vbslq_u32(vceqq_u32(dwords(a), dwords(b)), dwords(x), dwords(y)));
}
inline Q qtable(const std::int8_t* table16) { return vreinterpretq_u8_s8(vld1q_s8(table16)); }
inline Q qlookup(Q table, Q index) { return vqtbl1q_u8(table, index); }
inline Q qfifth_bits(const Rows& r, int j, std::size_t off) {
  constexpr std::uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const std::uint8_t* p = r.p[j] + off;
  const uint8x16_t v = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));
  return vandq_u8(vtstq_u8(v, vld1q_u8(bit)), vdupq_n_u8(16));
}
inline Q qwide(Q a) { return a; }
inline Q qbroadcast16(const std::int8_t* p) { return qtable(p); }
inline Q qbroadcast4(const std::int8_t* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return qset1_32(x);
}
/// Bytes of the unsigned formats end at 127, so one signed product serves them and the wide ones.
inline Q qdot(Q acc, Q u, Q x) { return bytes(vdotq_s32(integers(acc), signs(u), signs(x))); }
inline Q qdot_wide(Q acc, Q u, Q x) { return qdot(acc, u, x); }
inline Q qtree(Q a, Q b, Q c, Q d) {
  return bytes(vpaddq_u32(vpaddq_u32(dwords(a), dwords(b)), vpaddq_u32(dwords(c), dwords(d))));
}
inline void qtranspose(Q& a, Q& b, Q& c, Q& d) {
  const uint32x4_t t0 = vtrn1q_u32(dwords(a), dwords(b)), t1 = vtrn2q_u32(dwords(a), dwords(b));
  const uint32x4_t t2 = vtrn1q_u32(dwords(c), dwords(d)), t3 = vtrn2q_u32(dwords(c), dwords(d));
  const auto low = [](uint32x4_t p, uint32x4_t q) {
    return vreinterpretq_u8_u64(vtrn1q_u64(vreinterpretq_u64_u32(p), vreinterpretq_u64_u32(q)));
  };
  const auto high = [](uint32x4_t p, uint32x4_t q) {
    return vreinterpretq_u8_u64(vtrn2q_u64(vreinterpretq_u64_u32(p), vreinterpretq_u64_u32(q)));
  };
  a = low(t0, t2);
  b = low(t1, t3);
  c = high(t0, t2);
  d = high(t1, t3);
}
inline void qcolumns(Q& a, Q& b, Q& c, Q& d) {
  const uint16x8_t t0 = words(vzip1q_u8(a, b)), t1 = words(vzip2q_u8(a, b));
  const uint16x8_t t2 = words(vzip1q_u8(c, d)), t3 = words(vzip2q_u8(c, d));
  a = bytes(vzip1q_u16(t0, t2));
  b = bytes(vzip2q_u16(t0, t2));
  c = bytes(vzip1q_u16(t1, t3));
  d = bytes(vzip2q_u16(t1, t3));
}
inline Q qget(const void* p) { return vld1q_u8(static_cast<const std::uint8_t*>(p)); }
inline void qput(void* p, Q a) { vst1q_u8(static_cast<std::uint8_t*>(p), a); }

inline FG fg_zero() { return vdupq_n_f32(0); }
inline FG fg_set1(float x) { return vdupq_n_f32(x); }
inline FG fg_load(const float* p) { return vld1q_f32(p); }
inline FG fg_load_f16(const std::uint16_t* p) { return half4(vld1_u16(p)); }
inline FG fg_load_bf16(const std::uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
inline void fg_store(float* p, FG a) { vst1q_f32(p, a); }
inline void fg_store_n(float* p, FG a, std::size_t n) {
  float t[kGroup];
  fg_store(t, a);
  __builtin_memcpy(p, t, n * sizeof(float));
}
inline FG fg_fma(FG a, FG b, FG c) { return vfmaq_f32(c, a, b); }
inline FG fg_mul(FG a, FG b) { return vmulq_f32(a, b); }
inline FG fg_add(FG a, FG b) { return vaddq_f32(a, b); }
inline FG fg_negate(FG a) { return vnegq_f32(a); }
inline FG fg_from_int(Q a) { return vcvtq_f32_s32(integers(a)); }
inline FG fg_from_bits(Q a) { return vreinterpretq_f32_u8(a); }
inline FG fg_half_low(Q a) { return half4(vmovn_u32(dwords(a))); }
inline FG fg_half_high(Q a) { return half4(vshrn_n_u32(dwords(a), 16)); }
inline void fg_halves(Q a, FG& low, FG& high) {
  low = fg_half_low(a);
  high = fg_half_high(a);
}
inline FG fg_load_halves(const Rows& r, std::size_t off) { return fg_half_low(qload_dword(r, off)); }

}  // namespace
}  // namespace quipu::backends

// The vector types of simd_avx512.hpp in plain C++: for any processor, and the definition the others must
// equal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quipu::backends {
namespace {

constexpr const char* kIsaName = "baseline";

struct V16 {
  float v[16];
};
struct I16 {
  std::int32_t v[16];
};

template <class T, class F>
inline T lanes(F f) {
  T r;
  for (int i = 0; i < 16; ++i) r.v[i] = f(i);
  return r;
}
inline float float_of(std::uint32_t u) {
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
inline std::uint32_t bits_of(float f) {
  std::uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}

inline V16 set1(float x) {
  return lanes<V16>([&](int) { return x; });
}
inline V16 load_n(const float* p, std::size_t n) {
  V16 r = {};
  __builtin_memcpy(r.v, p, n * sizeof(float));
  return r;
}
inline V16 load(const float* p) { return load_n(p, 16); }
inline void store_n(float* p, V16 a, std::size_t n) { __builtin_memcpy(p, a.v, n * sizeof(float)); }
inline void store(float* p, V16 a) { store_n(p, a, 16); }
inline V16 operator+(V16 a, V16 b) {
  return lanes<V16>([&](int i) { return a.v[i] + b.v[i]; });
}
inline V16 operator-(V16 a, V16 b) {
  return lanes<V16>([&](int i) { return a.v[i] - b.v[i]; });
}
inline V16 operator*(V16 a, V16 b) {
  return lanes<V16>([&](int i) { return a.v[i] * b.v[i]; });
}
inline V16 operator/(V16 a, V16 b) {
  return lanes<V16>([&](int i) { return a.v[i] / b.v[i]; });
}
inline V16 fma(V16 a, V16 b, V16 c) {
  return lanes<V16>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline V16 vmax(V16 a, V16 b) {
  return lanes<V16>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline V16 vmin(V16 a, V16 b) {
  return lanes<V16>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline V16 round_even(V16 a) {
  return lanes<V16>([&](int i) { return __builtin_rintf(a.v[i]); });
}
inline V16 abs(V16 a) {
  return lanes<V16>([&](int i) { return float_of(bits_of(a.v[i]) & 0x7fffffffu); });
}
inline V16 select_less(V16 a, V16 b, V16 x, V16 y) {
  return lanes<V16>([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}

inline std::int32_t wrap(std::uint32_t x) { return static_cast<std::int32_t>(x); }
inline std::uint32_t unsign(std::int32_t x) { return static_cast<std::uint32_t>(x); }
inline I16 iset1(std::int32_t x) {
  return lanes<I16>([&](int) { return x; });
}
inline I16 operator+(I16 a, I16 b) {
  return lanes<I16>([&](int i) { return wrap(unsign(a.v[i]) + unsign(b.v[i])); });
}
inline I16 operator-(I16 a, I16 b) {
  return lanes<I16>([&](int i) { return wrap(unsign(a.v[i]) - unsign(b.v[i])); });
}
inline I16 operator&(I16 a, I16 b) {
  return lanes<I16>([&](int i) { return a.v[i] & b.v[i]; });
}
inline I16 operator|(I16 a, I16 b) {
  return lanes<I16>([&](int i) { return a.v[i] | b.v[i]; });
}
inline I16 imax(I16 a, I16 b) {
  return lanes<I16>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
template <int n>
inline I16 shl(I16 a) {
  return lanes<I16>([&](int i) { return wrap(unsign(a.v[i]) << n); });
}
template <int n>
inline I16 sar(I16 a) {
  return lanes<I16>([&](int i) { return a.v[i] >> n; });
}
inline std::int32_t nearest(float x) {
  if (!(x >= -2147483648.0f && x < 2147483648.0f)) return INT32_MIN;
  return static_cast<std::int32_t>(__builtin_rintf(x));
}
inline I16 to_int(V16 a) {
  return lanes<I16>([&](int i) { return nearest(a.v[i]); });
}
inline V16 to_float(I16 a) {
  return lanes<V16>([&](int i) { return static_cast<float>(a.v[i]); });
}
inline I16 bits(V16 a) {
  return lanes<I16>([&](int i) { return wrap(bits_of(a.v[i])); });
}
inline V16 from_bits(I16 a) {
  return lanes<V16>([&](int i) { return float_of(unsign(a.v[i])); });
}
inline std::int32_t reduce_imax(I16 a) {
  std::int32_t m = a.v[0];
  for (int i = 1; i < 16; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}
inline std::int32_t reduce_iadd(I16 a) {
  std::uint32_t s = 0;
  for (int i = 0; i < 16; ++i) s += unsign(a.v[i]);
  return wrap(s);
}
inline void store_int8(std::int8_t* p, I16 a) {
  for (int i = 0; i < 16; ++i)
    p[i] = static_cast<std::int8_t>(a.v[i] < -128 ? -128 : a.v[i] > 127 ? 127 : a.v[i]);
}
inline void store_words_0213(void* p, I16 a) {
  std::int16_t words[16];
  for (int i = 0; i < 16; i += 4) {
    words[i] = static_cast<std::int16_t>(a.v[i]);
    words[i + 1] = static_cast<std::int16_t>(a.v[i + 2]);
    words[i + 2] = static_cast<std::int16_t>(a.v[i + 1]);
    words[i + 3] = static_cast<std::int16_t>(a.v[i + 3]);
  }
  __builtin_memcpy(p, words, sizeof words);
}
inline float reduce_add(V16 a) {
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) a.v[i] += a.v[i + step];
  return a.v[0];
}
inline float reduce_max(V16 a) {
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) a.v[i] = a.v[i] > a.v[i + step] ? a.v[i] : a.v[i + step];
  return a.v[0];
}
inline V16 reduce_add16(const V16* a) {
  return lanes<V16>([&](int i) { return reduce_add(a[i]); });
}

inline float half_value(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
  if (exponent == 31) return float_of(sign | 0x7f800000u | (mantissa != 0 ? 0x400000u : 0u) | mantissa << 13);
  if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return float_of(sign | bits_of(magnitude));
}
inline std::uint16_t half_bits(float x) {
  const std::uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (a < 0x38800000u) {  // subnormal: the sum's low bits hold the rounded mantissa
    const std::uint32_t m = bits_of(float_of(a) + 0.5f) - 0x3f000000u;
    return static_cast<std::uint16_t>(sign | m);
  }
  const std::uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
inline V16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  V16 r = {};
  for (std::size_t i = 0; i < n; ++i) r.v[i] = half_value(p[i]);
  return r;
}
/// Quarters of four vectors exchanged: quarter j of a[i] becomes quarter i of a[j].
inline void exchange_quarters(V16* a) {
  const V16 r[4] = {a[0], a[1], a[2], a[3]};
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 16; ++j) a[i].v[j] = r[j / 4].v[4 * i + j % 4];
}

inline V16 load_f16(const std::uint16_t* p) { return load_f16_n(p, 16); }
inline void store_f16(std::uint16_t* p, V16 a) {
  for (int i = 0; i < 16; ++i) p[i] = half_bits(a.v[i]);
}
inline V16 load_bf16_n(const std::uint16_t* p, std::size_t n) {
  V16 r = {};
  for (std::size_t i = 0; i < n; ++i) r.v[i] = float_of(static_cast<std::uint32_t>(p[i]) << 16);
  return r;
}
inline V16 load_bf16(const std::uint16_t* p) { return load_bf16_n(p, 16); }
inline void prefetch_far(const void*) {}

// One quarter: groups of four rows.
struct Q {
  std::uint8_t b[16];
};
struct FG {
  float v[4];
};
constexpr int kQuarters = 1;
constexpr int kGroup = 4;
constexpr int kWideZero = 0;
constexpr bool kPairSums = false;

template <class F>
inline Q q_bytes(F f) {
  Q r;
  for (int i = 0; i < 16; ++i) r.b[i] = static_cast<std::uint8_t>(f(i));
  return r;
}
inline std::uint32_t q_dword(const Q& a, int i) {
  std::uint32_t x;
  __builtin_memcpy(&x, a.b + 4 * i, 4);
  return x;
}
template <class F>
inline Q q_dwords(F f) {
  Q r;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t x = f(i);
    __builtin_memcpy(r.b + 4 * i, &x, 4);
  }
  return r;
}
inline std::uint16_t q_word(const Q& a, int i) {
  std::uint16_t x;
  __builtin_memcpy(&x, a.b + 2 * i, 2);
  return x;
}
template <class F>
inline Q q_words(F f) {
  Q r;
  for (int i = 0; i < 8; ++i) {
    const std::uint16_t x = static_cast<std::uint16_t>(f(i));
    __builtin_memcpy(r.b + 2 * i, &x, 2);
  }
  return r;
}

struct Rows {
  const std::uint8_t* p[kGroup];
};
inline void rows_set(Rows& r, const std::uint8_t* base, std::size_t stride, std::size_t count) {
  for (std::size_t i = 0; i < kGroup; ++i) r.p[i] = base + (i < count ? i : count - 1) * stride;
}
inline Q qload(const Rows& r, int j, std::size_t off) {
  Q q;
  __builtin_memcpy(q.b, r.p[j] + off, 16);
  return q;
}
inline Q qload_dword(const Rows& r, std::size_t off) {
  Q q;
  for (int i = 0; i < 4; ++i) __builtin_memcpy(q.b + 4 * i, r.p[i] + off, 4);
  return q;
}
inline Q qset1_8(int x) {
  return q_bytes([&](int) { return x; });
}
inline Q qset1_32(std::int32_t x) {
  return q_dwords([&](int) { return unsign(x); });
}
inline Q qzero() { return qset1_8(0); }
inline Q qand(Q a, Q b) {
  return q_bytes([&](int i) { return a.b[i] & b.b[i]; });
}
inline Q qor(Q a, Q b) {
  return q_bytes([&](int i) { return a.b[i] | b.b[i]; });
}
inline Q qsub8(Q a, Q b) {
  return q_bytes([&](int i) { return a.b[i] - b.b[i]; });
}
inline Q qsub16(Q a, Q b) {
  return q_words([&](int i) { return q_word(a, i) - q_word(b, i); });
}
inline Q qmul16(Q a, Q b) {
  return q_words([&](int i) { return static_cast<std::uint32_t>(q_word(a, i)) * q_word(b, i); });
}
inline Q qmul32(Q a, Q b) {
  return q_dwords([&](int i) { return q_dword(a, i) * q_dword(b, i); });
}
inline Q qadd32(Q a, Q b) {
  return q_dwords([&](int i) { return q_dword(a, i) + q_dword(b, i); });
}
inline Q qsub32(Q a, Q b) {
  return q_dwords([&](int i) { return q_dword(a, i) - q_dword(b, i); });
}
template <int n>
inline Q qshr16(Q a) {
  return q_words([&](int i) { return q_word(a, i) >> n; });
}
template <int n>
inline Q qshl16(Q a) {
  return q_words([&](int i) { return q_word(a, i) << n; });
}
template <int n>
inline Q qsar16(Q a) {
  return q_words([&](int i) { return static_cast<std::int16_t>(q_word(a, i)) >> n; });
}
template <int n>
inline Q qshr32(Q a) {
  return q_dwords([&](int i) { return q_dword(a, i) >> n; });
}
template <int n>
inline Q qshl32(Q a) {
  return q_dwords([&](int i) { return q_dword(a, i) << n; });
}
template <int n>
inline Q qsar32(Q a) {
  return q_dwords([&](int i) { return unsign(wrap(q_dword(a, i)) >> n); });
}
inline Q qselect_equal32(Q a, Q b, Q x, Q y) {
  return q_dwords([&](int i) { return q_dword(a, i) == q_dword(b, i) ? q_dword(x, i) : q_dword(y, i); });
}
inline Q qtable(const std::int8_t* table16) {
  Q q;
  __builtin_memcpy(q.b, table16, 16);
  return q;
}
inline Q qlookup(Q table, Q index) {
  return q_bytes([&](int i) { return table.b[index.b[i]]; });
}
inline Q qfifth_bits(const Rows& r, int j, std::size_t off) {
  std::uint16_t m;
  __builtin_memcpy(&m, r.p[j] + off, 2);
  return q_bytes([&](int i) { return ((m >> i) & 1) * 16; });
}
inline Q qwide(Q a) { return a; }
inline Q qbroadcast16(const std::int8_t* p) { return qtable(p); }
inline Q qbroadcast4(const std::int8_t* p) {
  return q_bytes([&](int i) { return p[i % 4]; });
}
inline Q qdot(Q acc, Q u, Q x) {
  return q_dwords([&](int i) {
    std::uint32_t s = q_dword(acc, i);
    for (int k = 4 * i; k < 4 * i + 4; ++k) s += unsign(u.b[k] * static_cast<std::int8_t>(x.b[k]));
    return s;
  });
}
inline Q qdot_wide(Q acc, Q u, Q x) {
  return q_dwords([&](int i) {
    std::uint32_t s = q_dword(acc, i);
    for (int k = 4 * i; k < 4 * i + 4; ++k)
      s += unsign(static_cast<std::int8_t>(u.b[k]) * static_cast<std::int8_t>(x.b[k]));
    return s;
  });
}
inline Q qdot_words(Q acc, Q u, Q x) {
  return q_dwords([&](int i) {
    std::uint32_t s = q_dword(acc, i);
    for (int k = 2 * i; k < 2 * i + 2; ++k)
      s += unsign(static_cast<std::int16_t>(q_word(u, k)) * static_cast<std::int16_t>(q_word(x, k)));
    return s;
  });
}
inline Q qtree(Q a, Q b, Q c, Q d) {
  const Q* q[4] = {&a, &b, &c, &d};
  return q_dwords(
      [&](int i) { return q_dword(*q[i], 0) + q_dword(*q[i], 1) + q_dword(*q[i], 2) + q_dword(*q[i], 3); });
}
inline void qtranspose(Q& a, Q& b, Q& c, Q& d) {
  const Q in[4] = {a, b, c, d};
  Q* out[4] = {&a, &b, &c, &d};
  for (int k = 0; k < 4; ++k) *out[k] = q_dwords([&](int i) { return q_dword(in[i], k); });
}
inline void qcolumns(Q& a, Q& b, Q& c, Q& d) {
  const Q in[4] = {a, b, c, d};
  Q* out[4] = {&a, &b, &c, &d};
  for (int k = 0; k < 4; ++k) *out[k] = q_bytes([&](int i) { return in[i % 4].b[4 * k + i / 4]; });
}
inline Q qget(const void* p) {
  Q q;
  __builtin_memcpy(q.b, p, 16);
  return q;
}
inline void qput(void* p, Q a) { __builtin_memcpy(p, a.b, 16); }

template <class F>
inline FG fg(F f) {
  FG r;
  for (int i = 0; i < 4; ++i) r.v[i] = f(i);
  return r;
}
inline FG fg_set1(float x) {
  return fg([&](int) { return x; });
}
inline FG fg_zero() { return fg_set1(0); }
inline FG fg_load(const float* p) {
  return fg([&](int i) { return p[i]; });
}
inline void fg_store_n(float* p, FG a, std::size_t n) { __builtin_memcpy(p, a.v, n * sizeof(float)); }
inline FG fg_load_f16(const std::uint16_t* p) {
  return fg([&](int i) { return half_value(p[i]); });
}
inline FG fg_load_bf16(const std::uint16_t* p) {
  return fg([&](int i) { return float_of(static_cast<std::uint32_t>(p[i]) << 16); });
}
inline void fg_store(float* p, FG a) { fg_store_n(p, a, 4); }
inline FG fg_fma(FG a, FG b, FG c) {
  return fg([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline FG fg_mul(FG a, FG b) {
  return fg([&](int i) { return a.v[i] * b.v[i]; });
}
inline FG fg_add(FG a, FG b) {
  return fg([&](int i) { return a.v[i] + b.v[i]; });
}
inline FG fg_negate(FG a) {
  return fg([&](int i) { return -a.v[i]; });
}
inline FG fg_from_int(Q a) {
  return fg([&](int i) { return static_cast<float>(wrap(q_dword(a, i))); });
}
inline FG fg_from_bits(Q a) {
  return fg([&](int i) { return float_of(q_dword(a, i)); });
}
inline FG fg_half_low(Q a) {
  return fg([&](int i) { return half_value(q_word(a, 2 * i)); });
}
inline FG fg_half_high(Q a) {
  return fg([&](int i) { return half_value(q_word(a, 2 * i + 1)); });
}
inline void fg_halves(Q a, FG& low, FG& high) {
  low = fg_half_low(a);
  high = fg_half_high(a);
}
inline FG fg_load_halves(const Rows& r, std::size_t off) { return fg_half_low(qload_dword(r, off)); }

}  // namespace
}  // namespace quipu::backends

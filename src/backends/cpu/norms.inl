// Norms of a row, its quantisation for linears with quantised weights, and both in one pass.

namespace quipu::backends {
namespace {

struct Spread {
  float mean, variance;
};
/// Of a row, as docs/numerics.md says of LayerNorm.
inline Spread spread_of(const float* x, std::size_t n) {
  V16 sum = set1(0);
  for_lanes(n, [&](std::size_t i, std::size_t m) { sum = sum + load_part(x + i, m); });
  const float mean_value = reduce_add(sum) / static_cast<float>(n);
  const V16 mean = set1(mean_value);
  V16 squares = set1(0);
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    V16 a = load_part(x + i, m) - mean;
    if (m < 16) {  // the padding is zero, not -mean
      float t[16];
      store(t, a);
      a = load_n(t, m);
    }
    squares = fma(a, a, squares);
  });
  return {mean_value, reduce_add(squares) / static_cast<float>(n)};
}

/// The elements of a normalised row: `at(i, m)` of m elements from i on.
struct RmsNormed {
  const float *x, *weight;
  V16 r;

  RmsNormed(const float* row, const float* w, std::size_t n, float eps) : x(row), weight(w) {
    V16 sum = set1(0);
    for_lanes(n, [&](std::size_t i, std::size_t m) {
      const V16 a = load_part(row + i, m);
      sum = fma(a, a, sum);
    });
    r = set1(1.0f / __builtin_sqrtf(reduce_add(sum) / static_cast<float>(n) + eps));
  }
  V16 at(std::size_t i, std::size_t m) const { return (load_part(x + i, m) * r) * load_part(weight + i, m); }
};
struct LayerNormed {
  const float *x, *weight, *bias;
  V16 mean, r;

  LayerNormed(const float* row, const float* w, const float* b, std::size_t n, float eps)
      : x(row), weight(w), bias(b) {
    const Spread spread = spread_of(row, n);
    mean = set1(spread.mean), r = set1(1.0f / __builtin_sqrtf(spread.variance + eps));
  }
  V16 at(std::size_t i, std::size_t m) const {
    const V16 a = ((load_part(x + i, m) - mean) * r) * load_part(weight + i, m);
    return bias != nullptr ? a + load_part(bias + i, m) : a;
  }
};

constexpr float kMostCode = 2039;  ///< of a 12-bit activation, so that its high plane fits a byte
/// Half a group's q: as words at `to`, or as planes of which the high one lies 32 bytes behind.
inline void store_planes(std::int8_t* low, std::int8_t* high, I16 q) {
  const I16 sixteens = sar<4>(q + iset1(8));
  store_int8(low, q - shl<4>(sixteens));
  store_int8(high, sixteens);
}
inline void store_codes(bool words, std::int8_t* to, std::size_t half, I16 q) {
  if (words) return store_words_0213(to + 32 * half, q);
  store_planes(to + 16 * half, to + 16 * half + 32, q);
}
/// What values up to `top` are multiplied by to become q. Of a group of zeros, or one so small that the
/// factor overflows, all q are 0; of one with infinity or NaN too.
inline float code_factor(float top) {
  const float inverse = kMostCode / top;
  return top > 0 && top < __builtin_inff() && inverse < __builtin_inff() ? inverse : 0.0f;
}
inline I16 codes(V16 x, float factor) { return factor > 0 ? to_int(x * set1(factor)) : iset1(0); }
inline float float_of_bits(std::int32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

/// The sums of a slab as WideSlab has them: |sum| < 2^16, so that both parts have eight bits.
template <std::size_t count>
inline void store_sums(const std::int32_t* sums, std::uint16_t* to) {
  const auto upper = [](std::int32_t x) {
    const float f = static_cast<float>(x);
    std::uint32_t u;
    __builtin_memcpy(&u, &f, 4);
    return static_cast<std::uint16_t>(u >> 16);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t sum = sums[i / 2 + i % 2 * (count / 2)], multiple = (sum + 128) & ~255;
    to[i] = upper(multiple);
    to[count + i] = upper(sum - multiple);
  }
  for (std::size_t i = 2 * count; i < 32; ++i) to[i] = 0;
}

/// Groups of kSlab as docs/numerics.md says, of the values that `at(i)` gives for elements i to i + 15.
/// Maxima are taken on the bits, so that NaN and infinity reach d and with it the output.
template <class At>
inline void quantize_groups(At at, const QuantizedRows& out, std::size_t row) {
  const std::size_t groups = out.width / 32, count = slabs(out.width);
  std::int8_t* q = out.q + row * out.stride;
  WideSlab* wide =
      out.wide != nullptr ? reinterpret_cast<WideSlab*>(out.wide + row * wide_stride(out.width)) : nullptr;
  std::int32_t *sum16 = out.sum16 + row * groups * 2, *sum32 = out.sum32 + row * groups;
  float* fsum = out.fsum + row * groups;
  for (std::size_t slab = 0; slab < count; ++slab) {
    const std::size_t g0 = slab * (kSlab / 32), g1 = groups - g0 < kSlab / 32 ? groups : g0 + kSlab / 32;
    V16 x[kSlab / 16];
    I16 largest = iset1(0);
    for (std::size_t i = 2 * g0; i < 2 * g1; ++i) {
      x[i - 2 * g0] = at(16 * i);
      largest = imax(largest, bits(abs(x[i - 2 * g0])));
    }
    const float top = float_of_bits(reduce_imax(largest)), factor = code_factor(top);
    out.d[row * count + slab] = top / kMostCode;
    for (std::size_t g = g0; g < g1; ++g) {
      const I16 qa = codes(x[2 * (g - g0)], factor), qb = codes(x[2 * (g - g0) + 1], factor);
      store_codes(out.words, q + 64 * g, 0, qa);
      store_codes(out.words, q + 64 * g, 1, qb);
      if (wide != nullptr) {
        auto& to = wide[slab].planes[(g - g0) / 2];
        store_planes(to.low + g % 2 * 32, to.high + g % 2 * 32, qa);
        store_planes(to.low + g % 2 * 32 + 16, to.high + g % 2 * 32 + 16, qb);
      }
      sum16[2 * g] = reduce_iadd(qa);
      sum16[2 * g + 1] = reduce_iadd(qb);
      sum32[g] = sum16[2 * g] + sum16[2 * g + 1];
      fsum[g] = static_cast<float>(sum32[g]);
    }
    if (wide != nullptr) {
      store_sums<16>(sum16 + 2 * g0, wide[slab].sums16);
      store_sums<8>(sum32 + g0, wide[slab].sums32);
    }
  }
}

void quantize(const float* x, const QuantizedRows& out, std::size_t row) {
  quantize_groups([x](std::size_t i) { return load(x + i); }, out, row);
}

template <class Normed>
inline void write_normed(const Normed& row, float* y, std::size_t n) {
  for_lanes(n, [&](std::size_t i, std::size_t m) { store_part(y + i, row.at(i, m), m); });
}
/// As floats too where y is not null.
template <class Normed>
inline void quantize_normed(const Normed& normed, float* y, const QuantizedRows& out, std::size_t row) {
  quantize_groups(
      [&](std::size_t i) {
        const V16 a = normed.at(i, 16);
        if (y != nullptr) store(y + i, a);
        return a;
      },
      out, row);
}

void rms_norm(const float* x, const float* weight, float* y, std::size_t n, float eps) {
  write_normed(RmsNormed(x, weight, n, eps), y, n);
}
void layer_norm(const float* x, const float* weight, const float* bias, float* y, std::size_t n, float eps) {
  write_normed(LayerNormed(x, weight, bias, n, eps), y, n);
}
void rms_norm_quantize(const float* x, const float* weight, float* y, float eps, const QuantizedRows& out,
                       std::size_t row) {
  quantize_normed(RmsNormed(x, weight, out.width, eps), y, out, row);
}
void layer_norm_quantize(const float* x, const float* weight, const float* bias, float* y, float eps,
                         const QuantizedRows& out, std::size_t row) {
  quantize_normed(LayerNormed(x, weight, bias, out.width, eps), y, out, row);
}

}  // namespace
}  // namespace quipu::backends

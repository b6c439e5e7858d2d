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
inline void store_codes(bool words, std::int8_t* to, std::size_t half, I16 q) {
  if (words) return store_words_0213(to + 32 * half, q);
  const I16 high = sar<4>(q + iset1(8));
  store_int8(to + 16 * half, q - shl<4>(high));
  store_int8(to + 16 * half + 32, high);
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

/// Groups of 32 as docs/numerics.md says, of the values that `at(i)` gives for elements i to i + 15. Maxima
/// are taken on the bits, so that NaN and infinity reach d and with it the output.
template <class At>
inline void quantize_groups(At at, const QuantizedRows& out, std::size_t row) {
  const std::size_t groups = out.width / 32;
  std::int8_t* q = out.q + row * out.stride;
  for (std::size_t g = 0; g < groups; ++g) {
    const V16 a = at(32 * g), b = at(32 * g + 16);
    const float top = float_of_bits(reduce_imax(imax(bits(abs(a)), bits(abs(b)))));
    const float factor = code_factor(top);
    const I16 qa = codes(a, factor), qb = codes(b, factor);
    store_codes(out.words, q + 64 * g, 0, qa);
    store_codes(out.words, q + 64 * g, 1, qb);
    const std::int32_t sum_a = reduce_iadd(qa), sum_b = reduce_iadd(qb);
    const float d = top / kMostCode;
    out.sum16[(row * groups + g) * 2] = sum_a;
    out.sum16[(row * groups + g) * 2 + 1] = sum_b;
    out.sum32[row * groups + g] = sum_a + sum_b;
    out.d[row * groups + g] = d;
    out.dsum[row * groups + g] = d * static_cast<float>(sum_a + sum_b);
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

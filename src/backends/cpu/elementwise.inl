// Norms, activations, RoPE, quantisation of activations, cache stores: rows of floats.

namespace quipu::backends {
namespace {

void rms_norm(const float* x, const float* weight, float* y, std::size_t n, float eps) {
  V16 sum = set1(0);
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    const V16 a = load_part(x + i, m);
    sum = fma(a, a, sum);
  });
  const V16 r = set1(1.0f / __builtin_sqrtf(reduce_add(sum) / static_cast<float>(n) + eps));
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    store_part(y + i, (load_part(x + i, m) * r) * load_part(weight + i, m), m);
  });
}

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

void gaussian_top_k(const float* x, float deviations, float* y, std::size_t n) {
  const Spread spread = spread_of(x, n);
  const V16 cut = set1(spread.mean + deviations * __builtin_sqrtf(spread.variance));
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    const V16 above = load_part(x + i, m) - cut;
    store_part(y + i, select_less(above, set1(0), set1(0), above), m);
  });
}

void layer_norm(const float* x, const float* weight, const float* bias, float* y, std::size_t n, float eps) {
  const Spread spread = spread_of(x, n);
  const V16 mean = set1(spread.mean), r = set1(1.0f / __builtin_sqrtf(spread.variance + eps));
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    V16 a = ((load_part(x + i, m) - mean) * r) * load_part(weight + i, m);
    if (bias != nullptr) a = a + load_part(bias + i, m);
    store_part(y + i, a, m);
  });
}

void activate(int kind, const float* x, float* y, std::size_t n) {
  for_lanes(
      n, [&](std::size_t i, std::size_t m) { store_part(y + i, activation(kind, load_part(x + i, m)), m); });
}
void glu(int kind, const float* gate, const float* up, float* y, std::size_t n, float limit, float shift) {
  if (limit == 0 && shift == 0) {
    for_lanes(n, [&](std::size_t i, std::size_t m) {
      store_part(y + i, activation(kind, load_part(gate + i, m)) * load_part(up + i, m), m);
    });
    return;
  }
  const V16 high = set1(limit > 0 ? limit : __builtin_inff()), low = negate(high), more = set1(shift);
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    V16 g = load_part(gate + i, m), u = load_part(up + i, m);
    g = select_less(high, g, high, g);
    u = select_less(high, u, high, select_less(u, low, low, u));
    store_part(y + i, activation(kind, g) * (u + more), m);
  });
}
void xielu(const float* x, const float* settings, float* y, std::size_t n) {
  const V16 p = set1(settings[0]), m = set1(settings[1]), beta = set1(settings[2]), eps = set1(settings[3]);
  for_lanes(n, [&](std::size_t i, std::size_t count) {
    const V16 v = load_part(x + i, count);
    const V16 up = (p * v) * v, down = m * ((exp(select_less(v, eps, v, eps)) - set1(1)) - v);
    store_part(y + i, select_less(set1(0), v, up, down) + beta * v, count);
  });
}
void add_rows(const float* a, const float* b, float* y, std::size_t n) {
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    store_part(y + i, load_part(a + i, m) + load_part(b + i, m), m);
  });
}
void mul_rows(const float* a, const float* b, float* y, std::size_t n) {
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    store_part(y + i, load_part(a + i, m) * load_part(b + i, m), m);
  });
}
void scale_row(const float* x, float factor, float* y, std::size_t n) {
  const V16 f = set1(factor);
  for_lanes(n, [&](std::size_t i, std::size_t m) { store_part(y + i, load_part(x + i, m) * f, m); });
}

void add_scaled_row(const float* a, const float* b, float factor, float* y, std::size_t n) {
  const V16 f = set1(factor);
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    store_part(y + i, fma(f, load_part(b + i, m), load_part(a + i, m)), m);
  });
}

void rope(const RopeArgs& a) {
  const std::size_t turned = 2 * a.pairs, after = a.first + turned;
  for (std::size_t h = 0; h < a.heads; ++h) {
    const float* head = a.x + h * a.head_dim;
    float* to = a.y + h * a.head_dim;
    const float* x = head + a.first;
    float* y = to + a.first;
    if (a.neox) {
      for_lanes(a.pairs, [&](std::size_t i, std::size_t m) {
        const V16 c = load_part(a.cos + i, m), s = load_part(a.sin + i, m);
        const V16 p = load_part(x + i, m), q = load_part(x + a.pairs + i, m);
        store_part(y + i, p * c - q * s, m);
        store_part(y + a.pairs + i, p * s + q * c, m);
      });
    } else {
      for (std::size_t i = 0; i < a.pairs; ++i) {
        const float p = x[2 * i], q = x[2 * i + 1], c = a.cos[i], s = a.sin[i];
        const float pc = p * c, qs = q * s, ps = p * s, qc = q * c;
        y[2 * i] = pc - qs;
        y[2 * i + 1] = ps + qc;
      }
    }
    if (y == x) continue;
    __builtin_memcpy(to, head, a.first * sizeof(float));
    __builtin_memcpy(to + after, head + after, (a.head_dim - after) * sizeof(float));
  }
}

/// Groups of 32 as docs/numerics.md says. Maxima are taken on the bits, so that NaN and infinity reach d and
/// with it the output.
void quantize(const float* x, const QuantizedRows& out, std::size_t row) {
  const std::size_t groups = out.width / 32;
  std::int8_t* q = out.q + row * out.stride;
  for (std::size_t g = 0; g < groups; ++g) {
    const V16 a = load(x + 32 * g), b = load(x + 32 * g + 16);
    const std::int32_t top_bits = reduce_imax(imax(bits(abs(a)), bits(abs(b))));
    float top;
    __builtin_memcpy(&top, &top_bits, 4);
    const float inverse = 2039.0f / top;
    // Of a group of zeros, or one so small that 2039 / max overflows, all q are 0; of one with infinity or
    // NaN too.
    const bool usable = top > 0 && top < __builtin_inff() && inverse < __builtin_inff();
    const V16 f = set1(usable ? inverse : 0.0f);
    const I16 qa = usable ? to_int(a * f) : iset1(0), qb = usable ? to_int(b * f) : iset1(0);
    std::int8_t* to = q + 64 * g;
    if (out.words) {
      store_words_0213(to, qa);
      store_words_0213(to + 32, qb);
    } else {
      const I16 ha = sar<4>(qa + iset1(8)), hb = sar<4>(qb + iset1(8));
      store_int8(to, qa - shl<4>(ha));
      store_int8(to + 16, qb - shl<4>(hb));
      store_int8(to + 32, ha);
      store_int8(to + 48, hb);
    }
    const std::int32_t sum_a = reduce_iadd(qa), sum_b = reduce_iadd(qb);
    const float d = top / 2039.0f;
    out.sum16[(row * groups + g) * 2] = sum_a;
    out.sum16[(row * groups + g) * 2 + 1] = sum_b;
    out.sum32[row * groups + g] = sum_a + sum_b;
    out.d[row * groups + g] = d;
    out.dsum[row * groups + g] = d * static_cast<float>(sum_a + sum_b);
  }
}

void store_f16_row(const float* x, std::uint16_t* y, std::size_t n) {
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    if (m == 16) {
      store_f16(y + i, load(x + i));
    } else {
      std::uint16_t t[16];
      store_f16(t, load_n(x + i, m));
      __builtin_memcpy(y + i, t, m * sizeof(std::uint16_t));
    }
  });
}

void store_bf16_row(const float* x, std::uint16_t* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t u;
    __builtin_memcpy(&u, x + i, 4);
    const std::uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    y[i] = static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded >> 16);
  }
}

}  // namespace
}  // namespace quipu::backends

// Activations, RoPE, sums, cache stores: rows of floats.

namespace quipu::backends {
namespace {

void gaussian_top_k(const float* x, float deviations, float* y, std::size_t n) {
  const Spread spread = spread_of(x, n);
  const V16 cut = set1(spread.mean + deviations * __builtin_sqrtf(spread.variance));
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    const V16 above = load_part(x + i, m) - cut;
    store_part(y + i, select_less(above, set1(0), set1(0), above), m);
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

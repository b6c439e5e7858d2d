// Own exp, tanh, sigmoid, silu, gelu on 16 lanes: the same operations on every instruction set. Maximal
// errors are asserted in tests/backends/cpu_math_test.cpp. Polynomials: Chebyshev fits to the function named
// beside each.

namespace quipu::backends {
namespace {

/// p = p * x + c, from the highest coefficient down.
template <std::size_t n>
inline V16 polynomial(V16 x, const float (&c)[n]) {
  V16 p = set1(c[n - 1]);
  for (std::size_t i = n - 1; i > 0; --i) p = fma(p, x, set1(c[i - 1]));
  return p;
}

/// e^x within 2 ulp; 0 below -104, +inf above 88.8, NaN stays NaN. x = n ln 2 + r, (e^r - 1 - r) / r^2 by
/// polynomial.
[[gnu::always_inline]] inline V16 exp(V16 x) {
  constexpr float c[] = {0.5f, 0.166666672f, 0.0416664667f, 0.00833329838f, 0.00139336509f, 0.000198992857f};
  // Below it e^x rounds to 0. Such lanes (what attention does not see) take part as 0: a product that
  // underflows costs hundreds of cycles.
  const V16 least = set1(-104.0f);
  const V16 y = vmin(set1(89.0f), select_less(x, least, set1(0.0f), x));
  const V16 n = round_even(y * set1(1.44269504f));
  V16 r = fma(n, set1(-0.693359375f), y);
  r = fma(n, set1(2.12194440e-4f), r);
  const V16 p = fma(polynomial(r, c), r * r, r) + set1(1.0f);
  // 2^n in two factors, so that subnormal results round once and large ones overflow.
  const I16 i = to_int(n), half = sar<1>(i);
  const V16 a = from_bits(shl<23>(half + iset1(127))), b = from_bits(shl<23>((i - half) + iset1(127)));
  return select_less(x, least, set1(0.0f), (p * a) * b);
}

inline V16 negate(V16 x) { return set1(-0.0f) - x; }

/// (tanh(x) - x) / x^3 in x^2 below 0.625, through exp above.
inline V16 tanh(V16 x) {
  constexpr float c[] = {-0.333333284f, 0.133327827f, -0.0538524948f, 0.0210036319f, -0.00610493775f};
  const V16 a = abs(x);
  const V16 u = x * x;
  const V16 small = fma(polynomial(u, c) * u, x, x);
  const V16 big = set1(1.0f) - set1(2.0f) / (exp(a + a) + set1(1.0f));
  const V16 signed_big = from_bits(bits(big) | (bits(x) & iset1(INT32_MIN)));
  return select_less(a, set1(0.625f), small, signed_big);
}

inline V16 sigmoid(V16 x) { return set1(1.0f) / (set1(1.0f) + exp(negate(x))); }
inline V16 silu(V16 x) { return x / (set1(1.0f) + exp(negate(x))); }

/// x * Phi(x): erf(a) / a in a^2 below 1, erfc(a) = e^(-a^2) t g(t) with t = 1 / (1 + a / 2) above; a = |x| /
/// sqrt 2.
inline V16 gelu(V16 x) {
  constexpr float near[] = {1.12837911f,    -0.37612626f,     0.112835974f,   -0.0268543288f,
                            0.00518931216f, -0.000801885501f, 7.88249745e-05f};
  constexpr float far[] = {0.282082736f, 0.282420158f,  0.243064642f, 0.200800985f,  -0.014069248f,
                           0.240944713f, -0.428992629f, 0.237465188f, -0.0435541384f};
  const V16 half = set1(0.5f);
  const V16 z = x * set1(0.707106781f), a = vmin(set1(14.0f), abs(z)), u = a * a;
  const V16 erf_near = polynomial(u, near) * z;
  const V16 y_near = fma(half * x, erf_near, half * x);
  const V16 t = set1(1.0f) / fma(half, a, set1(1.0f));
  const V16 tail = half * (exp(negate(u)) * (t * polynomial(t, far)));  // Phi(-|x|)
  // -inf times a tail of zero is zero.
  const V16 negative = vmax(set1(-30.0f), x) * tail;
  const V16 y_far = select_less(x, set1(0.0f), negative, x * (set1(1.0f) - tail));
  return select_less(a, set1(1.0f), y_near, y_far);
}

/// 0.5 x (1 + tanh(s)) = x * sigmoid(2 s), s = sqrt(2 / pi) (x + 0.044715 x^3).
inline V16 gelu_tanh(V16 x) {
  const V16 s = (x * set1(1.59576912f)) * fma(x * x, set1(0.044715f), set1(1.0f));
  return vmax(set1(-30.0f), x) / (set1(1.0f) + exp(negate(s)));
}
inline V16 gelu_quick(V16 x) { return vmax(set1(-60.0f), x) / (set1(1.0f) + exp(x * set1(-1.702f))); }

/// `kind` is graph::Activation as an integer.
inline V16 activation(int kind, V16 x) {
  switch (kind) {
    case 0:
      return silu(x);
    case 1:
      return gelu(x);
    case 2:
      return gelu_tanh(x);
    case 3:
      return gelu_quick(x);
    case 4:
      return vmax(set1(0.0f), x);
    case 5: {
      const V16 r = vmax(set1(0.0f), x);
      return r * r;
    }
    case 6:
      return sigmoid(x);
    default:
      return tanh(x);
  }
}

}  // namespace
}  // namespace quipu::backends

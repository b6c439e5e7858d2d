// The running softmax of a query row, and how the states of two stretches of positions become one.

namespace quipu::backends {
namespace {

inline float exp1(float x) {
  float t[16];
  store(t, exp(set1(x)));
  return t[0];
}
constexpr std::size_t padded(std::size_t n) { return (n + 15) / 16 * 16; }

/// Running softmax of one query row: maximum, sum of exponentials, weighted values.
struct SoftmaxState {
  float* values;
  float* top_sum;  ///< [0] maximum, [1] sum
};
inline void reset(SoftmaxState s, std::size_t v) {
  for (std::size_t i = 0; i < v; i += 16) store(s.values + i, set1(0));
  s.top_sum[0] = -__builtin_inff();
  s.top_sum[1] = 0;
}
/// a = a and b, b the later positions.
inline void merge(SoftmaxState a, SoftmaxState b, std::size_t v) {
  if (b.top_sum[1] == 0 && b.top_sum[0] == -__builtin_inff()) return;  // no visible position
  if (a.top_sum[1] == 0 && a.top_sum[0] == -__builtin_inff()) {
    for (std::size_t i = 0; i < v; i += 16) store(a.values + i, load(b.values + i));
    a.top_sum[0] = b.top_sum[0];
    a.top_sum[1] = b.top_sum[1];
    return;
  }
  const float top = a.top_sum[0] > b.top_sum[0] ? a.top_sum[0] : b.top_sum[0];
  const float fa = exp1(a.top_sum[0] - top), fb = exp1(b.top_sum[0] - top);
  const V16 va = set1(fa), vb = set1(fb);
  for (std::size_t i = 0; i < v; i += 16)
    store(a.values + i, fma(load(b.values + i), vb, load(a.values + i) * va));
  a.top_sum[0] = top;
  a.top_sum[1] = __builtin_fmaf(b.top_sum[1], fb, a.top_sum[1] * fa);
}
/// out = values / sum, a sink (a logit without a value) joining the sum.
inline void finish(SoftmaxState s, std::size_t v_dim, const float* sink, float* out) {
  float sum = s.top_sum[1], factor = 1;
  if (sink != nullptr) {
    const float top = s.top_sum[0] > *sink ? s.top_sum[0] : *sink;
    factor = exp1(s.top_sum[0] - top);
    sum = sum * factor + exp1(*sink - top);
  }
  const V16 r = set1(factor / sum);
  for_lanes(v_dim, [&](std::size_t i, std::size_t m) { store_part(out + i, load(s.values + i) * r, m); });
}

}  // namespace
}  // namespace quipu::backends

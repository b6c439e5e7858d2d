// Which rows a call of a linear reads and writes (consecutive ones, or those that chose an expert), and what
// follows a sum.

namespace quipu::backends {
namespace {

inline std::size_t out_row(const LinearArgs& a, std::size_t t) { return a.map != nullptr ? a.map[t] : t; }
inline const float* in_row(const LinearArgs& a, std::size_t t) {
  return a.xf + (a.map != nullptr ? a.map[t] / a.map_share : t) * a.k;
}

inline FG fg_load_part(const float* p, std::size_t n) {
  if (n == kGroup) return fg_load(p);
  float t[kGroup] = {};
  __builtin_memcpy(t, p, n * sizeof(float));
  return fg_load(t);
}
/// Bias and residual, in this order, then the store of a group's outputs of activation row t.
inline void finish(const LinearArgs& a, std::size_t t, std::size_t n, std::size_t count, FG y) {
  if (a.bias != nullptr) y = fg_add(y, fg_load_part(a.bias + n, count));
  if (a.residual != nullptr) y = fg_add(y, fg_load_part(a.residual + out_row(a, t) * a.n + n, count));
  float* out = a.y + out_row(a, t) * a.n + n;
  if (count == kGroup)
    fg_store(out, y);
  else
    fg_store_n(out, y, count);
}

}  // namespace
}  // namespace quipu::backends

// Rows of floats sixteen at a time, whatever their length.

namespace quipu::backends {
namespace {

/// y[i] = f(i) in steps of 16, the tail by `load_n`/`store_n`.
template <class F>
inline void for_lanes(std::size_t n, F f) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, std::size_t{16});
  if (i < n) f(i, n - i);
}
inline V16 load_part(const float* p, std::size_t n) { return n == 16 ? load(p) : load_n(p, n); }
inline void store_part(float* p, V16 a, std::size_t n) {
  if (n == 16)
    store(p, a);
  else
    store_n(p, a, n);
}

}  // namespace
}  // namespace quipu::backends

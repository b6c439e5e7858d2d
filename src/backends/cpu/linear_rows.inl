// Which rows a call of a linear reads and writes: consecutive ones, or those that chose an expert.

namespace quipu::backends {
namespace {

inline std::size_t out_row(const LinearArgs& a, std::size_t t) { return a.map != nullptr ? a.map[t] : t; }
inline const float* in_row(const LinearArgs& a, std::size_t t) {
  return a.xf + (a.map != nullptr ? a.map[t] / a.map_share : t) * a.k;
}

}  // namespace
}  // namespace quipu::backends

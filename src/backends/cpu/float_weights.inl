// F32, F16 and BF16 weights as floats, exactly, and what follows the sum of their products
// (docs/numerics.md).

namespace quipu::backends {
namespace {

struct WeightF32 {
  static constexpr std::size_t kBytes = 4;
  static V16 at(const std::uint8_t* row, std::size_t k) {
    return load(reinterpret_cast<const float*>(row) + k);
  }
  static V16 part(const std::uint8_t* row, std::size_t k, std::size_t n) {
    return load_n(reinterpret_cast<const float*>(row) + k, n);
  }
  static void from_dword(Q v, FG* to) { to[0] = fg_from_bits(v); }
};
struct WeightF16 {
  static constexpr std::size_t kBytes = 2;
  static V16 at(const std::uint8_t* row, std::size_t k) {
    return load_f16(reinterpret_cast<const std::uint16_t*>(row) + k);
  }
  static V16 part(const std::uint8_t* row, std::size_t k, std::size_t n) {
    return load_f16_n(reinterpret_cast<const std::uint16_t*>(row) + k, n);
  }
  static void from_dword(Q v, FG* to) { fg_halves(v, to[0], to[1]); }
};
struct WeightBF16 {
  static constexpr std::size_t kBytes = 2;
  static V16 at(const std::uint8_t* row, std::size_t k) {
    return load_bf16(reinterpret_cast<const std::uint16_t*>(row) + k);
  }
  static V16 part(const std::uint8_t* row, std::size_t k, std::size_t n) {
    return load_bf16_n(reinterpret_cast<const std::uint16_t*>(row) + k, n);
  }
  static void from_dword(Q v, FG* to) {
    to[0] = fg_from_bits(qshl32<16>(v));
    to[1] = fg_from_bits(qand(v, qset1_32(static_cast<std::int32_t>(0xffff0000u))));
  }
};

/// Lanes [k, k + 16) of a group of rows, a register of rows for each.
template <class W>
inline void load_columns(const Rows& r, std::size_t k, FG (&lanes)[16]) {
  constexpr int per_dword = 4 / W::kBytes, dwords = 16 / per_dword;
  for (int at = 0; at < dwords; at += 4) {
    Q v[4];
    for (int j = 0; j < 4; ++j) v[j] = qload(r, j, k * W::kBytes + static_cast<std::size_t>(at) * 4);
    qtranspose(v[0], v[1], v[2], v[3]);
    for (int j = 0; j < 4; ++j) W::from_dword(v[j], lanes + (at + j) * per_dword);
  }
}

/// Outputs [column, column + count) of activation row t from their sums: bias and residual, in this order.
inline void float_outputs(const LinearArgs& a, std::size_t column, std::size_t t, const float* sums,
                          std::size_t count) {
  const std::size_t begin = out_row(a, t) * a.n + column;
  for (std::size_t i = 0; i < count; ++i) {
    float y = sums[i];
    if (a.bias != nullptr) y = y + a.bias[column + i];
    if (a.residual != nullptr) y = y + a.residual[begin + i];
    a.y[begin + i] = y;
  }
}

}  // namespace
}  // namespace quipu::backends

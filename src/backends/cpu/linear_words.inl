// Panels for linear_many.inl: 16-bit weights, which a multiply-add of pairs takes with the 12-bit activations
// as they are, so that a sub-block's sum needs no planes and no zero point. The scales of a super-block's
// sub-blocks are in its words, so that all of it is one sum.

namespace quipu::backends {
namespace {

/// Words of every row side by side: dword i of the file's order as the pairs 0, 2 and 1, 3.
struct ManyRows {
  static constexpr bool kWords = true;
  /// Fewer rows are linear_few.inl's.
  static constexpr std::size_t kLeastRows = kGroup == 16 ? 33 : 8;
  static constexpr std::size_t kBytesPerWeight = 2;
  /// Rows of activations that a load of weights serves.
  static constexpr int kTokens = kGroup == 16 ? 6 : 3;
  static constexpr std::size_t kPairBytes = 4 * kGroup;  ///< a pair of words of every row

  /// Dword `dword` of a chunk, of every row.
  template <class F>
  static void put(std::byte* weights, std::size_t dword, Q bytes) {
    Q even, odd;
    spread<F>(bytes, even, odd);
    put_words(weights, dword, even, odd);
  }
  /// The same times the scales of its sub-block (up to 4096: docs/numerics.md).
  template <class F>
  static void put(std::byte* weights, std::size_t dword, Q bytes, Q scale) {
    Q even, odd;
    spread<F>(bytes, scale, even, odd);
    put_words(weights, dword, even, odd);
  }

  template <class F>
  static void spread(Q bytes, Q& even, Q& odd) {
    if constexpr (F::kWide && kWideZero == 0) {  // signed bytes
      even = qsar16<8>(qshl16<8>(bytes));
      odd = qsar16<8>(bytes);
    } else {
      const Q mask = qset1_32(0x00ff00ff), zero = qset1_32(F::kZero * 0x00010001);
      even = qsub16(qand(bytes, mask), zero);
      odd = qsub16(qshr16<8>(bytes), zero);
    }
  }
  template <class F>
  static void spread(Q bytes, Q scale, Q& even, Q& odd) {
    spread<F>(bytes, even, odd);
    const Q both = qor(qand(scale, qset1_32(0xffff)), qshl32<16>(scale));
    even = qmul16(even, both);
    odd = qmul16(odd, both);
  }
  static void put_words(std::byte* weights, std::size_t dword, Q even, Q odd) {
    std::byte* to = weights + dword * 2 * kPairBytes;
    qput(to, even);
    qput(to + kPairBytes, odd);
  }

  /// sum[i][t]: sub-block `sub` of a chunk of panel i times row t of activations, whose chunk begins at q + t
  /// * stride.
  template <std::size_t width, int panels, int tokens>
  static void add(const std::byte* const* weights, std::size_t sub, const std::int8_t* q, std::size_t stride,
                  Q (&sum)[panels][tokens]) {
    constexpr int pairs = width / 2;
    for (int i = 0; i < panels; ++i)
      for (int t = 0; t < tokens; ++t) sum[i][t] = qzero();
    const std::byte* w[panels];
    for (int i = 0; i < panels; ++i) w[i] = weights[i] + sub * pairs * kPairBytes;
    const std::int8_t* x = q + sub * pairs * 4;
    constexpr int together = pairs < 16 ? pairs : 16;
    for (std::size_t from = 0; from < pairs; from += together) {
#pragma GCC unroll 16
      for (std::size_t j = 0; j < together; ++j) {
        Q u[panels];
        for (int i = 0; i < panels; ++i) u[i] = qget(w[i] + (from + j) * kPairBytes);
        for (int t = 0; t < tokens; ++t) {
          const Q pair = qbroadcast4(x + static_cast<std::size_t>(t) * stride + (from + j) * 4);
          for (int i = 0; i < panels; ++i) sum[i][t] = qdot_words(sum[i][t], u[i], pair);
        }
      }
    }
  }
};

}  // namespace
}  // namespace quipu::backends

// Linear with quantised weights for a few rows of activations: a block of a group of weight rows is unpacked
// once, as dwords of every row side by side, so that a sub-block's sum needs no tree; then each row of
// activations takes it. Same sums and same chain as linear_quant.inl, so the same bits.

namespace quipu::backends {
namespace {

/// The unpacked block of a group: dwords of every row, scales (and minima) by sub-block.
template <class B>
struct GroupBlock {
  static constexpr std::size_t kSubs = B::kBlock / B::kSubWidth;
  Q dwords[B::kBlock / 4];
  alignas(64) float d[kSubs * kGroup], m[kSubs * kGroup];
};

/// Adds sub-block `sub` of block b to one row of activations.
template <class B>
inline void add_sub(const GroupBlock<B>& w, std::size_t sub, std::size_t b, const PlanesRow& x, FG& acc,
                    FG& accm) {
  using F = typename B::Format;
  constexpr int width = B::kSubWidth, count = width / 4;
  const std::size_t k = b * B::kBlock + sub * width, at = k / width;
  const std::int8_t* q = x.q + k / 32 * 64 + k % 32;
  const std::int32_t sum_x = width == 32 ? x.sum32[at] : x.sum16[at];
  Q sum;
  if constexpr (kPairSums) {
    sum =
        less_zero<F>(sum_planes<F, count>([&](int j) { return w.dwords[static_cast<int>(sub) * count + j]; },
                                          [&](int j) { return qbroadcast4(q + 32 + 4 * j); },
                                          [&](int j) { return qbroadcast4(q + 4 * j); }),
                     sum_x);
  } else {  // two chains at a time
    Q high = qzero(), low = less_zero<F>(qzero(), sum_x);
#pragma GCC unroll 8
    for (std::size_t j = 0; j < count; ++j) {
      high = dot<F>(high, w.dwords[sub * count + j], qbroadcast4(q + 32 + 4 * j));
      low = dot<F>(low, w.dwords[sub * count + j], qbroadcast4(q + 4 * j));
    }
    sum = qadd32(low, qshl32<4>(high));
  }
  const float dx = x.d[k / 32];
  acc = fg_fma(fg_from_int(sum), fg_mul(fg_load(w.d + sub * kGroup), fg_set1(dx)), acc);
  if constexpr (F::kMin) {
    const float total = width == 32 ? x.dsum[at] : dx * static_cast<float>(x.sum16[at]);
    accm = fg_fma(fg_load(w.m + sub * kGroup), fg_set1(total), accm);
  }
}

template <class B>
void linear_few_rows(const LinearArgs& a) {
  const std::size_t blocks = a.k / B::kBlock;
  const Ahead ahead(a);
  PlanesRow x[ManyRows::kLeastRows];
  for (std::size_t t = 0; t < a.rows; ++t) x[t] = planes_row(*a.x, t);
  for (std::size_t n = a.n_begin; n < a.n_end; n += kGroup) {
    const std::size_t count = a.n_end - n < kGroup ? a.n_end - n : kGroup;
    const std::uint8_t *base = a.weight + n * a.row_bytes, *after = ahead.of(base);
    Rows r;
    rows_set(r, base, a.row_bytes, count);
    FG acc[ManyRows::kLeastRows], accm[ManyRows::kLeastRows];
    for (std::size_t t = 0; t < a.rows; ++t) acc[t] = accm[t] = fg_zero();
    for (std::size_t b = 0; b < blocks; ++b) {
      prefetch_block<B>(after + b * B::kBytes * kGroup);
      GroupBlock<B> w;
      B::unpack(
          r, b * B::kBytes, 0, [&](std::size_t dword, Q bytes) { w.dwords[dword] = bytes; }, w.d, w.m);
      for (std::size_t sub = 0; sub < GroupBlock<B>::kSubs; ++sub)
        for (std::size_t t = 0; t < a.rows; ++t) add_sub<B>(w, sub, b, x[t], acc[t], accm[t]);
    }
    for (std::size_t t = 0; t < a.rows; ++t)
      finish(a, t, n, count, B::Format::kMin ? fg_add(acc[t], accm[t]) : acc[t]);
  }
}

}  // namespace
}  // namespace quipu::backends

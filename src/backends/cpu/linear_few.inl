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
  alignas(64) float d[kGroup], minus_dmin[kGroup], m[kSubs * kGroup];
  alignas(64) std::int32_t s[kSubs * kGroup];

  GroupBlock(const Rows& r, std::size_t off) {
    const GroupScales to{d, m, minus_dmin, s};
    if constexpr (B::kBlock == 32)
      B::unpack(
          r, off, 0, [&](std::size_t dword, Q bytes) { dwords[dword] = bytes; }, to);
    else
      B::unpack(
          r, off, 0, [&](std::size_t dword, Q bytes, Q) { dwords[dword] = bytes; }, to);
  }
};

/// Sub-block `sub` of block b times one row of activations.
template <class B>
inline Q sub_sum(const GroupBlock<B>& w, std::size_t sub, std::size_t b, const PlanesRow& x) {
  using F = typename B::Format;
  constexpr int width = B::kSubWidth, count = width / 4;
  const std::size_t k = b * B::kBlock + sub * width, at = k / width;
  const std::int8_t* q = x.q + k / 32 * 64 + k % 32;
  const std::int32_t sum_x = width == 32 ? x.sum32[at] : x.sum16[at];
  if constexpr (kPairSums) {
    return less_zero<F>(
        sum_planes<F, count>([&](int j) { return w.dwords[static_cast<int>(sub) * count + j]; },
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
    return qadd32(low, qshl32<4>(high));
  }
}

/// Adds block b of a slab to the parts of all rows, or, of super-blocks, to their accumulators.
template <class B>
inline void add_block(const GroupBlock<B>& w, std::size_t b, const PlanesRow* x, std::size_t rows, FG* acc) {
  using F = typename B::Format;
  if constexpr (B::kBlock == 32) {
    for (std::size_t t = 0; t < rows; ++t) {
      acc[t] = fg_fma(fg_from_int(sub_sum(w, 0, b, x[t])), fg_load(w.d), acc[t]);
      if constexpr (F::kMin) acc[t] = fg_fma(fg_load(w.m), fg_set1(x[t].fsum[b]), acc[t]);
    }
  } else {
    typename B::Total total[ManyRows::kLeastRows];
    for (std::size_t sub = 0; sub < GroupBlock<B>::kSubs; ++sub)
      for (std::size_t t = 0; t < rows; ++t) total[t].add(sub_sum(w, sub, b, x[t]), qget(w.s + sub * kGroup));
    for (std::size_t t = 0; t < rows; ++t) {
      const FG dx = fg_set1(x[t].d[b]);
      acc[t] = fg_fma(total[t].value(), fg_mul(fg_load(w.d), dx), acc[t]);
      if constexpr (F::kMin) {
        FG minima[1];
        sum_minima<F::kSubs>(
            [&](int j) { return fg_load(w.m + j * kGroup); },
            [&](int, int j) { return B::float_sum_of(x[t], b * F::kSubs + static_cast<std::size_t>(j)); },
            minima);
        acc[t] = fg_fma(minima[0], fg_mul(fg_load(w.minus_dmin), dx), acc[t]);
      }
    }
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
    FG acc[ManyRows::kLeastRows], part[ManyRows::kLeastRows];
    for (std::size_t t = 0; t < a.rows; ++t) acc[t] = fg_zero();
    for (std::size_t b0 = 0; b0 < blocks; b0 += kSlabBlocks<B>) {
      const std::size_t b1 = blocks - b0 < kSlabBlocks<B> ? blocks : b0 + kSlabBlocks<B>;
      if constexpr (B::kBlock == 32)
        for (std::size_t t = 0; t < a.rows; ++t) part[t] = fg_zero();
      for (std::size_t b = b0; b < b1; ++b) {
        prefetch_block<B>(after + b * B::kBytes * kGroup);
        add_block(GroupBlock<B>(r, b * B::kBytes), b, x, a.rows, B::kBlock == 32 ? part : acc);
      }
      if constexpr (B::kBlock == 32)
        for (std::size_t t = 0; t < a.rows; ++t)
          acc[t] = fg_fma(part[t], fg_set1(x[t].d[b0 / kSlabBlocks<B>]), acc[t]);
    }
    for (std::size_t t = 0; t < a.rows; ++t) finish(a, t, n, count, acc[t]);
  }
}

}  // namespace
}  // namespace quipu::backends

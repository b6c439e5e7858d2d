// Linear with quantised weights for many rows: panels of 16-bit weights, which a multiply-add of pairs takes with the
// 12-bit activations as they are, so that a sub-block's sum needs no planes and no zero point. The panels know nothing
// of the format they came from. Same sums and same chain as linear_quant.inl, so the same bits.

namespace quipu::backends {
namespace {

/// Unpacked weights of a group of rows: words of every row side by side (dword i of the file's order as the pairs 0, 2
/// and 1, 3) for a chunk of K, so that they stay in L1; scales (and minima) by sub-block for all of K.
struct WordPanel {
  std::byte* words;
  float *d, *m;
};
constexpr std::size_t kPairBytes = 4 * kGroup;  ///< a pair of words of every row

/// The chunk [k0, k1) of a group of rows of `row_bytes`.
template <class B>
void unpack_words(const Rows& r, std::size_t row_bytes, std::size_t k0, std::size_t k1, const WordPanel& p) {
  using F = typename B::Format;
  const Q mask = qset1_32(0x00ff00ff), zero = qset1_32(F::kZero * 0x00010001);
  const auto put = [&](std::size_t dword, Q bytes) {
    Q even, odd;
    if constexpr (F::kWide && kWideZero == 0) {  // signed bytes
      even = qsar16<8>(qshl16<8>(bytes));
      odd = qsar16<8>(bytes);
    } else {
      even = qsub16(qand(bytes, mask), zero);
      odd = qsub16(qshr16<8>(bytes), zero);
    }
    std::byte* to = p.words + (dword - k0 / 4) * 2 * kPairBytes;
    qput(to, even);
    qput(to + kPairBytes, odd);
  };
  for (std::size_t b = k0 / B::kBlock; b < k1 / B::kBlock; ++b) {
    prefetch_group<B>(r.p[0] + b * B::kBytes * kGroup, 2 * kGroup * row_bytes);
    B::unpack(r, b * B::kBytes, b, put, p.d, p.m);
  }
}

/// What the panels' sub-blocks are like, whatever their format.
template <std::size_t width, bool min>
struct WordSubs {
  static constexpr std::size_t kWidth = width;
  static constexpr bool kMin = min;
};

/// Adds a chunk of K of `panels` neighbouring panels times `tokens` rows of activations from t0 to their accumulators
/// [tokens][2 * kGroup], all in registers meanwhile.
template <class S, int panels, int tokens>
void add_words(const LinearArgs& a, const WordPanel* p, std::size_t k0, std::size_t k1, std::size_t t0, float* sums) {
  constexpr std::size_t kPairs = S::kWidth / 2;
  const std::size_t groups = a.k / 32;
  const QuantizedRows& x = *a.x;
  const std::int8_t* q = x.q + t0 * x.stride + 2 * k0;
  const float* dx = x.d + t0 * groups;
  FG acc[panels][tokens];
  for (int i = 0; i < panels; ++i)
    for (int t = 0; t < tokens; ++t) acc[i][t] = k0 == 0 ? fg_zero() : fg_load(sums + (2 * t + i) * kGroup);
  for (std::size_t s = k0 / S::kWidth; s < k1 / S::kWidth; ++s) {
    Q sum[panels][tokens];
    for (int i = 0; i < panels; ++i)
      for (int t = 0; t < tokens; ++t) sum[i][t] = qzero();
    const std::size_t first = (s - k0 / S::kWidth) * kPairs;
#pragma GCC unroll 4
    for (std::size_t j = first; j < first + kPairs; ++j) {
      Q u[panels];
      for (int i = 0; i < panels; ++i) u[i] = qget(p[i].words + j * kPairBytes);
      for (int t = 0; t < tokens; ++t) {
        const Q pair = qbroadcast4(q + static_cast<std::size_t>(t) * x.stride + j * 4);
        for (int i = 0; i < panels; ++i) sum[i][t] = qdot_words(sum[i][t], u[i], pair);
      }
    }
    const std::size_t g = s * S::kWidth / 32;
    for (int i = 0; i < panels; ++i) {
      const FG d = fg_load(p[i].d + s * kGroup);
      for (int t = 0; t < tokens; ++t)
        acc[i][t] = fg_fma(fg_from_int(sum[i][t]), fg_mul(d, fg_set1(dx[static_cast<std::size_t>(t) * groups + g])),
                           acc[i][t]);
    }
  }
  for (int i = 0; i < panels; ++i)
    for (int t = 0; t < tokens; ++t) fg_store(sums + (2 * t + i) * kGroup, acc[i][t]);
}

/// The chain of the minima for one panel and `tokens` rows, then the outputs.
template <class S, int tokens>
void finish_words(const LinearArgs& a, const WordPanel& p, std::size_t t0, std::size_t n, const float* sums) {
  const std::size_t groups = a.k / 32, subs = a.k / S::kWidth;
  const QuantizedRows& x = *a.x;
  FG minima[tokens];
  for (int t = 0; t < tokens; ++t) minima[t] = fg_zero();
  if constexpr (S::kMin)
    for (std::size_t s = 0; s < subs; ++s) {
      const FG m = fg_load(p.m + s * kGroup);
      for (int t = 0; t < tokens; ++t) {
        const std::size_t row = t0 + static_cast<std::size_t>(t);
        const float total = S::kWidth == 32 ? x.dsum[row * groups + s]
                                            : x.d[row * groups + s / 2] * static_cast<float>(x.sum16[row * subs + s]);
        minima[t] = fg_fma(m, fg_set1(total), minima[t]);
      }
    }
  const std::size_t count = a.n_end - n < kGroup ? a.n_end - n : kGroup;
  for (int t = 0; t < tokens; ++t) {
    const FG y = fg_load(sums + 2 * t * kGroup);
    finish(a, t0 + static_cast<std::size_t>(t), n, count, S::kMin ? fg_add(y, minima[t]) : y);
  }
}

/// Rows of activations that a load of weights serves: as many as keep sums and accumulators in registers.
constexpr int kTokens = kGroup == 16 ? 6 : 3;

/// work(t, tokens): all rows of [begin, end), kTokens or a compile-time fewer at a time.
template <class Work>
inline void for_tokens(std::size_t begin, std::size_t end, const Work& work) {
  std::size_t t = begin;
  for (; t + kTokens <= end; t += kTokens) work(t, std::integral_constant<int, kTokens>());
  if (kTokens > 4 && t + 4 <= end) {
    work(t, std::integral_constant<int, 4>());
    t += 4;
  }
  if (t + 2 <= end) {
    work(t, std::integral_constant<int, 2>());
    t += 2;
  }
  if (t < end) work(t, std::integral_constant<int, 1>());
}

template <class B>
void linear_words(const LinearArgs& a) {
  using S = WordSubs<B::kSubWidth, B::Format::kMin>;
  WordPanel p[2];
  std::byte* place = a.scratch;
  const std::size_t scales = a.k / 16 * kGroup;
  for (WordPanel& panel : p) {
    panel.words = place;
    panel.d = reinterpret_cast<float*>(place + kWordChunk / 2 * kPairBytes);
    panel.m = panel.d + scales;
    place = reinterpret_cast<std::byte*>(panel.m + scales);
  }
  float* sums = reinterpret_cast<float*>(place);
  for (std::size_t n = a.n_begin; n < a.n_end; n += 2 * kGroup) {
    const std::size_t left = a.n_end - n;
    const int panels = left > kGroup ? 2 : 1;
    Rows r[2];
    for (int i = 0; i < panels; ++i) {
      const std::size_t row = static_cast<std::size_t>(i) * kGroup;
      rows_set(r[i], a.weight + (n + row) * a.row_bytes, a.row_bytes, left - row < kGroup ? left - row : kGroup);
    }
    for (std::size_t t0 = 0; t0 < a.rows; t0 += kWordBlock) {
      const std::size_t t1 = a.rows - t0 < kWordBlock ? a.rows : t0 + kWordBlock;
      for (std::size_t k0 = 0; k0 < a.k; k0 += kWordChunk) {
        const std::size_t k1 = a.k - k0 < kWordChunk ? a.k : k0 + kWordChunk;
        for (int i = 0; i < panels; ++i) unpack_words<B>(r[i], a.row_bytes, k0, k1, p[i]);
        for_tokens(t0, t1, [&](std::size_t t, auto tokens) {
          float* at = sums + (t - t0) * 2 * kGroup;
          if (panels == 2)
            add_words<S, 2, tokens.value>(a, p, k0, k1, t, at);
          else
            add_words<S, 1, tokens.value>(a, p, k0, k1, t, at);
        });
      }
      for_tokens(t0, t1, [&](std::size_t t, auto tokens) {
        for (int i = 0; i < panels; ++i) {
          const std::size_t row = static_cast<std::size_t>(i) * kGroup;
          finish_words<S, tokens.value>(a, p[i], t, n + row, sums + (t - t0) * 2 * kGroup + row);
        }
      });
    }
  }
}

template <class B>
void linear_quant(const LinearArgs& a) {
  if (a.rows == 1) return linear_one_row<B>(a);
  if (a.rows < kWordRows) return linear_few_rows<B>(a);
  linear_words<B>(a);
}

}  // namespace
}  // namespace quipu::backends

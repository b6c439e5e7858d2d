// Linear with quantised weights for many rows: panels of unpacked weights, which know nothing of the format
// they came from, and tiles of sums in registers. What a panel holds and how it is multiplied is the
// instruction set's choice: `ManyRows` of linear_words.inl or linear_planes.inl, included before. Same sums
// and same chain as linear_quant.inl, so the same bits.

namespace quipu::backends {
namespace {

constexpr std::size_t kPanelChunk = kPanelWeights / kGroup;

/// Unpacked weights of a group of rows: the weights of a chunk of K, so that they stay in L1; scales (and
/// minima) by sub-block for all of K.
struct Panel {
  std::byte* weights;
  float *d, *m;
};

/// The chunk [k0, k1) of a group of rows of `row_bytes`.
template <class B>
void unpack_panel(const Rows& r, std::size_t row_bytes, std::size_t k0, std::size_t k1, const Panel& p) {
  const auto put = [&](std::size_t dword, Q bytes) {
    ManyRows::put<typename B::Format>(p.weights, dword - k0 / 4, bytes);
  };
  for (std::size_t b = k0 / B::kBlock; b < k1 / B::kBlock; ++b) {
    prefetch_block<B>(r.p[0] + b * B::kBytes * kGroup + 2 * kGroup * row_bytes + kMargin);
    B::unpack(r, b * B::kBytes, b, put, p.d, p.m);
  }
}

/// What the panels' sub-blocks are like, whatever their format.
template <std::size_t width, bool min>
struct PanelSubs {
  static constexpr std::size_t kWidth = width;
  static constexpr bool kMin = min;
};

/// Adds a chunk of K of `panels` neighbouring panels times `tokens` rows of activations from t0 to their
/// accumulators [tokens][stride], all in registers meanwhile.
template <class S, int panels, int tokens, int stride = 2 * kGroup>
void add_panels(const QuantizedRows& x, const Panel* p, std::size_t k0, std::size_t k1, std::size_t t0,
                float* sums) {
  const std::size_t groups = x.width / 32;
  const std::int8_t* q = x.q + t0 * x.stride + 2 * k0;
  const float* dx = x.d + t0 * groups;
  const std::byte* weights[panels];
  for (int i = 0; i < panels; ++i) weights[i] = p[i].weights;
  FG acc[panels][tokens];
  for (int i = 0; i < panels; ++i)
    for (int t = 0; t < tokens; ++t)
      acc[i][t] = k0 == 0 ? fg_zero() : fg_load(sums + t * stride + i * kGroup);
  for (std::size_t s = k0 / S::kWidth; s < k1 / S::kWidth; ++s) {
    Q sum[panels][tokens];
    ManyRows::add<S::kWidth, panels, tokens>(weights, s - k0 / S::kWidth, q, x.stride, sum);
    const std::size_t g = s * S::kWidth / 32;
    for (int i = 0; i < panels; ++i) {
      const FG d = fg_load(p[i].d + s * kGroup);
      for (int t = 0; t < tokens; ++t)
        acc[i][t] = fg_fma(fg_from_int(sum[i][t]),
                           fg_mul(d, fg_set1(dx[static_cast<std::size_t>(t) * groups + g])), acc[i][t]);
    }
  }
  for (int i = 0; i < panels; ++i)
    for (int t = 0; t < tokens; ++t) fg_store(sums + t * stride + i * kGroup, acc[i][t]);
}

/// The chain of the minima for one panel and `tokens` rows.
template <class S, int tokens>
inline void add_minima(const QuantizedRows& x, const Panel& p, std::size_t t0, FG (&minima)[tokens]) {
  const std::size_t groups = x.width / 32, subs = x.width / S::kWidth;
  for (int t = 0; t < tokens; ++t) minima[t] = fg_zero();
  for (std::size_t s = 0; s < subs; ++s) {
    const FG m = fg_load(p.m + s * kGroup);
    for (int t = 0; t < tokens; ++t) {
      const std::size_t row = t0 + static_cast<std::size_t>(t);
      const float total = S::kWidth == 32
                              ? x.dsum[row * groups + s]
                              : x.d[row * groups + s / 2] * static_cast<float>(x.sum16[row * subs + s]);
      minima[t] = fg_fma(m, fg_set1(total), minima[t]);
    }
  }
}

/// The minima of one panel and `tokens` rows, then the outputs.
template <class S, int tokens>
void finish_panel(const LinearArgs& a, const Panel& p, std::size_t t0, std::size_t n, const float* sums) {
  FG minima[tokens];
  if constexpr (S::kMin) add_minima<S>(*a.x, p, t0, minima);
  const std::size_t count = a.n_end - n < kGroup ? a.n_end - n : kGroup;
  for (int t = 0; t < tokens; ++t) {
    const FG y = fg_load(sums + 2 * t * kGroup);
    finish(a, t0 + static_cast<std::size_t>(t), n, count, S::kMin ? fg_add(y, minima[t]) : y);
  }
}

/// work(t, tokens): all rows of [begin, end), ManyRows::kTokens or a compile-time fewer at a time.
template <class Work>
inline void for_tokens(std::size_t begin, std::size_t end, const Work& work) {
  std::size_t t = begin;
  constexpr int most = ManyRows::kTokens;  ///< as many as keep sums and accumulators in registers
  // Four as 2 + 2: one row makes little of a load of weights.
  for (; t + most <= end && (most > 3 || t + 4 != end); t += most)
    work(t, std::integral_constant<int, most>());
  if (most > 4 && t + 4 <= end) {
    work(t, std::integral_constant<int, 4>());
    t += 4;
  }
  for (; t + 2 <= end; t += 2) work(t, std::integral_constant<int, 2>());
  if (t < end) work(t, std::integral_constant<int, 1>());
}

template <class B>
void linear_many_rows(const LinearArgs& a) {
  using S = PanelSubs<B::kSubWidth, B::Format::kMin>;
  Panel p[2];
  std::byte* place = a.scratch;
  const std::size_t scales = a.k / 16 * kGroup;
  for (Panel& panel : p) {
    panel.weights = place;
    panel.d = reinterpret_cast<float*>(place + kPanelChunk * ManyRows::kBytesPerWeight * kGroup);
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
      rows_set(r[i], a.weight + (n + row) * a.row_bytes, a.row_bytes,
               left - row < kGroup ? left - row : kGroup);
    }
    for (std::size_t t0 = 0; t0 < a.rows; t0 += kPanelBlock) {
      const std::size_t t1 = a.rows - t0 < kPanelBlock ? a.rows : t0 + kPanelBlock;
      for (std::size_t k0 = 0; k0 < a.k; k0 += kPanelChunk) {
        const std::size_t k1 = a.k - k0 < kPanelChunk ? a.k : k0 + kPanelChunk;
        for (int i = 0; i < panels; ++i) unpack_panel<B>(r[i], a.row_bytes, k0, k1, p[i]);
        for_tokens(t0, t1, [&](std::size_t t, auto tokens) {
          float* at = sums + (t - t0) * 2 * kGroup;
          if (panels == 2)
            add_panels<S, 2, tokens.value>(*a.x, p, k0, k1, t, at);
          else
            add_panels<S, 1, tokens.value>(*a.x, p, k0, k1, t, at);
        });
      }
      for_tokens(t0, t1, [&](std::size_t t, auto tokens) {
        for (int i = 0; i < panels; ++i) {
          const std::size_t row = static_cast<std::size_t>(i) * kGroup;
          finish_panel<S, tokens.value>(a, p[i], t, n + row, sums + (t - t0) * 2 * kGroup + row);
        }
      });
    }
  }
}

template <class B>
void linear_quant(const LinearArgs& a) {
  if (a.rows == 1) return linear_one_row<B>(a);
  if (a.rows < ManyRows::kLeastRows) return linear_few_rows<B>(a);
  linear_many_rows<B>(a);
}

}  // namespace
}  // namespace quipu::backends

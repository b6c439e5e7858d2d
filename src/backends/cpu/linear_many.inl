// Linear with quantised weights for many rows: panels of unpacked weights, which know nothing of the format
// they came from, and tiles of sums in registers. What a panel holds and how it is multiplied is the
// instruction set's choice: `ManyRows` of linear_words.inl or linear_planes.inl, included before. Same sums
// and same chain as linear_quant.inl, so the same bits.

namespace quipu::backends {
namespace {

constexpr std::size_t kPanelChunk = kPanelWeights / kGroup;

/// Unpacked weights of a group of rows: the weights of a chunk of K, so that they stay in L1; scales (and
/// minima) for all of K.
struct Panel {
  std::byte* weights;
  GroupScales scales;
};

/// Whether the words of B's panels have their scales in them.
template <class B>
constexpr bool kScaledWords = ManyRows::kWords&& B::kScaled;

/// The chunk [k0, k1) of a group of rows of `row_bytes`.
template <class B>
void unpack_panel(const Rows& r, std::size_t row_bytes, std::size_t k0, std::size_t k1, const Panel& p) {
  using F = typename B::Format;
  for (std::size_t b = k0 / B::kBlock; b < k1 / B::kBlock; ++b) {
    prefetch_block<B>(r.p[0] + b * B::kBytes * kGroup + 2 * kGroup * row_bytes + kMargin);
    if constexpr (kScaledWords<B>) {
      const auto put = [&](std::size_t dword, Q bytes, Q scale) {
        ManyRows::put<F>(p.weights, dword - k0 / 4, bytes, scale);
      };
      B::unpack(r, b * B::kBytes, b, put, p.scales);
    } else {
      const auto put = [&](std::size_t dword, Q bytes, auto...) {
        ManyRows::put<F>(p.weights, dword - k0 / 4, bytes);
      };
      B::unpack(r, b * B::kBytes, b, put, p.scales);
    }
  }
}

/// What the panels' sub-blocks are like, whatever their format.
template <std::size_t block, std::size_t width, bool min, bool scaled = false>
struct PanelSubs {
  static constexpr std::size_t kBlock = block, kWidth = width;
  static constexpr bool kMin = min, kScaled = scaled;
};

/// Adds block b of `panels` neighbouring panels times `tokens` rows of activations, whose chunk begins with
/// block b0, to the parts of a slab.
template <class S, int panels, int tokens>
inline void add_panel_block(const QuantizedRows& x, const Panel* p, const std::byte* const* weights,
                            std::size_t b, std::size_t b0, std::size_t t0, FG (&part)[panels][tokens]) {
  const std::int8_t* q = x.q + t0 * x.stride + 2 * b0 * S::kBlock;
  constexpr std::size_t subs = S::kBlock / S::kWidth;
  Q sum[panels][tokens];
  if constexpr (!S::kScaled) {
    for (std::size_t s = 0; s < subs; ++s) {
      ManyRows::add<S::kWidth, panels, tokens>(weights, (b - b0) * subs + s, q, x.stride, sum);
      const std::size_t place = (b * subs + s) * kGroup;
      for (int i = 0; i < panels; ++i) {
        const FG scale = fg_load((S::kBlock == 32 ? p[i].scales.d : p[i].scales.fs) + place);
        for (int t = 0; t < tokens; ++t) part[i][t] = fg_fma(fg_from_int(sum[i][t]), scale, part[i][t]);
        if constexpr (S::kBlock == 32 && S::kMin) {
          const FG m = fg_load(p[i].scales.m + place);
          for (int t = 0; t < tokens; ++t)
            part[i][t] = fg_fma(m, fg_set1(x.fsum[(t0 + static_cast<std::size_t>(t)) * (x.width / 32) + b]),
                                part[i][t]);
        }
      }
    }
  } else {
    if constexpr (ManyRows::kWords) {
      ManyRows::add<S::kBlock, panels, tokens>(weights, b - b0, q, x.stride, sum);
    } else {
      for (auto& of_panel : sum)
        for (Q& one : of_panel) one = qzero();
      for (std::size_t s = 0; s < subs; ++s) {
        Q of_sub[panels][tokens];
        ManyRows::add<S::kWidth, panels, tokens>(weights, (b - b0) * subs + s, q, x.stride, of_sub);
        for (int i = 0; i < panels; ++i) {
          const Q scale = qget(p[i].scales.s + (b * subs + s) * kGroup);
          for (int t = 0; t < tokens; ++t) sum[i][t] = qadd32(sum[i][t], qmul32(of_sub[i][t], scale));
        }
      }
    }
    for (int i = 0; i < panels; ++i)
      for (int t = 0; t < tokens; ++t) part[i][t] = fg_from_int(sum[i][t]);
  }
}

/// Adds the minima of super-block b of one panel times `tokens` rows of activations to their accumulators.
/// Apart, for it would take registers from the sums.
template <class S, int tokens, int stride>
[[gnu::noinline]] void add_minima(const QuantizedRows& x, const GroupScales& of, std::size_t b,
                                  std::size_t t0, float* sums) {
  constexpr std::size_t subs = S::kBlock / S::kWidth;
  const std::size_t slab = t0 * slabs(x.width) + b;
  FG minima[tokens];
  sum_minima<static_cast<int>(subs)>(
      [&](int j) { return fg_load(of.m + (b * subs + static_cast<std::size_t>(j)) * kGroup); },
      [&](int t, int j) {
        const std::size_t sub =
            (slab + static_cast<std::size_t>(t) * slabs(x.width)) * subs + static_cast<std::size_t>(j);
        return subs == 8 ? x.fsum[sub] : static_cast<float>(x.sum16[sub]);
      },
      minima);
  const FG minus_dmin = fg_load(of.minus_dmin + b * kGroup);
  for (int t = 0; t < tokens; ++t) {
    float* y = sums + t * stride;
    const FG dx = fg_set1(x.d[slab + static_cast<std::size_t>(t) * slabs(x.width)]);
    fg_store(y, fg_fma(minima[t], fg_mul(minus_dmin, dx), fg_load(y)));
  }
}

/// Adds a chunk of K of `panels` neighbouring panels times `tokens` rows of activations from t0 to their
/// accumulators [tokens][stride].
template <class S, int panels, int tokens, int stride = 2 * kGroup>
void add_panels(const QuantizedRows& x, const Panel* p, std::size_t k0, std::size_t k1, std::size_t t0,
                float* sums) {
  const std::byte* weights[panels];
  for (int i = 0; i < panels; ++i) weights[i] = p[i].weights;
  const std::size_t b0 = k0 / S::kBlock;
  const auto place = [&](int i, int t) { return sums + t * stride + i * kGroup; };
  for (std::size_t from = k0; from < k1; from += kSlab) {
    const std::size_t to = k1 - from < kSlab ? k1 : from + kSlab;
    FG part[panels][tokens];
    for (int i = 0; i < panels; ++i)
      for (int t = 0; t < tokens; ++t) part[i][t] = fg_zero();
    for (std::size_t b = from / S::kBlock; b < to / S::kBlock; ++b)
      add_panel_block<S, panels, tokens>(x, p, weights, b, b0, t0, part);
    for (int t = 0; t < tokens; ++t) {
      const FG dx = fg_set1(x.d[(t0 + static_cast<std::size_t>(t)) * slabs(x.width) + from / kSlab]);
      for (int i = 0; i < panels; ++i) {
        FG factor = dx;
        if constexpr (S::kBlock == 256) factor = fg_mul(fg_load(p[i].scales.d + from / kSlab * kGroup), dx);
        fg_store(place(i, t), fg_fma(part[i][t], factor, from == 0 ? fg_zero() : fg_load(place(i, t))));
      }
    }
    if constexpr (S::kBlock == 256 && S::kMin)
      for (int i = 0; i < panels; ++i)
        add_minima<S, tokens, stride>(x, p[i].scales, from / kSlab, t0, place(i, 0));
  }
}

/// The outputs of one panel and `tokens` rows.
template <int tokens>
void finish_panel(const LinearArgs& a, std::size_t t0, std::size_t n, const float* sums) {
  const std::size_t count = a.n_end - n < kGroup ? a.n_end - n : kGroup;
  for (int t = 0; t < tokens; ++t)
    finish(a, t0 + static_cast<std::size_t>(t), n, count, fg_load(sums + 2 * t * kGroup));
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
  using S = PanelSubs<B::kBlock, B::kSubWidth, B::Format::kMin, B::kScaled>;
  Panel p[2];
  std::byte* place = a.scratch;
  for (Panel& panel : p) {
    panel.weights = place;
    place += kPanelChunk * ManyRows::kBytesPerWeight * kGroup;
    const std::size_t blocks = a.k / B::kBlock * kGroup, subs = a.k / B::kSubWidth * kGroup;
    GroupScales& s = panel.scales;
    s.d = reinterpret_cast<float*>(place);
    s.m = s.d + blocks;
    float* end = s.m + (B::Format::kMin ? subs : 0);
    if constexpr (B::kBlock == 256) {
      s.minus_dmin = end;
      end += blocks;
      if constexpr (!kScaledWords<B>) {
        if constexpr (B::kScaled)
          s.s = reinterpret_cast<std::int32_t*>(end);
        else
          s.fs = end;
        end += subs;
      }
    }
    place = reinterpret_cast<std::byte*>(end);
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
          finish_panel<tokens.value>(a, t, n + row, sums + (t - t0) * 2 * kGroup + row);
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

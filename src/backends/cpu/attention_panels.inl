// Quantised keys and values of a span: integer products as those of linears (docs/numerics.md), over panels
// of linear_words.inl or linear_planes.inl, which know nothing of the format they came from. Keys lie in
// panels of kGroup positions by elements, values in panels of kGroup elements by positions.

namespace quipu::backends {
namespace {

constexpr bool is_quantised(KvType type) {
  return type != KvType::f32 && type != KvType::f16 && type != KvType::bf16;
}
constexpr bool has_minima(KvType type) { return type == KvType::q4_1 || type == KvType::q5_1; }

/// work(format) of a quantised type.
template <class Work>
inline void with_format(KvType type, const Work& work) {
  switch (type) {
    case KvType::q8_0:
      return work(FormatQ8_0());
    case KvType::q4_0:
      return work(FormatQ4_0());
    case KvType::q4_1:
      return work(FormatQ4_1());
    case KvType::q5_0:
      return work(FormatQ5_0());
    case KvType::q5_1:
      return work(FormatQ5_1());
    case KvType::iq4_nl:
      return work(FormatIQ4_NL());
    default:
      return;
  }
}

/// One side of a span, unpacked.
class SpanPanels {
 public:
  SpanPanels() = default;
  /// `scratch`: kSpan * n floats, 64-aligned; the panels and scales take less.
  SpanPanels(KvType type, std::size_t n, float* scratch)
      : type_(type), n_(n), weights_(reinterpret_cast<std::byte*>(scratch)) {
    d_ = reinterpret_cast<float*>(weights_ + kSpan * n * ManyRows::kBytesPerWeight);
    m_ = d_ + kSpan * n / 32;
  }

  /// Positions [from, to) of `rows`; ask(part) asks for part `part` of kSpan / kGroup of the next span.
  template <class Ask>
  void unpack_keys(const std::byte* rows, std::size_t row_bytes, std::size_t from, std::size_t to,
                   const Ask& ask) const {
    with_format(type_, [&](auto format) {
      using F = decltype(format);
      for_groups(rows, row_bytes, from, to, ask, [&](std::size_t g, const Rows& r) {
        const Panel p = key_panel(g);
        const auto put = [&](std::size_t dword, Q bytes) { ManyRows::put<F>(p.weights, dword, bytes); };
        for (std::size_t b = 0; b < n_ / 32; ++b) Blocks32<F>::unpack(r, b * F::kBytes, b, put, p.scales);
      });
    });
  }
  template <class Ask>
  void unpack_values(const std::byte* rows, std::size_t row_bytes, std::size_t from, std::size_t to,
                     const Ask& ask) const {
    with_format(type_, [&](auto format) {
      using F = decltype(format);
      for_groups(rows, row_bytes, from, to, ask, [&](std::size_t g, const Rows& r) {
        for (std::size_t b = 0; b < n_ / 32; ++b) {
          Q codes[2][4];
          for (int j = 0; j < 4; ++j) F::unpack(r, b * F::kBytes, j, codes[0][j], codes[1][j]);
          for (std::size_t half = 0; half < 2; ++half) {
            Q(&c)[4] = codes[half];
            qcolumns(c[0], c[1], c[2], c[3]);
            for (std::size_t i = 0; i < 4; ++i)
              ManyRows::put<F>(value_panel((32 * b + 16 * half) / kGroup + i % kPanelsPer16),
                               g * kQuarters + i / kPanelsPer16, c[i]);
          }
          FG d = fg_zero(), m = fg_zero();
          F::scales(r, b * F::kBytes, d, m);
          fg_store(d_ + b * kSpan + g * kGroup, d);
          if constexpr (F::kMin) fg_store(m_ + b * kSpan + g * kGroup, m);
        }
      });
    });
  }

  /// products[t]: of query row first + t and the keys of positions [from, to).
  void products(const QuantizedRows& queries, std::size_t first, int count, std::size_t from, std::size_t to,
                float (*out)[kSpan]) const {
    if (has_minima(type_))
      products_of<PanelSubs<32, 32, true>>(queries, first, count, from, to, out);
    else
      products_of<PanelSubs<32, 32, false>>(queries, first, count, from, to, out);
  }

  /// values = values * factor + sum over positions of weight * value, of `count` rows.
  void add_values(const SpanRow* row, int count, const float (*weights)[kSpan], const float* factors) const {
    for_tokens(0, static_cast<std::size_t>(count), [&](std::size_t t, auto rows) {
      for (std::size_t b = 0; b < n_ / 32; ++b) add_block<rows.value>(b, row + t, weights + t, factors + t);
    });
  }

 private:
  static constexpr std::size_t kPanelsPer16 = 16 / kGroup;
  static constexpr std::size_t kStride = quantized_stride(kSpan);  ///< bytes of a row's quantised weights

  template <class Ask, class Work>
  void for_groups(const std::byte* rows, std::size_t row_bytes, std::size_t from, std::size_t to,
                  const Ask& ask, const Work& work) const {
    const auto* base = reinterpret_cast<const std::uint8_t*>(rows);
    for (std::size_t g = from / kGroup; g * kGroup < to; ++g) {
      ask(g);
      Rows r;
      rows_set(r, base + g * kGroup * row_bytes, row_bytes, kGroup);
      work(g, r);
    }
  }

  Panel key_panel(std::size_t g) const {
    return {weights_ + g * n_ * kGroup * ManyRows::kBytesPerWeight,
            {d_ + g * n_ / 32 * kGroup, m_ + g * n_ / 32 * kGroup}};
  }
  std::byte* value_panel(std::size_t i) const {
    return weights_ + i * kSpan * kGroup * ManyRows::kBytesPerWeight;
  }

  template <class S>
  void products_of(const QuantizedRows& queries, std::size_t first, int count, std::size_t from,
                   std::size_t to, float (*out)[kSpan]) const {
    const auto add = [&](auto panels, std::size_t g) {
      Panel p[panels.value];
      for (int i = 0; i < panels.value; ++i) p[i] = key_panel(g + static_cast<std::size_t>(i));
      for_tokens(0, static_cast<std::size_t>(count), [&](std::size_t t, auto rows) {
        add_panels<S, panels.value, rows.value, kSpan>(queries, p, 0, n_, first + t, out[t] + g * kGroup);
      });
    };
    std::size_t g = from / kGroup;
    for (; (g + 1) * kGroup < to; g += 2) add(std::integral_constant<int, 2>(), g);
    if (g * kGroup < to) add(std::integral_constant<int, 1>(), g);
  }

  /// The weights of a row times the scales of block b as q, at `to`; returns q's scale. What has no weight
  /// may hold anything.
  float quantise_weights(const float* weights, std::size_t b, std::int8_t* to) const {
    V16 x[4];
    I16 top = iset1(0);
    for (std::size_t g = 0; g < 4; ++g) {
      const V16 w = load(weights + 16 * g);
      x[g] = select_less(set1(0), w, w * load(d_ + b * kSpan + 16 * g), set1(0));
      top = imax(top, bits(abs(x[g])));
    }
    const float most = float_of_bits(reduce_imax(top)), factor = code_factor(most);
    for (std::size_t g = 0; g < 4; ++g)
      store_codes(ManyRows::kWords, to + g / 2 * 64, g % 2, codes(x[g], factor));
    return most / kMostCode;
  }
  float sum_of_minima(const float* weights, std::size_t b) const {
    V16 sum = set1(0);
    for (std::size_t g = 0; g < 4; ++g) {
      const V16 w = load(weights + 16 * g);
      sum = fma(w, select_less(set1(0), w, load(m_ + b * kSpan + 16 * g), set1(0)), sum);
    }
    return reduce_add(sum);
  }

  template <int rows>
  [[gnu::noinline]] void add_block(std::size_t b, const SpanRow* row, const float (*weights)[kSpan],
                                   const float* factors) const {
    alignas(64) std::int8_t q[rows * kStride];
    float scales[rows], minima[rows];
    for (std::size_t r = 0; r < rows; ++r) {
      scales[r] = quantise_weights(weights[r], b, q + r * kStride);
      if (has_minima(type_)) minima[r] = sum_of_minima(weights[r], b);
    }
    for (std::size_t i = 32 * b / kGroup; i < 32 * (b + 1) / kGroup; i += 2) {
      const std::byte* panels[2] = {value_panel(i), value_panel(i + 1)};
      Q sums[2][rows];
      ManyRows::add<kSpan, 2, rows>(panels, 0, q, kStride, sums);
      for (std::size_t p = 0; p < 2; ++p)
        for (std::size_t r = 0; r < rows; ++r) {
          float* y = row[r].state.values + (i + p) * kGroup;
          const FG sum = fg_from_int(sums[p][r]);
          const FG x = fg_fma(sum, fg_set1(scales[r]), fg_mul(fg_load(y), fg_set1(factors[r])));
          fg_store(y, has_minima(type_) ? fg_add(x, fg_set1(minima[r])) : x);
        }
    }
  }

  KvType type_ = KvType::q8_0;
  std::size_t n_ = 0;  ///< elements of a row
  std::byte* weights_ = nullptr;
  /// Keys: [group][block][kGroup]; values: [block][kSpan].
  float *d_ = nullptr, *m_ = nullptr;
};

}  // namespace
}  // namespace quipu::backends

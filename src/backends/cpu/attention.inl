// Attention on vector registers: query rows that see the same positions share their keys and values
// (docs/numerics.md).

namespace quipu::backends {
namespace {

class RowsWalk : public SpanWalk<RowsWalk> {
 public:
  explicit RowsWalk(const AttentionArgs& a) : SpanWalk(a) {
    float *keys = take(kSpan * d_), *values = take(kSpan * v_);
    // For a few rows halves are read where they lie; for many a copy as floats pays.
    const bool few = kSharedRows > 1 && rows_ <= 2 * kSharedRows;
    keys_ = side(a.k_type, a.head_dim, few, keys);
    values_ = side(a.v_type, a.v_dim, few, values);
    together_ = keys_.quantised && values_.quantised ? ManyRows::kTokens : kSharedRows;
    if (keys_.quantised)
      quantise_queries();
    else
      copy_queries();
  }

  void attend(const Span& span) {
    SpanArgs s = span_args(span);
    constexpr std::size_t groups = kSpan / kGroup;
    if (keys_.quantised)
      keys_.panels.unpack_keys(span.k, a_.k_row_bytes, span.from, span.to,
                               [&](std::size_t g) { ask_for(s.next_k, s.next_bytes_k, g, groups); });
    if (values_.quantised)
      values_.panels.unpack_values(span.v, a_.v_row_bytes, span.from, span.to,
                                   [&](std::size_t g) { ask_for(s.next_v, s.next_bytes_v, g, groups); });
    copy(keys_, span.k, a_.k_row_bytes, a_.head_dim, d_, span);
    copy(values_, span.v, a_.v_row_bytes, a_.v_dim, v_, span);
    for (std::size_t r = 0; r < rows_;) {
      // Rows that see the same positions, together.
      SpanRow block[kMost];
      int count = 0;
      std::size_t first = r;
      // Four as 2 + 2: one row makes little of a load.
      const int most = together_ == 3 && rows_ - r == 4 ? 2 : together_;
      for (; r < rows_ && count < most; ++r) {
        std::size_t lo, hi;
        const bool any = sees(r, span, lo, hi);
        if (count > 0 && (!any || lo != s.lo || hi != s.hi)) break;
        if (!any) continue;
        if (count == 0) first = r;
        s.lo = lo, s.hi = hi;
        block[count++] = span_row(r, span, keys_.quantised ? nullptr : queries_ + r * d_);
      }
      if (count > 0) attend_rows(s, block, count, first, span);
      s.next_bytes_k = s.next_bytes_v = 0;
    }
  }

 private:
  static constexpr int kMost = kSharedRows > ManyRows::kTokens ? kSharedRows : ManyRows::kTokens;

  /// How one side of a span is read: panels, the stored halves, or a copy as floats.
  struct Side {
    KvType type;
    bool quantised, in_place;
    SpanPanels panels;
    float* floats;
  };
  static Side side(KvType type, std::size_t n, bool few, float* scratch) {
    const bool halves = type == KvType::f16 || type == KvType::bf16;
    return {type, is_quantised(type), few && halves && n % 16 == 0, SpanPanels(type, n, scratch), scratch};
  }
  static void copy(const Side& side, const std::byte* rows, std::size_t row_bytes, std::size_t n,
                   std::size_t stride, const Span& span) {
    if (side.quantised || side.in_place) return;
    for (std::size_t j = span.from; j < span.to; ++j)
      load_row(side.type, rows + j * row_bytes, n, side.floats + j * stride);
  }
  /// work(rows): of a side that is not quantised.
  template <class Work>
  static void with_floats(const Side& side, const std::byte* rows, std::size_t n, const Work& work) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(rows);
    if (!side.in_place)
      work(SpanF32{side.floats, n});
    else if (side.type == KvType::f16)
      work(SpanF16{halves, n});
    else
      work(SpanBF16{halves, n});
  }

  void copy_queries() {
    queries_ = take(rows_ * d_);
    for (std::size_t r = 0; r < rows_; ++r)
      for_lanes(a_.head_dim, [&](std::size_t i, std::size_t m) {
        store(queries_ + r * d_ + i, load_part(query(r) + i, m));
      });
  }
  void quantise_queries() {
    QuantizedRows& x = quantised_queries_;
    const std::size_t groups = rows_ * (d_ / 32);
    x.words = ManyRows::kWords, x.width = d_, x.stride = quantized_stride(d_);
    x.q = reinterpret_cast<std::int8_t*>(take(rows_ * x.stride / sizeof(float)));
    x.d = take(rows_ * slabs(d_)), x.fsum = take(groups);
    x.sum32 = reinterpret_cast<std::int32_t*>(take(groups));
    x.sum16 = reinterpret_cast<std::int32_t*>(take(2 * groups));
    for (std::size_t r = 0; r < rows_; ++r) quantize(query(r), x, r);
  }

  /// `count` rows from row `first` on, which see the same.
  void attend_rows(const SpanArgs& s, const SpanRow* block, int count, std::size_t first, const Span& span) {
    alignas(64) float products[kMost][kSpan], weights[kMost][kSpan];
    float factors[kMost];
    if (keys_.quantised)
      keys_.panels.products(quantised_queries_, first, count, s.lo, s.hi, products);
    else
      with_floats(keys_, span.k, d_, [&](auto keys) {
        with_rows(count, [&](auto rows) { span_products<rows.value>(s, block, keys, products); });
      });
    for (int r = 0; r < count; ++r) factors[r] = weigh(s, block[r], products[r], weights[r]);
    if (values_.quantised)
      values_.panels.add_values(block, count, weights, factors);
    else
      with_floats(values_, span.v, v_, [&](auto values) {
        with_rows(count, [&](auto rows) { add_span_values<rows.value>(s, block, weights, factors, values); });
      });
  }

  Side keys_, values_;
  int together_;
  float* queries_ = nullptr;
  QuantizedRows quantised_queries_;
};

void attention(const AttentionArgs& a) { RowsWalk(a).run(); }

void attention_merge(const float* partial, std::size_t chunks, std::size_t stride, std::size_t v_dim,
                     const float* sink, float* out) {
  const std::size_t v = padded(v_dim);
  // The states are scratch of this step: the first one becomes the total.
  auto* states = const_cast<float*>(partial);
  const SoftmaxState total{states, states + v};
  for (std::size_t c = 1; c < chunks; ++c) merge(total, {states + c * stride, states + c * stride + v}, v);
  finish(total, v_dim, sink, out);
}

}  // namespace
}  // namespace quipu::backends

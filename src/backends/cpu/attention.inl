// Attention on vector registers: query rows that see the same positions share their keys and values
// (docs/numerics.md).

namespace quipu::backends {
namespace {

class RowsWalk : public SpanWalk<RowsWalk> {
 public:
  explicit RowsWalk(const AttentionArgs& a) : SpanWalk(a) {
    keys_ = take(kSpan * d_), values_ = take(kSpan * v_), queries_ = take(rows_ * d_);
    // For a few rows halves and bytes are read where they lie; for many a copy as floats pays.
    const bool few = kSharedRows > 1 && rows_ <= 2 * kSharedRows && a.head_dim == d_ && a.v_dim == v_ &&
                     a.k_type == a.v_type;
    in_place_ = few && (a.k_type == KvType::f16 || a.k_type == KvType::bf16 || a.k_type == KvType::q8_0);
    for (std::size_t r = 0; r < rows_; ++r)
      for_lanes(a.head_dim, [&](std::size_t i, std::size_t m) {
        store(queries_ + r * d_ + i, load_part(query(r) + i, m));
      });
  }

  void attend(const Span& span) {
    if (!in_place_)
      for (std::size_t j = span.from; j < span.to; ++j) {
        load_row(a_.k_type, span.k + j * a_.k_row_bytes, a_.head_dim, keys_ + j * d_);
        load_row(a_.v_type, span.v + j * a_.v_row_bytes, a_.v_dim, values_ + j * v_);
      }
    if (in_place_ && a_.k_type == KvType::q8_0) {
      bytes(span.k, a_.k_row_bytes, d_, keys_).take_scales(span.from, span.to);
      bytes(span.v, a_.v_row_bytes, v_, values_).take_scales(span.from, span.to);
    }
    SpanArgs s = span_args(span);
    for (std::size_t r = 0; r < rows_;) {
      // Rows that see the same positions, together.
      SpanRow block[kSharedRows];
      int count = 0;
      for (; r < rows_ && count < kSharedRows; ++r) {
        std::size_t lo, hi;
        const bool any = sees(r, span, lo, hi);
        if (count > 0 && (lo != s.lo || hi != s.hi)) break;
        if (!any) continue;
        s.lo = lo, s.hi = hi;
        block[count++] = span_row(r, span, queries_ + r * d_);
      }
      if (count > 0) attend_rows(s, block, count, span.k, span.v);
      s.next_bytes_k = s.next_bytes_v = 0;
    }
  }

 private:
  /// Its scales are where the floats of a copy would be.
  static SpanQ8 bytes(const std::byte* rows, std::size_t row_bytes, std::size_t n, float* scales) {
    return {rows, row_bytes, n / 32, scales};
  }

  void attend_rows(const SpanArgs& s, const SpanRow* block, int count, const std::byte* k,
                   const std::byte* v) {
    if (!in_place_)
      attend_span(s, block, count, SpanF32{keys_, d_}, SpanF32{values_, v_});
    else if (a_.k_type == KvType::f16)
      attend_span(s, block, count, SpanF16{reinterpret_cast<const std::uint16_t*>(k), d_},
                  SpanF16{reinterpret_cast<const std::uint16_t*>(v), v_});
    else if (a_.k_type == KvType::q8_0)
      attend_span(s, block, count, bytes(k, a_.k_row_bytes, d_, keys_),
                  bytes(v, a_.v_row_bytes, v_, values_));
    else
      attend_span(s, block, count, SpanBF16{reinterpret_cast<const std::uint16_t*>(k), d_},
                  SpanBF16{reinterpret_cast<const std::uint16_t*>(v), v_});
  }

  bool in_place_ = false;
  float *keys_, *values_, *queries_;
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

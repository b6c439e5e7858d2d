// Attention of query rows that share one key/value head: spans of 64 positions in chunks of 512, in ascending
// order, so that a row's result depends on its own sequence only (docs/numerics.md).

namespace quipu::backends {
namespace {

constexpr std::int64_t kChunk = 512;

/// The walk over the spans of a sequence.
class SpanWalk {
 public:
  explicit SpanWalk(const AttentionArgs& a)
      : a_(a), d_(padded(a.head_dim)), v_(padded(a.v_dim)), rows_(a.tokens * a.group) {
    float* at = reinterpret_cast<float*>(a.scratch);
    const auto take = [&](std::size_t n) {
      float* p = at;
      at += n;
      return p;
    };
    keys_ = take(kSpan * d_), values_ = take(kSpan * v_), queries_ = take(rows_ * d_);
    part_values_ = take(rows_ * v_), part_tops_ = take(rows_ * 2);
    all_values_ = take(rows_ * v_), all_tops_ = take(rows_ * 2);
    // For a few rows the halves are read where they lie; for many a copy as floats pays.
    const bool few = kSharedRows > 1 && rows_ <= 2 * kSharedRows && a.head_dim == d_ && a.v_dim == v_ &&
                     a.k_type == a.v_type;
    in_place_ = few && (a.k_type == KvType::f16 || a.k_type == KvType::bf16);
  }

  void run() {
    for (std::size_t r = 0; r < rows_; ++r) {
      const float* q = a_.q + r / a_.group * a_.q_stride + r % a_.group * a_.head_dim;
      for_lanes(a_.head_dim,
                [&](std::size_t i, std::size_t m) { store(queries_ + r * d_ + i, load_part(q + i, m)); });
      reset(all(r), v_);
    }
    const bool causal = a_.end == 0;
    back_ = causal ? a_.window - 1 : a_.window / 2;
    last_ = a_.first_position + static_cast<std::int64_t>(a_.tokens) - 1;
    if (!causal) last_ = a_.window > 0 && last_ + back_ < a_.end ? last_ + back_ : a_.end - 1;
    lowest_ = a_.window > 0 && a_.first_position > back_ ? a_.first_position - back_ : 0;
    if (a_.run > 0) lowest_ = a_.first_position / a_.run * a_.run;
    if (a_.begin > lowest_) lowest_ = a_.begin;
    std::int64_t chunk = lowest_ / kChunk;
    if (a_.chunk_begin > chunk) chunk = a_.chunk_begin;
    for (; chunk < a_.chunk_end && chunk * kChunk <= last_; ++chunk) {
      for (std::size_t r = 0; r < rows_; ++r) reset(part(r), v_);
      for (std::int64_t start = chunk * kChunk; start < (chunk + 1) * kChunk && start <= last_;
           start += kSpan)
        if (start + static_cast<std::int64_t>(kSpan) > lowest_) span(start);
      for (std::size_t r = 0; r < rows_; ++r) merge(all(r), part(r), v_);
    }
    for (std::size_t r = 0; r < rows_; ++r) {
      const SoftmaxState state = all(r);
      if (a_.partial != nullptr) {
        float* out = a_.partial + r * (v_ + 16);
        for (std::size_t i = 0; i < v_; i += 16) store(out + i, load(state.values + i));
        out[v_] = state.top_sum[0];
        out[v_ + 1] = state.top_sum[1];
        continue;
      }
      finish(state, a_.v_dim, a_.sinks != nullptr ? a_.sinks + r % a_.group : nullptr,
             a_.out + r / a_.group * a_.out_stride + r % a_.group * a_.v_dim);
    }
  }

 private:
  SoftmaxState part(std::size_t r) const { return {part_values_ + r * v_, part_tops_ + 2 * r}; }
  SoftmaxState all(std::size_t r) const { return {all_values_ + r * v_, all_tops_ + 2 * r}; }

  void span(std::int64_t start) {
    constexpr auto span_positions = static_cast<std::int64_t>(kSpan);
    const std::size_t page = a_.pages[start / span_positions];
    const std::byte *k = a_.k + page * a_.k_page_bytes, *v = a_.v + page * a_.v_page_bytes;
    const std::size_t from = lowest_ > start ? static_cast<std::size_t>(lowest_ - start) : 0;
    const std::size_t to =
        last_ - start + 1 < span_positions ? static_cast<std::size_t>(last_ - start + 1) : kSpan;
    if (!in_place_)
      for (std::size_t j = from; j < to; ++j) {
        load_row(a_.k_type, k + j * a_.k_row_bytes, a_.head_dim, keys_ + j * d_);
        load_row(a_.v_type, v + j * a_.v_row_bytes, a_.v_dim, values_ + j * v_);
      }
    SpanArgs s{};
    s.d = d_, s.v = v_, s.scale = a_.scale, s.soft_cap = a_.soft_cap, s.bias_reach = a_.bias_reach;
    const std::size_t bias_row = 2 * static_cast<std::size_t>(a_.bias_reach) + 1;
    if (start + span_positions <= last_) {
      const std::size_t next = a_.pages[start / span_positions + 1];
      s.next_k = a_.k + next * a_.k_page_bytes, s.next_v = a_.v + next * a_.v_page_bytes;
      s.next_bytes_k = kSpan * a_.k_row_bytes, s.next_bytes_v = kSpan * a_.v_row_bytes;
    }
    for (std::size_t r = 0; r < rows_;) {
      // Rows that see the same positions, together.
      SpanRow block[kSharedRows];
      int count = 0;
      for (; r < rows_ && count < kSharedRows; ++r) {
        const std::int64_t position = a_.first_position + static_cast<std::int64_t>(r / a_.group);
        const std::int64_t first = a_.window > 0 ? position - back_ - start
                                   : a_.run > 0  ? position / a_.run * a_.run - start
                                                 : 0;
        const std::int64_t seen = a_.end == 0 ? position : a_.window > 0 ? position + back_ : last_;
        const std::size_t lo =
            first > static_cast<std::int64_t>(from) ? static_cast<std::size_t>(first) : from;
        const std::size_t hi = seen - start + 1 < static_cast<std::int64_t>(to)
                                   ? static_cast<std::size_t>(seen - start + 1 > 0 ? seen - start + 1 : 0)
                                   : to;
        if (count > 0 && (lo != s.lo || hi != s.hi)) break;
        if (lo >= hi) continue;
        s.lo = lo, s.hi = hi;
        block[count++] = {
            queries_ + r * d_, part(r), a_.slopes != nullptr ? a_.slopes[r % a_.group] : 0.0f,
            start - position,
            a_.biases != nullptr ? a_.biases + r % a_.group * bias_row + a_.bias_reach : nullptr};
      }
      if (count > 0) attend(s, block, count, k, v);
      s.next_bytes_k = s.next_bytes_v = 0;
    }
  }

  void attend(const SpanArgs& s, const SpanRow* block, int count, const std::byte* k, const std::byte* v) {
    if (!in_place_)
      attend_span(s, block, count, SpanF32{keys_, d_}, SpanF32{values_, v_});
    else if (a_.k_type == KvType::f16)
      attend_span(s, block, count, SpanF16{reinterpret_cast<const std::uint16_t*>(k), d_},
                  SpanF16{reinterpret_cast<const std::uint16_t*>(v), v_});
    else
      attend_span(s, block, count, SpanBF16{reinterpret_cast<const std::uint16_t*>(k), d_},
                  SpanBF16{reinterpret_cast<const std::uint16_t*>(v), v_});
  }

  const AttentionArgs& a_;
  std::size_t d_, v_, rows_;
  bool in_place_ = false;
  std::int64_t last_ = 0, lowest_ = 0;
  std::int64_t back_ = 0;  ///< how far a window reaches back, and ahead where rows see what follows them
  float *keys_, *values_, *queries_, *part_values_, *part_tops_, *all_values_, *all_tops_;
};

void attention(const AttentionArgs& a) { SpanWalk(a).run(); }

}  // namespace
}  // namespace quipu::backends

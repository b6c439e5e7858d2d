// The walk of query rows that share one key/value head over the positions of their sequence: spans of 64 in
// chunks of 512, in ascending order, so that a row's result depends on its own sequence only
// (docs/numerics.md).

namespace quipu::backends {
namespace {

constexpr std::int64_t kChunk = 512;

/// `Self::attend(span)` takes what the rows see of a span into their states `part`.
template <class Self>
class SpanWalk {
 public:
  void run() {
    const bool causal = a_.end == 0;
    back_ = causal ? a_.window - 1 : a_.window / 2;
    last_ = a_.first_position + static_cast<std::int64_t>(a_.tokens) - 1;
    if (!causal) last_ = a_.window > 0 && last_ + back_ < a_.end ? last_ + back_ : a_.end - 1;
    lowest_ = a_.window > 0 && a_.first_position > back_ ? a_.first_position - back_ : 0;
    if (a_.run > 0) lowest_ = a_.first_position / a_.run * a_.run;
    if (a_.begin > lowest_) lowest_ = a_.begin;
    for (std::size_t r = 0; r < rows_; ++r) reset(all(r), v_);
    std::int64_t chunk = lowest_ / kChunk;
    if (a_.chunk_begin > chunk) chunk = a_.chunk_begin;
    for (; chunk < a_.chunk_end && chunk * kChunk <= last_; ++chunk) {
      for (std::size_t r = 0; r < rows_; ++r) reset(part(r), v_);
      for (std::int64_t start = chunk * kChunk; start < (chunk + 1) * kChunk && start <= last_;
           start += kSpan)
        if (start + static_cast<std::int64_t>(kSpan) > lowest_) span(start);
      for (std::size_t r = 0; r < rows_; ++r) merge(all(r), part(r), v_);
    }
    for (std::size_t r = 0; r < rows_; ++r) write(r);
  }

 protected:
  /// A span's stored rows and which of them anyone sees.
  struct Span {
    std::int64_t start;
    std::size_t from, to;
    const std::byte *k, *v;
  };

  explicit SpanWalk(const AttentionArgs& a)
      : a_(a), d_(padded(a.head_dim)), v_(padded(a.v_dim)), rows_(a.tokens * a.group) {
    scratch_ = reinterpret_cast<float*>(a.scratch);
    part_values_ = take(rows_ * v_), part_tops_ = take(rows_ * 2);
    all_values_ = take(rows_ * v_), all_tops_ = take(rows_ * 2);
  }

  /// 64-aligned.
  float* take(std::size_t floats) {
    float* p = scratch_;
    scratch_ += padded(floats);
    return p;
  }
  const float* query(std::size_t r) const {
    return a_.q + r / a_.group * a_.q_stride + r % a_.group * a_.head_dim;
  }
  SoftmaxState part(std::size_t r) const { return {part_values_ + r * v_, part_tops_ + 2 * r}; }
  SoftmaxState all(std::size_t r) const { return {all_values_ + r * v_, all_tops_ + 2 * r}; }

  /// What all rows of a span have in common.
  SpanArgs span_args(const Span& span) const {
    SpanArgs s{};
    s.d = d_, s.v = v_, s.scale = a_.scale, s.soft_cap = a_.soft_cap, s.bias_reach = a_.bias_reach;
    if (span.start + static_cast<std::int64_t>(kSpan) <= last_) {
      const std::size_t next = a_.pages[span.start / static_cast<std::int64_t>(kSpan) + 1];
      s.next_k = a_.k + next * a_.k_page_bytes, s.next_v = a_.v + next * a_.v_page_bytes;
      s.next_bytes_k = kSpan * a_.k_row_bytes, s.next_bytes_v = kSpan * a_.v_row_bytes;
    }
    return s;
  }
  /// Positions [lo, hi) of a span that row r sees; false: none.
  bool sees(std::size_t r, const Span& span, std::size_t& lo, std::size_t& hi) const {
    const std::int64_t position = a_.first_position + static_cast<std::int64_t>(r / a_.group);
    const std::int64_t first = a_.window > 0 ? position - back_ - span.start
                               : a_.run > 0  ? position / a_.run * a_.run - span.start
                                             : 0;
    const std::int64_t seen = a_.end == 0 ? position : a_.window > 0 ? position + back_ : last_;
    const std::int64_t past = seen - span.start + 1;
    lo = first > static_cast<std::int64_t>(span.from) ? static_cast<std::size_t>(first) : span.from;
    hi = past < static_cast<std::int64_t>(span.to) ? static_cast<std::size_t>(past > 0 ? past : 0) : span.to;
    return lo < hi;
  }
  SpanRow span_row(std::size_t r, const Span& span, const float* query) const {
    const std::size_t head = r % a_.group;
    const std::size_t bias_row = 2 * static_cast<std::size_t>(a_.bias_reach) + 1;
    return {query, part(r), a_.slopes != nullptr ? a_.slopes[head] : 0.0f,
            span.start - a_.first_position - static_cast<std::int64_t>(r / a_.group),
            a_.biases != nullptr ? a_.biases + head * bias_row + a_.bias_reach : nullptr};
  }

  const AttentionArgs& a_;
  std::size_t d_, v_, rows_;

 private:
  void span(std::int64_t start) {
    constexpr auto span_positions = static_cast<std::int64_t>(kSpan);
    const std::size_t page = a_.pages[start / span_positions];
    static_cast<Self*>(this)->attend(
        {start, lowest_ > start ? static_cast<std::size_t>(lowest_ - start) : 0,
         last_ - start + 1 < span_positions ? static_cast<std::size_t>(last_ - start + 1) : kSpan,
         a_.k + page * a_.k_page_bytes, a_.v + page * a_.v_page_bytes});
  }

  void write(std::size_t r) const {
    const SoftmaxState state = all(r);
    if (a_.partial != nullptr) {
      float* out = a_.partial + r * (v_ + 16);
      for (std::size_t i = 0; i < v_; i += 16) store(out + i, load(state.values + i));
      out[v_] = state.top_sum[0];
      out[v_ + 1] = state.top_sum[1];
      return;
    }
    finish(state, a_.v_dim, a_.sinks != nullptr ? a_.sinks + r % a_.group : nullptr,
           a_.out + r / a_.group * a_.out_stride + r % a_.group * a_.v_dim);
  }

  std::int64_t last_ = 0, lowest_ = 0;
  std::int64_t back_ = 0;  ///< how far a window reaches back, and ahead where rows see what follows them
  float* scratch_;
  float *part_values_, *part_tops_, *all_values_, *all_tops_;
};

}  // namespace
}  // namespace quipu::backends

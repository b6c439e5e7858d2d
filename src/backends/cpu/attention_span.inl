// A few query rows against one span of 64 positions (docs/numerics.md). The rows see the same positions, so
// that a key or value is read once for all of them.

namespace quipu::backends {
namespace {

constexpr std::size_t kSpan = 64;
/// Query rows that share the registers.
constexpr int kSharedRows = kGroup == 16 ? 4 : kGroup == 8 ? 3 : 1;

/// Keys or values of a span, `stride` elements apart: floats of the scratch, or 16-bit ones where they are
/// stored. `lanes`: kGroup of them instead of sixteen.
struct SpanF32 {
  const float* base;
  std::size_t stride;
  V16 at(std::size_t j, std::size_t e) const { return load(base + j * stride + e); }
  FG lanes(std::size_t j, std::size_t e) const { return fg_load(base + j * stride + e); }
};
struct SpanF16 {
  const std::uint16_t* base;
  std::size_t stride;
  V16 at(std::size_t j, std::size_t e) const { return load_f16(base + j * stride + e); }
  FG lanes(std::size_t j, std::size_t e) const { return fg_load_f16(base + j * stride + e); }
};
struct SpanBF16 {
  const std::uint16_t* base;
  std::size_t stride;
  V16 at(std::size_t j, std::size_t e) const { return load_bf16(base + j * stride + e); }
  FG lanes(std::size_t j, std::size_t e) const { return fg_load_bf16(base + j * stride + e); }
};

/// What is the same for all rows of a block.
struct SpanArgs {
  std::size_t d, v;    ///< head sizes, padded to 16
  std::size_t lo, hi;  ///< visible positions
  std::int64_t bias_reach;
  float scale, soft_cap;
  std::size_t next_bytes_k, next_bytes_v;  ///< of the next span, to be asked for early; 0: none
  const std::byte *next_k, *next_v;
};
struct SpanRow {
  const float* query;  ///< [d]
  SoftmaxState state;
  float slope;
  std::int64_t distance;  ///< of the span's first position
  const float* bias;      ///< of distance 0, or null
};

/// Part `part` of `parts` of the next span, into L2: its pages are scattered, so the hardware does not
/// foresee it.
inline void ask_for(const std::byte* from, std::size_t bytes, std::size_t part, std::size_t parts) {
  for (std::size_t at = bytes * part / parts / 64 * 64; at < bytes * (part + 1) / parts; at += 64)
    prefetch_far(from + at);
}

/// Lanes `lane` to lane + 7 of the products of `rows` queries and the keys from j.
template <int rows, int count, int lane, class Keys>
inline void half_products(const SpanArgs& a, const SpanRow* row, Keys keys, std::size_t j,
                          FG (&s)[rows][count]) {
  for (auto& of_row : s)
    for (FG& x : of_row) x = fg_zero();
  for (std::size_t e = 0; e < a.d; e += 16) {
    FG q[rows];
    for (int r = 0; r < rows; ++r) q[r] = fg_load(row[r].query + e + lane);
    for (int i = 0; i < count; ++i) {
      const FG k = keys.lanes(j + static_cast<std::size_t>(i), e + lane);
      for (int r = 0; r < rows; ++r) s[r][i] = fg_fma(q[r], k, s[r][i]);
    }
  }
}
/// products16 where a vector takes two registers: one half after the other, so that twelve sums are in
/// registers.
template <int rows, class Keys>
inline void products16_by_halves(const SpanArgs& a, const SpanRow* row, Keys keys, std::size_t j, V16* out) {
  constexpr int count = rows == 1 ? 8 : 4;
  FG sums[rows][16];
  for (int from = 0; from < 16; from += count) {
    const std::size_t at = j + static_cast<std::size_t>(from);
    ask_for(a.next_k, a.next_bytes_k, at / count, kSpan / count);
    FG low[rows][count], high[rows][count];
    half_products<rows, count, 0>(a, row, keys, at, low);
    half_products<rows, count, 8>(a, row, keys, at, high);
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < count; ++i) sums[r][from + i] = fg_add(low[r][i], high[r][i]);
  }
  for (int r = 0; r < rows; ++r) out[r] = reduce_halves16(sums[r]);
}

/// The raw products of `rows` queries and the 16 keys from j.
template <int rows, class Keys>
inline void products16(const SpanArgs& a, const SpanRow* row, Keys keys, std::size_t j, V16* out) {
  if constexpr (kGroup == 8) return products16_by_halves<rows>(a, row, keys, j, out);
  constexpr int together = kGroup < 16 || rows >= 4 ? 4 : 8;
  // Four rows by four keys are sixteen sums, which fill the registers: their trees at once, before the next
  // keys.
  constexpr bool at_once = rows == 4 && kGroup == 16;
  V16 acc[rows][at_once ? 1 : 16];
  for (int part = 0; part < 16; part += together) {
    V16 s[rows][together];
    for (auto& of_row : s)
      for (V16& x : of_row) x = set1(0);
    ask_for(a.next_k, a.next_bytes_k, (j + static_cast<std::size_t>(part)) / together, kSpan / together);
    for (std::size_t e = 0; e < a.d; e += 16) {
      V16 q[rows];
      for (int r = 0; r < rows; ++r) q[r] = load(row[r].query + e);
      for (int i = 0; i < together; ++i) {
        const V16 k = keys.at(j + static_cast<std::size_t>(part + i), e);
        for (int r = 0; r < rows; ++r) s[r][i] = fma(q[r], k, s[r][i]);
      }
    }
    if constexpr (at_once)
      out[part / together] = reduce_add16(&s[0][0]);
    else
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < together; ++i) acc[r][part + i] = s[r][i];
  }
  if constexpr (at_once)
    exchange_quarters(out);
  else
    for (int r = 0; r < rows; ++r) out[r] = reduce_add16(acc[r]);
}

/// The scores of positions j to j + 15 from their products; -inf outside of [lo, hi).
inline V16 scores16(const SpanArgs& a, const SpanRow& row, std::size_t j, V16 products) {
  V16 s = products * set1(a.scale);
  if (a.soft_cap > 0) s = set1(a.soft_cap) * tanh(s / set1(a.soft_cap));
  constexpr float index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const V16 lane = load(index) + set1(static_cast<float>(j));
  if (row.slope != 0) {
    // Minus the distance, whichever side it lies on.
    const V16 ahead = lane + set1(static_cast<float>(row.distance));
    s = fma(set1(row.slope), select_less(set1(0), ahead, set1(0) - ahead, ahead), s);
  }
  if (row.bias != nullptr) {
    float biases[16];
    for (std::int64_t i = 0; i < 16; ++i) {
      const std::int64_t d = row.distance + static_cast<std::int64_t>(j) + i;
      biases[i] = row.bias[d < -a.bias_reach ? -a.bias_reach : d > a.bias_reach ? a.bias_reach : d];
    }
    s = s + load(biases);
  }
  const V16 none = set1(-__builtin_inff());
  if (a.lo > j) s = select_less(lane, set1(static_cast<float>(a.lo)), none, s);
  if (a.hi < j + 16) s = select_less(lane, set1(static_cast<float>(a.hi)), s, none);
  return s;
}

/// Scores to weights, relative to the new maximum; returns what the earlier values are multiplied by.
inline float update(SoftmaxState state, const V16* s, float* weights) {
  const float span_top = reduce_max(vmax(vmax(vmax(s[0], s[1]), s[2]), s[3]));
  const float top = state.top_sum[0] > span_top ? state.top_sum[0] : span_top;
  // Mostly the maximum stays, and e^0 is 1.
  const float before = state.top_sum[0];
  const float factor = before == top && top > -__builtin_inff() ? 1.0f : exp1(before - top);
  V16 total = set1(0);
  for (std::size_t g = 0; g < 4; ++g) {
    const V16 p = exp(s[g] - set1(top));
    store(weights + 16 * g, p);
    total = total + p;
  }
  state.top_sum[0] = top;
  state.top_sum[1] = state.top_sum[1] * factor + reduce_add(total);
  return factor;
}

/// values = values * factor + sum over positions [lo, hi), ascending, of weight * v; elements e and
/// following.
template <int rows, int vectors, class Values>
inline void add_values(const SpanArgs& a, const SpanRow* row, const float (*weights)[kSpan],
                       const float* factors, Values values, std::size_t e) {
  constexpr int parts = 16 / kGroup;
  FG acc[rows][vectors * parts];
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < vectors * parts; ++i)
      acc[r][i] = fg_mul(fg_load(row[r].state.values + e + kGroup * i), fg_set1(factors[r]));
  for (std::size_t j = a.lo; j < a.hi; ++j) {
    if (e == 0 && j % 4 == 0) ask_for(a.next_v, a.next_bytes_v, j / 4, kSpan / 4);
    FG w[rows];
    for (int r = 0; r < rows; ++r) w[r] = fg_set1(weights[r][j]);
    // A register's lanes at a time: with twelve sums there is no room for more.
    for (int i = 0; i < vectors * parts; ++i) {
      const FG v = values.lanes(j, e + kGroup * static_cast<std::size_t>(i));
      for (int r = 0; r < rows; ++r) acc[r][i] = fg_fma(w[r], v, acc[r][i]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < vectors * parts; ++i) fg_store(row[r].state.values + e + kGroup * i, acc[r][i]);
}

/// products[r]: of row r and the keys that the rows see. Not inline: together the variants would not fit the
/// compiler's registers.
template <int rows, class Keys>
[[gnu::noinline]] void span_products(const SpanArgs& a, const SpanRow* row, Keys keys,
                                     float (*products)[kSpan]) {
  for (std::size_t g = a.lo / 16; g * 16 < a.hi; ++g) {
    V16 out[rows];
    products16<rows>(a, row, keys, 16 * g, out);
    for (int r = 0; r < rows; ++r) store(products[r] + 16 * g, out[r]);
  }
}

/// Products to weights, relative to the row's new maximum; returns what its earlier values are multiplied by.
inline float weigh(const SpanArgs& a, const SpanRow& row, const float* products, float* weights) {
  const V16 none = set1(-__builtin_inff());
  V16 scores[4] = {none, none, none, none};
  for (std::size_t g = a.lo / 16; g * 16 < a.hi; ++g)
    scores[g] = scores16(a, row, 16 * g, load(products + 16 * g));
  return update(row.state, scores, weights);
}

template <int rows, class Values>
[[gnu::noinline]] void add_span_values(const SpanArgs& a, const SpanRow* row, const float (*weights)[kSpan],
                                       const float* factors, Values values) {
  constexpr int vectors = kGroup < 16 && rows > 1 ? 2 : 4;
  std::size_t e = 0;
  for (; e + 16 * vectors <= a.v; e += 16 * vectors)
    add_values<rows, vectors>(a, row, weights, factors, values, e);
  for (; e < a.v; e += 16) add_values<rows, 1>(a, row, weights, factors, values, e);
}

/// work(rows) with `count` as a constant.
template <class Work>
inline void with_rows(int count, const Work& work) {
  if constexpr (kSharedRows == 4)
    if (count == 4) return work(std::integral_constant<int, 4>());
  if constexpr (kSharedRows >= 3) {
    if (count == 3) return work(std::integral_constant<int, 3>());
    if (count == 2) return work(std::integral_constant<int, 2>());
  }
  work(std::integral_constant<int, 1>());
}

}  // namespace
}  // namespace quipu::backends

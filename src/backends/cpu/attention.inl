// Attention of query rows that share one key/value head: spans of 64 positions in chunks of 512, in ascending
// order, so that a row's result depends on its own sequence only (docs/numerics.md).

namespace quipu::backends {
namespace {

constexpr std::int64_t kSpan = 64, kChunk = 512;

inline float exp1(float x) {
  float t[16];
  store(t, exp(set1(x)));
  return t[0];
}
constexpr std::size_t padded(std::size_t n) { return (n + 15) / 16 * 16; }

/// One stored row of keys or values as floats, zero-padded to 16.
inline void load_row(KvType type, const std::byte* row, std::size_t n, float* out) {
  const auto* half = reinterpret_cast<const std::uint16_t*>(row);
  switch (type) {
    case KvType::f32:
      for_lanes(n, [&](std::size_t i, std::size_t m) {
        store(out + i, load_part(reinterpret_cast<const float*>(row) + i, m));
      });
      break;
    case KvType::f16:
      for_lanes(n, [&](std::size_t i, std::size_t m) {
        store(out + i, m == 16 ? load_f16(half + i) : load_f16_n(half + i, m));
      });
      break;
    case KvType::bf16:
      for_lanes(n, [&](std::size_t i, std::size_t m) {
        store(out + i, m == 16 ? load_bf16(half + i) : load_bf16_n(half + i, m));
      });
      break;
    case KvType::q8_0:
      for (std::size_t b = 0; b < n / 32; ++b) {
        const std::byte* block = row + b * 34;
        std::uint16_t bits[16] = {};
        __builtin_memcpy(bits, block, 2);
        float d[16];
        store(d, load_f16(bits));
        const auto* q = reinterpret_cast<const std::int8_t*>(block + 2);
        store(out + 32 * b, load_int8(q) * set1(d[0]));
        store(out + 32 * b + 16, load_int8(q + 16) * set1(d[0]));
      }
      break;
  }
}

/// Running softmax of one query row: maximum, sum of exponentials, weighted values.
struct SoftmaxState {
  float* values;
  float* top_sum;  ///< [0] maximum, [1] sum
};
inline void reset(SoftmaxState s, std::size_t v) {
  for (std::size_t i = 0; i < v; i += 16) store(s.values + i, set1(0));
  s.top_sum[0] = -__builtin_inff();
  s.top_sum[1] = 0;
}
/// a = a and b, b the later positions.
inline void merge(SoftmaxState a, SoftmaxState b, std::size_t v) {
  if (b.top_sum[1] == 0 && b.top_sum[0] == -__builtin_inff()) return;  // no visible position
  if (a.top_sum[1] == 0 && a.top_sum[0] == -__builtin_inff()) {
    for (std::size_t i = 0; i < v; i += 16) store(a.values + i, load(b.values + i));
    a.top_sum[0] = b.top_sum[0];
    a.top_sum[1] = b.top_sum[1];
    return;
  }
  const float top = a.top_sum[0] > b.top_sum[0] ? a.top_sum[0] : b.top_sum[0];
  const float fa = exp1(a.top_sum[0] - top), fb = exp1(b.top_sum[0] - top);
  const V16 va = set1(fa), vb = set1(fb);
  for (std::size_t i = 0; i < v; i += 16)
    store(a.values + i, fma(load(b.values + i), vb, load(a.values + i) * va));
  a.top_sum[0] = top;
  a.top_sum[1] = __builtin_fmaf(b.top_sum[1], fb, a.top_sum[1] * fa);
}
/// out = values / sum, a sink (a logit without a value) joining the sum.
inline void finish(SoftmaxState s, std::size_t v_dim, const float* sink, float* out) {
  float sum = s.top_sum[1], factor = 1;
  if (sink != nullptr) {
    const float top = s.top_sum[0] > *sink ? s.top_sum[0] : *sink;
    factor = exp1(s.top_sum[0] - top);
    sum = sum * factor + exp1(*sink - top);
  }
  const V16 r = set1(factor / sum);
  for_lanes(v_dim, [&](std::size_t i, std::size_t m) { store_part(out + i, load(s.values + i) * r, m); });
}

/// Scores of the 16 keys from j of a span, in lanes; lanes outside [lo, hi) are -inf.
inline V16 scores16(const AttentionArgs& a, const float* q, const float* keys, std::size_t d, std::size_t j,
                    std::size_t lo, std::size_t hi, float slope, std::int64_t distance) {
  V16 acc[16];
  for (int half = 0; half < 2; ++half) {
    const float* k = keys + (j + 8 * static_cast<std::size_t>(half)) * d;
    V16* s = acc + 8 * half;
    for (int i = 0; i < 8; ++i) s[i] = set1(0);
    for (std::size_t e = 0; e < d; e += 16) {
      const V16 qv = load(q + e);
      for (std::size_t i = 0; i < 8; ++i) s[i] = fma(qv, load(k + i * d + e), s[i]);
    }
  }
  V16 s = reduce_add16(acc) * set1(a.scale);
  if (a.soft_cap > 0) s = set1(a.soft_cap) * tanh(s / set1(a.soft_cap));
  constexpr float index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const V16 lane = load(index) + set1(static_cast<float>(j));
  if (slope != 0) s = fma(set1(slope), lane + set1(static_cast<float>(distance)), s);
  const V16 none = set1(-__builtin_inff());
  if (lo > j) s = select_less(lane, set1(static_cast<float>(lo)), none, s);
  if (hi < j + 16) s = select_less(lane, set1(static_cast<float>(hi)), s, none);
  return s;
}

/// values += sum over positions [lo, hi), ascending, of p * v.
template <int vectors>
inline void add_values(const float* p, const float* values, std::size_t v, std::size_t lo, std::size_t hi,
                       V16 factor, float* out) {
  V16 acc[vectors];
  for (int i = 0; i < vectors; ++i) acc[i] = load(out + 16 * i) * factor;
  for (std::size_t j = lo; j < hi; ++j) {
    const V16 w = set1(p[j]);
    for (int i = 0; i < vectors; ++i)
      acc[i] = fma(w, load(values + j * v + 16 * static_cast<std::size_t>(i)), acc[i]);
  }
  for (int i = 0; i < vectors; ++i) store(out + 16 * i, acc[i]);
}

void attention(const AttentionArgs& a) {
  const std::size_t d = padded(a.head_dim), v = padded(a.v_dim), rows = a.tokens * a.group;
  float* at = reinterpret_cast<float*>(a.scratch);
  const auto take = [&](std::size_t n) {
    float* p = at;
    at += n;
    return p;
  };
  float *keys = take(64 * d), *values = take(64 * v), *queries = take(rows * d), *weights = take(64);
  float *part_values = take(rows * v), *part_tops = take(rows * 2);
  float *all_values = take(rows * v), *all_tops = take(rows * 2);
  const auto part = [&](std::size_t r) { return SoftmaxState{part_values + r * v, part_tops + 2 * r}; };
  const auto all = [&](std::size_t r) { return SoftmaxState{all_values + r * v, all_tops + 2 * r}; };
  for (std::size_t r = 0; r < rows; ++r) {
    const float* q = a.q + r / a.group * a.q_stride + r % a.group * a.head_dim;
    for_lanes(a.head_dim,
              [&](std::size_t i, std::size_t m) { store(queries + r * d + i, load_part(q + i, m)); });
    reset(all(r), v);
  }
  const std::int64_t last = a.first_position + static_cast<std::int64_t>(a.tokens) - 1;
  const std::int64_t lowest =
      a.window > 0 && a.first_position >= a.window ? a.first_position - a.window + 1 : 0;
  std::int64_t chunk = lowest / kChunk;
  if (a.chunk_begin > chunk) chunk = a.chunk_begin;
  for (; chunk < a.chunk_end && chunk * kChunk <= last; ++chunk) {
    for (std::size_t r = 0; r < rows; ++r) reset(part(r), v);
    for (std::int64_t start = chunk * kChunk; start < (chunk + 1) * kChunk && start <= last; start += kSpan) {
      if (start + kSpan <= lowest) continue;
      const std::size_t page = a.pages[start / kSpan];
      const std::size_t from = lowest > start ? static_cast<std::size_t>(lowest - start) : 0;
      const std::size_t to = last - start + 1 < kSpan ? static_cast<std::size_t>(last - start + 1) : kSpan;
      for (std::size_t j = from; j < to; ++j) {
        load_row(a.k_type, a.k + page * a.k_page_bytes + j * a.k_row_bytes, a.head_dim, keys + j * d);
        load_row(a.v_type, a.v + page * a.v_page_bytes + j * a.v_row_bytes, a.v_dim, values + j * v);
      }
      for (std::size_t r = 0; r < rows; ++r) {
        const std::int64_t position = a.first_position + static_cast<std::int64_t>(r / a.group);
        const std::int64_t first = a.window > 0 ? position - a.window + 1 - start : 0;
        const std::size_t lo =
            first > static_cast<std::int64_t>(from) ? static_cast<std::size_t>(first) : from;
        const std::size_t hi =
            position - start + 1 < static_cast<std::int64_t>(to)
                ? static_cast<std::size_t>(position - start + 1 > 0 ? position - start + 1 : 0)
                : to;
        if (lo >= hi) continue;
        const float slope = a.slopes != nullptr ? a.slopes[r % a.group] : 0.0f;
        const V16 none = set1(-__builtin_inff());
        V16 s[4] = {none, none, none, none};
        V16 top_lanes = none;
        for (std::size_t g = lo / 16; g * 16 < hi; ++g) {
          s[g] = scores16(a, queries + r * d, keys, d, 16 * g, lo, hi, slope, start - position);
          top_lanes = vmax(top_lanes, s[g]);
        }
        SoftmaxState state = part(r);
        const float span_top = reduce_max(top_lanes);
        const float top = state.top_sum[0] > span_top ? state.top_sum[0] : span_top;
        const float factor = exp1(state.top_sum[0] - top);
        V16 total = set1(0);
        for (std::size_t g = 0; g < 4; ++g) {
          const V16 p = exp(s[g] - set1(top));
          store(weights + 16 * g, p);
          total = total + p;
        }
        state.top_sum[0] = top;
        state.top_sum[1] = state.top_sum[1] * factor + reduce_add(total);
        std::size_t i = 0;
        for (; i + 64 <= v; i += 64)
          add_values<4>(weights, values + i, v, lo, hi, set1(factor), state.values + i);
        for (; i < v; i += 16) add_values<1>(weights, values + i, v, lo, hi, set1(factor), state.values + i);
      }
    }
    for (std::size_t r = 0; r < rows; ++r) merge(all(r), part(r), v);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const SoftmaxState state = all(r);
    if (a.partial != nullptr) {
      float* out = a.partial + r * (v + 16);
      for (std::size_t i = 0; i < v; i += 16) store(out + i, load(state.values + i));
      out[v] = state.top_sum[0];
      out[v + 1] = state.top_sum[1];
      continue;
    }
    finish(state, a.v_dim, a.sinks != nullptr ? a.sinks + r % a.group : nullptr,
           a.out + r / a.group * a.out_stride + r % a.group * a.v_dim);
  }
}

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

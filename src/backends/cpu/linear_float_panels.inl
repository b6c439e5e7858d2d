// Linear with float weights for many rows where the registers hold the sixteen lanes of a few sums only: lane
// after lane (docs/numerics.md), weight rows side by side in a register, activations broadcast. What a lane
// reads is packed side by side first. Same sums by lane as linear_float.inl, so the same bits.

namespace quipu::backends {
namespace {

constexpr std::size_t kTileTokens = 6;
constexpr std::size_t kTileRows = 2 * kGroup;
/// Between lanes of a panel: distances of a power of two would fall into the same cache sets.
constexpr std::size_t kLanePad = 16;
/// From a panel's lane to the next: weights by kTileRows, activations by their rows.
constexpr std::size_t lane_stride(std::size_t steps, std::size_t rows) { return steps * rows + kLanePad; }

/// Lanes of what is left of each of kGroup rows, fewer than sixteen, then zeros.
template <class W>
inline void load_last_columns(const Rows& r, std::size_t k, std::size_t count, FG (&lanes)[16]) {
  alignas(64) float part[kGroup * 16];
  for (std::size_t i = 0; i < kGroup; ++i) store(part + i * 16, W::part(r.p[i], k, count));
  Rows parts;
  rows_set(parts, reinterpret_cast<const std::uint8_t*>(part), 16 * sizeof(float), kGroup);
  load_columns<WeightF32>(parts, 0, lanes);
}

/// The chunk [k0, k0 + 16 * steps) of weight rows from n on as [lane][step][kTileRows], the last row again
/// where there are fewer; asks for the panel behind it.
template <class W>
void pack_weights(const LinearArgs& a, std::size_t n, std::size_t k0, std::size_t steps, float* to) {
  const std::size_t stride = lane_stride(steps, kTileRows);
  for (std::size_t half = 0; half < kTileRows; half += kGroup) {
    const std::size_t row = n + half < a.n_end ? n + half : a.n_end - 1;
    Rows r;
    rows_set(r, a.weight + row * a.row_bytes, a.row_bytes, a.n_end - row < kGroup ? a.n_end - row : kGroup);
    for (std::size_t s = 0; s < steps; ++s) {
      const std::size_t k = k0 + s * 16;
      if (s % (64 / (16 * W::kBytes)) == 0)
        for (std::size_t i = 0; i < kGroup; ++i)
          prefetch_far(r.p[i] + k * W::kBytes + kTileRows * a.row_bytes);
      FG lanes[16];
      if (k + 16 <= a.k)
        load_columns<W>(r, k, lanes);
      else
        load_last_columns<W>(r, k, a.k - k, lanes);
      for (std::size_t lane = 0; lane < 16; ++lane)
        fg_store(to + lane * stride + s * kTileRows + half, lanes[lane]);
    }
  }
}
/// The same chunk of `rows` rows of activations from t on as [lane][row][step].
inline void pack_tokens(const LinearArgs& a, std::size_t t, std::size_t rows, std::size_t k0,
                        std::size_t steps, float* to) {
  const std::size_t stride = lane_stride(steps, rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const float* x = in_row(a, t + i);
    std::size_t s = 0;
    for (; s + kGroup <= steps && k0 + (s + kGroup) * 16 <= a.k; s += kGroup) {
      Rows r;  // a step is a row of sixteen
      rows_set(r, reinterpret_cast<const std::uint8_t*>(x + k0 + s * 16), 16 * sizeof(float), kGroup);
      FG lanes[16];
      load_columns<WeightF32>(r, 0, lanes);
      for (std::size_t lane = 0; lane < 16; ++lane) fg_store(to + lane * stride + i * steps + s, lanes[lane]);
    }
    for (; s < steps; ++s)
      for (std::size_t lane = 0; lane < 16; ++lane) {
        const std::size_t k = k0 + s * 16 + lane;
        to[lane * stride + i * steps + s] = k < a.k ? x[k] : 0.0f;
      }
  }
}

/// Adds a chunk of one lane of a tile to its sums [token][kTileRows].
template <std::size_t tokens>
void add_lane(const float* w, const float* x, std::size_t steps, bool first, float* sums) {
  FG acc[2][tokens];
#pragma GCC unroll 6
  for (std::size_t t = 0; t < tokens; ++t) {
    acc[0][t] = first ? fg_zero() : fg_load(sums + t * kTileRows);
    acc[1][t] = first ? fg_zero() : fg_load(sums + t * kTileRows + kGroup);
  }
  for (std::size_t s = 0; s < steps; ++s, w += kTileRows) {
    const FG w0 = fg_load(w), w1 = fg_load(w + kGroup);
#pragma GCC unroll 6
    for (std::size_t t = 0; t < tokens; ++t) {
      const FG xv = fg_set1(x[t * steps + s]);
      acc[0][t] = fg_fma(w0, xv, acc[0][t]);
      acc[1][t] = fg_fma(w1, xv, acc[1][t]);
    }
  }
#pragma GCC unroll 6
  for (std::size_t t = 0; t < tokens; ++t) {
    fg_store(sums + t * kTileRows, acc[0][t]);
    fg_store(sums + t * kTileRows + kGroup, acc[1][t]);
  }
}
/// The same for `rows` rows, `most` of them at most.
template <std::size_t most>
void add_lane_of(std::size_t rows, const float* w, const float* x, std::size_t steps, bool first,
                 float* sums) {
  if (rows >= most) return add_lane<most>(w, x, steps, first, sums);
  if constexpr (most > 1) add_lane_of<most - 1>(rows, w, x, steps, first, sums);
}
/// All of a panel's rows of activations, lane by lane; sums [lane][row][kTileRows].
inline void add_lanes(const float* w, const float* x, std::size_t steps, std::size_t rows, bool first,
                      float* sums) {
  for (std::size_t lane = 0; lane < 16; ++lane) {
    const float *wl = w + lane * lane_stride(steps, kTileRows), *xl = x + lane * lane_stride(steps, rows);
    for (std::size_t t = 0; t < rows; t += kTileTokens)
      add_lane_of<kTileTokens>(rows - t, wl, xl + t * steps, steps, first,
                               sums + (lane * rows + t) * kTileRows);
  }
}
/// The tree over the lanes of a group's sums, `stride` apart.
inline FG add_tree(const float* sums, std::size_t stride) {
  FG lanes[16];
  for (std::size_t i = 0; i < 16; ++i) lanes[i] = fg_load(sums + i * stride);
  for (std::size_t n = 8; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) lanes[i] = fg_add(lanes[i], lanes[i + n]);
  return lanes[0];
}

template <class W>
void linear_float_panels(const LinearArgs& a) {
  constexpr std::size_t chunk = kFloatPanelChunk / 16;  // in steps
  const std::size_t steps = (a.k + 15) / 16;
  auto* panel = reinterpret_cast<float*>(a.scratch);
  float *sums = panel + 16 * lane_stride(chunk, kTileRows),
        *packed = sums + 16 * kFloatPanelBlock * kTileRows;
  for (std::size_t t0 = 0; t0 < a.rows; t0 += kFloatPanelBlock) {
    const std::size_t rows = a.rows - t0 < kFloatPanelBlock ? a.rows - t0 : kFloatPanelBlock;
    const auto for_chunks = [&](const auto& work) {
      float* x = packed;
      for (std::size_t s = 0; s < steps; s += chunk) {
        const std::size_t some = steps - s < chunk ? steps - s : chunk;
        work(s * 16, some, x);
        x += 16 * lane_stride(some, rows);
      }
    };
    for_chunks([&](std::size_t k0, std::size_t some, float* x) { pack_tokens(a, t0, rows, k0, some, x); });
    for (std::size_t n = a.n_begin; n < a.n_end; n += kTileRows) {
      for_chunks([&](std::size_t k0, std::size_t some, const float* x) {
        pack_weights<W>(a, n, k0, some, panel);
        add_lanes(panel, x, some, rows, k0 == 0, sums);
      });
      for (std::size_t t = 0; t < rows; ++t)
        for (std::size_t at = 0; at < kTileRows && n + at < a.n_end; at += kGroup) {
          const std::size_t left = a.n_end - n - at;
          finish(a, t0 + t, n + at, left < kGroup ? left : kGroup,
                 add_tree(sums + t * kTileRows + at, rows * kTileRows));
        }
    }
  }
}

}  // namespace
}  // namespace quipu::backends

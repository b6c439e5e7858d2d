// Linear with float weights for many rows where the registers hold the lanes of a few sums only: kGroup lanes
// at a time, over weights and activations packed as they are read, so that rows at distances of a power of
// two do not fall into the same cache sets. Same sums by lane as linear_float.inl, so the same bits.

namespace quipu::backends {
namespace {

constexpr std::size_t kTileRows = kFloatPanelRows, kTileTokens = 3,
                      kTileFloats = kTileRows * kTileTokens * 16;

/// Weights [k / 16][kTileRows][16] of the chunk [k0, k1) of a tile's rows; asks for the tile behind it.
template <class W>
void pack_weights(const LinearArgs& a, std::size_t n, std::size_t k0, std::size_t k1, float* to) {
  for (std::size_t i = 0; i < kTileRows; ++i) {
    const std::uint8_t* w = a.weight + (n + i) * a.row_bytes;
    for (std::size_t k = k0; k < k1; k += 16) {
      prefetch_far(w + k * W::kBytes + kTileRows * a.row_bytes);
      store(to + (k - k0) * kTileRows + i * 16, W::at(w, k));
    }
  }
}
/// Activations [k / 16][kTileTokens][16] of rows t to t1, at most kTileTokens.
inline void pack_tokens(const LinearArgs& a, std::size_t t, std::size_t t1, std::size_t whole, float* to) {
  for (std::size_t j = 0; j < kTileTokens && t + j < t1; ++j) {
    const float* x = in_row(a, t + j);
    for (std::size_t k = 0; k < whole; k += 16) store(to + k * kTileTokens + j * 16, load(x + k));
  }
}

/// Adds `chunk` of K to a tile's sums [kTileRows][kTileTokens][16].
template <std::size_t tokens>
void add_tile(const float* w, const float* x, std::size_t chunk, bool first, float* sums) {
  for (std::size_t lane = 0; lane < 16; lane += kGroup) {
    FG acc[kTileRows][tokens];
    for (std::size_t i = 0; i < kTileRows; ++i)
      for (std::size_t j = 0; j < tokens; ++j)
        acc[i][j] = first ? fg_zero() : fg_load(sums + (i * kTileTokens + j) * 16 + lane);
    const float *wk = w + lane, *xk = x + lane;
    for (std::size_t k = 0; k < chunk; k += 16, wk += 16 * kTileRows, xk += 16 * kTileTokens) {
      FG xv[tokens];
      for (std::size_t j = 0; j < tokens; ++j) xv[j] = fg_load(xk + 16 * j);
      for (std::size_t i = 0; i < kTileRows; ++i) {
        const FG wv = fg_load(wk + 16 * i);
        for (std::size_t j = 0; j < tokens; ++j) acc[i][j] = fg_fma(wv, xv[j], acc[i][j]);
      }
    }
    for (std::size_t i = 0; i < kTileRows; ++i)
      for (std::size_t j = 0; j < tokens; ++j) fg_store(sums + (i * kTileTokens + j) * 16 + lane, acc[i][j]);
  }
}
/// The outputs of a tile's rows from n on and the rows of activations from t to t1: the rest of K, then what
/// follows a sum.
template <class W>
void finish_tile(const LinearArgs& a, std::size_t n, std::size_t t, std::size_t t1, std::size_t whole,
                 const float* sums) {
  static_assert(kTileRows * kTileTokens <= 16);
  const std::size_t tokens = t1 - t < kTileTokens ? t1 - t : kTileTokens;
  V16 acc[16];
  for (V16& sum : acc) sum = set1(0);
  for (std::size_t j = 0; j < tokens; ++j)
    for (std::size_t i = 0; i < kTileRows; ++i) {
      V16& sum = acc[j * kTileRows + i];
      if (whole > 0) sum = load(sums + (i * kTileTokens + j) * 16);
      if (whole < a.k)
        sum = fma(W::part(a.weight + (n + i) * a.row_bytes, whole, a.k - whole),
                  load_n(in_row(a, t + j) + whole, a.k - whole), sum);
    }
  float y[16];
  store(y, reduce_add16(acc));
  for (std::size_t j = 0; j < tokens; ++j) float_outputs(a, n, t + j, y + j * kTileRows, kTileRows);
}

/// Output columns [n_begin, n_end) as far as whole tiles go, for all rows; where they end.
template <class W>
std::size_t linear_float_panels(const LinearArgs& a) {
  constexpr std::size_t most = kFloatPanelChunk;
  auto* panel = reinterpret_cast<float*>(a.scratch);
  float *sums = panel + kTileRows * most, *packed = sums + kTileRows * kFloatPanelBlock * 16;
  const std::size_t whole = a.k / 16 * 16, end = a.n_begin + (a.n_end - a.n_begin) / kTileRows * kTileRows;
  for (std::size_t t0 = 0; t0 < a.rows; t0 += kFloatPanelBlock) {
    const std::size_t t1 = a.rows - t0 < kFloatPanelBlock ? a.rows : t0 + kFloatPanelBlock;
    const auto for_tiles = [&](const auto& work) {
      float* at = sums;
      for (std::size_t t = t0; t < t1; t += kTileTokens, at += kTileFloats) work(t, at);
    };
    for (std::size_t t = t0; t < t1; t += kTileTokens)
      pack_tokens(a, t, t1, whole, packed + (t - t0) * whole);
    for (std::size_t n = a.n_begin; n < end; n += kTileRows) {
      for (std::size_t k0 = 0; k0 < whole; k0 += most) {
        const std::size_t chunk = whole - k0 < most ? whole - k0 : most;
        pack_weights<W>(a, n, k0, k0 + chunk, panel);
        for_tiles([&](std::size_t t, float* at) {
          const float* x = packed + (t - t0) * whole + k0 * kTileTokens;
          if (t1 - t >= 3) return add_tile<3>(panel, x, chunk, k0 == 0, at);
          if (t1 - t == 2) return add_tile<2>(panel, x, chunk, k0 == 0, at);
          add_tile<1>(panel, x, chunk, k0 == 0, at);
        });
      }
      for_tiles([&](std::size_t t, const float* at) { finish_tile<W>(a, n, t, t1, whole, at); });
    }
  }
  return end;
}

}  // namespace
}  // namespace quipu::backends

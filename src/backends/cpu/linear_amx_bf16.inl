// Linear with BF16 weights on AMX, for one row of activations as for many (docs/numerics.md). The weights are
// operand A: 16 rows of 32 values, for up to 16 rows of activations as they lie in the file. Activations are
// operand B, split into two bfloat16 planes x = hi + lo, so that they keep 16 bits.

namespace quipu::backends {
namespace {

constexpr std::size_t kBf16Block = 32;  ///< values of K a tile product sums
constexpr std::size_t kBf16Tokens =
    128;  ///< activation rows packed at a time: with K = 2048 they fill half of L2

/// 32 values of a row, zeros behind its end, as pairs of the two planes.
inline void split_bf16(const float* x, std::size_t n, __m512i& hi, __m512i& lo) {
  const std::size_t n0 = n < 16 ? n : 16, n1 = n < 16 ? 0 : n < 32 ? n - 16 : 16;
  const __m512 a = _mm512_maskz_loadu_ps(first(n0), x);
  const __m512 b = n1 > 0 ? _mm512_maskz_loadu_ps(first(n1), x + 16) : _mm512_setzero_ps();
  const __m256i ha = to_bf16(a), hb = to_bf16(b);
  hi = _mm512_inserti64x4(_mm512_castsi256_si512(ha), hb, 1);
  lo = _mm512_inserti64x4(_mm512_castsi256_si512(to_bf16(_mm512_sub_ps(a, from_bf16(ha)))),
                          to_bf16(_mm512_sub_ps(b, from_bf16(hb))), 1);
}

/// Tiles 0..3 accumulate; 4, 5 weights; 6, 7 activations of `columns` rows.
inline void configure_bf16(std::size_t columns) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = 16;
    config.column_bytes[i] = i == 4 || i == 5 ? 64 : static_cast<std::uint16_t>(columns * 4);
  }
  load_config(config);
}

/// Rows [n, n + count) as tiles [block][16][32], zeros where there is no weight.
inline void copy_weights(const LinearArgs& a, std::size_t n, std::size_t count, std::size_t tile_stride,
                         std::byte* tiles) {
  const std::size_t blocks = (a.k + kBf16Block - 1) / kBf16Block;
  for (std::size_t r = 0; r < 16; ++r) {
    const std::uint8_t* row = a.weight + (n + (r < count ? r : 0)) * a.row_bytes;
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t left = a.k - b * kBf16Block;
      const __mmask32 there = r >= count ? 0u : left >= 32 ? ~0u : (1u << left) - 1u;
      _mm512_store_si512(tiles + b * tile_stride + r * 64, _mm512_maskz_loadu_epi16(there, row + b * 64));
    }
  }
}

/// Activation rows [t0, t0 + rows) as tiles [16 rows][block][hi, lo][pair][row].
inline void pack_activations(const LinearArgs& a, std::size_t t0, std::size_t rows, std::byte* tiles) {
  const std::size_t blocks = (a.k + kBf16Block - 1) / kBf16Block;
  for (std::size_t t = 0; t < rows; t += 16)
    for (std::size_t b = 0; b < blocks; ++b) {
      __m512i hi[16], lo[16];
      for (std::size_t r = 0; r < 16; ++r) {
        hi[r] = lo[r] = _mm512_setzero_si512();
        if (t + r < rows)
          split_bf16(in_row(a, t0 + t + r) + b * kBf16Block, a.k - b * kBf16Block, hi[r], lo[r]);
      }
      transpose16(hi);
      transpose16(lo);
      std::byte* to = tiles + (t / 16 * blocks + b) * 2 * kTileBytes;
      for (std::size_t p = 0; p < 16; ++p) {
        _mm512_store_si512(to + p * 64, hi[p]);
        _mm512_store_si512(to + kTileBytes + p * 64, lo[p]);
      }
    }
}

/// The outputs of one tile of accumulators: rows are columns of y.
inline void finish_tile(const LinearArgs& a, const float* tile, std::size_t t0, std::size_t rows,
                        std::size_t n, std::size_t count) {
  __m512i v[16];
  for (std::size_t i = 0; i < 16; ++i) v[i] = _mm512_load_si512(tile + 16 * i);
  transpose16(v);
  for (std::size_t r = 0; r < rows; ++r) finish(a, t0 + r, n, count, _mm512_castsi512_ps(v[r]));
}

/// Activations of up to 16 rows as operand B: two planes a block, `plane` bytes apart, rows of pairs `stride`
/// apart.
struct FewActivations {
  std::byte* tiles;
  std::size_t stride, plane;
};
inline FewActivations pack_few(const LinearArgs& a, std::byte* tiles) {
  if (a.rows > 1) {
    pack_activations(a, 0, a.rows, tiles);
    return {tiles, 64, kTileBytes};
  }
  const float* row = in_row(a, 0);
  for (std::size_t k = 0; k < a.k; k += kBf16Block) {
    __m512i hi, lo;
    split_bf16(row + k, a.k - k, hi, lo);
    _mm512_store_si512(tiles + k * 4, hi);
    _mm512_store_si512(tiles + k * 4 + 64, lo);
  }
  return {tiles, 4, 64};
}

/// 16 rows of weights as operand A: tiles of [16][32], `row` bytes between rows and `block` between tiles.
struct WeightTiles {
  const std::byte* at;
  std::size_t row, block;
};
/// Weight rows [n, n + count) where they lie in the file, or copied where they do not fill their tiles.
inline WeightTiles weight_tiles(const LinearArgs& a, std::size_t n, std::size_t count, std::byte* copied) {
  if (count == 16 && a.k % kBf16Block == 0)
    return {reinterpret_cast<const std::byte*>(a.weight + n * a.row_bytes), a.row_bytes, 64};
  copy_weights(a, n, count, kTileBytes, copied);
  return {copied, 64, kTileBytes};
}

/// Up to 16 rows of activations: the weights are read once.
void bf16_few_rows(const LinearArgs& a) {
  const std::size_t blocks = (a.k + kBf16Block - 1) / kBf16Block;
  const FewActivations x = pack_few(a, a.scratch);
  std::byte* copied = a.scratch + blocks * 2 * kTileBytes;  // [block][16][32]
  configure_bf16(a.rows);
  alignas(64) float y[256] = {};
  for (std::size_t n = a.n_begin; n < a.n_end; n += 16) {
    const std::size_t count = a.n_end - n < 16 ? a.n_end - n : 16;
    const WeightTiles w = weight_tiles(a, n, count, copied);
    asm volatile("" ::: "memory");
    _tile_zero(0);
    for (std::size_t b = 0; b < blocks; ++b) {
      _tile_loadd(4, w.at + b * w.block, w.row);
      _tile_loadd(6, x.tiles + b * 2 * x.plane, x.stride);
      _tile_loadd(7, x.tiles + b * 2 * x.plane + x.plane, x.stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(0, 4, 7);
    }
    _tile_stored(0, y, a.rows == 1 ? 4 : 64);
    asm volatile("" ::: "memory");
    if (a.rows == 1)
      finish(a, 0, n, count, _mm512_load_ps(y));
    else
      finish_tile(a, y, 0, a.rows, n, count);
  }
  _tile_release();
}

/// What a pair of activation tiles asks for while it is multiplied, a block of K at a time: its share of the
/// next weight rows, and the places of its results.
struct Soon {
  const std::uint8_t* weight;
  std::size_t weight_rows, row_bytes;
  const LinearArgs& a;
  std::size_t t, rows, n;
  void ask(std::size_t block) const {
    for (std::size_t r = 0; r < weight_rows; ++r)
      _mm_prefetch(weight + r * row_bytes + block * 64, _MM_HINT_T1);
    if (block >= rows) return;
    const float* y = a.y + out_row(a, t + block) * a.n + n;
    __builtin_prefetch(y, 1);
    __builtin_prefetch(y + 16, 1);
  }
};

void bf16_many_rows(const LinearArgs& a) {
  const std::size_t blocks = (a.k + kBf16Block - 1) / kBf16Block;
  std::byte* copied = a.scratch;  // two times [block][16][32]
  std::byte* x = a.scratch + blocks * 2 * kTileBytes;
  configure_bf16(16);
  alignas(64) float sums[4][256];
  for (std::size_t t0 = 0; t0 < a.rows; t0 += kBf16Tokens) {
    const std::size_t rows = a.rows - t0 < kBf16Tokens ? a.rows - t0 : kBf16Tokens;
    pack_activations(a, t0, rows, x);
    for (std::size_t n = a.n_begin; n < a.n_end; n += 32) {
      const std::size_t left = a.n_end - n;
      const std::size_t count0 = left < 16 ? left : 16, count1 = left <= 16 ? 0 : left < 32 ? left - 16 : 16;
      const WeightTiles w0 = weight_tiles(a, n, count0, copied);
      const WeightTiles w1 = count1 > 0 ? weight_tiles(a, n + 16, count1, copied + blocks * kTileBytes) : w0;
      const std::size_t pairs = (rows + 31) / 32, share = (32 + pairs - 1) / pairs;
      for (std::size_t t = 0; t < rows; t += 32) {
        const std::size_t rows0 = rows - t < 16 ? rows - t : 16;
        const std::size_t rows1 = rows - t <= 16 ? 0 : rows - t < 32 ? rows - t - 16 : 16;
        const std::byte* x0 = x + t / 16 * blocks * 2 * kTileBytes;
        // Of what follows this thread's rows nothing is asked for.
        const std::size_t from = n + 32 + t / 32 * share;
        const std::size_t there = from < a.n_end ? a.n_end - from : 0;
        const Soon soon{a.weight + from * a.row_bytes,
                        share < there ? share : there,
                        a.row_bytes,
                        a,
                        t0 + t,
                        rows0 + rows1,
                        n};
        asm volatile("" ::: "memory");
        _tile_zero(0);
        _tile_zero(2);
        if (rows1 > 0) {
          const std::byte* x1 = x0 + blocks * 2 * kTileBytes;
          _tile_zero(1);
          _tile_zero(3);
          for (std::size_t b = 0; b < blocks; ++b) {
            const std::size_t at = b * 2 * kTileBytes;
            _tile_loadd(4, w0.at + b * w0.block, w0.row);
            _tile_loadd(6, x0 + at, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, x1 + at, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, w1.at + b * w1.block, w1.row);
            _tile_dpbf16ps(2, 5, 6);
            _tile_loadd(6, x0 + at + kTileBytes, 64);
            _tile_dpbf16ps(3, 5, 7);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, x1 + at + kTileBytes, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
            soon.ask(b);
          }
          _tile_stored(1, sums[1], 64);
          _tile_stored(3, sums[3], 64);
        } else {
          for (std::size_t b = 0; b < blocks; ++b) {
            const std::size_t at = b * 2 * kTileBytes;
            _tile_loadd(4, w0.at + b * w0.block, w0.row);
            _tile_loadd(6, x0 + at, 64);
            _tile_loadd(5, w1.at + b * w1.block, w1.row);
            _tile_loadd(7, x0 + at + kTileBytes, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(0, 4, 7);
            _tile_dpbf16ps(2, 5, 7);
            soon.ask(b);
          }
        }
        _tile_stored(0, sums[0], 64);
        _tile_stored(2, sums[2], 64);
        asm volatile("" ::: "memory");
        finish_tile(a, sums[0], t0 + t, rows0, n, count0);
        if (rows1 > 0) finish_tile(a, sums[1], t0 + t + 16, rows1, n, count0);
        if (count1 == 0) continue;
        finish_tile(a, sums[2], t0 + t, rows0, n + 16, count1);
        if (rows1 > 0) finish_tile(a, sums[3], t0 + t + 16, rows1, n + 16, count1);
      }
    }
  }
  _tile_release();
}

void linear_amx_bf16(const LinearArgs& a) {
  if (a.rows <= 16)
    bf16_few_rows(a);
  else
    bf16_many_rows(a);
}

}  // namespace
}  // namespace quipu::backends

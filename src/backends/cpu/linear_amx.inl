// Linear with quantised weights for many rows, on AMX int8: the panels, the integer sums and the chain of
// linear_quant.inl, so the same bits; only the sums are made by tile products.
//
// Activations are operand A as they lie (a row of QuantizedRows is [lo32 | hi32] a group), a panel is operand
// B. Four-bit weights: one product of 64 bytes a group, [lo | hi] x [w ; 16 w], is the whole sum. Others: a
// product for lo and one for hi, sum = 16 hi + lo.
//
// Per group a tile of sums goes through memory to the vector unit (scale, convert, fma: three operations for
// 16 sums), which bounds the speed, so tiles are made in chunks of kSumChunk groups that stay in L1 together
// with what they are made from, and the accumulators of a tile are in registers for a whole chunk.

namespace quipu::backends {
namespace {

template <class F>
constexpr bool kFourBits = false;
template <>
constexpr bool kFourBits<FormatQ4_0> = true;
template <>
constexpr bool kFourBits<FormatQ4_1> = true;
template <>
constexpr bool kFourBits<FormatQ4_K> = true;

constexpr std::size_t kSumChunk = 4;   ///< groups between two visits of an accumulator
constexpr std::size_t kTileRows = 16;  ///< activation rows of a tile
constexpr std::size_t kTileInts = 256;

/// How a format's tiles are shaped, and where a panel's go.
template <class B>
struct AmxShape {
  using F = typename B::Format;
  static constexpr bool kOneProduct = kFourBits<F>;
  static constexpr std::size_t kSub = B::kSubWidth;
  static constexpr std::size_t kSubsPerGroup = 32 / kSub;
  static constexpr std::size_t kWeightRows = kOneProduct ? 16 : kSub / 4;  ///< of a B tile, 64 bytes each
  static constexpr std::size_t kWeightBytes = kWeightRows * 64;            ///< of a B tile
};

/// A group of rows unpacked: dword k / 4 of every row side by side, scales (and minima) by sub-block.
struct Panel {
  std::uint8_t* values;
  float *d, *m;
};

/// A panel's tiles of one thread: B operands by sub-block, scales and minima of the 16 columns by sub-block.
struct AmxPanel {
  std::uint8_t* tiles;
  const float *d, *m;
};

/// From panel bytes to B tiles: the zero point taken off (unless it is 0 and 16 w needs the unsigned range).
template <class B>
void make_tiles(const Panel& p, std::size_t subs, std::uint8_t* tiles) {
  using S = AmxShape<B>;
  constexpr std::size_t rows = S::kSub / 4;
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(S::F::kZero));
  const __m512i high = _mm512_set1_epi8(static_cast<char>(0xf0));
  for (std::size_t s = 0; s < subs; ++s)
    for (std::size_t j = 0; j < rows; ++j) {
      const __m512i w = _mm512_sub_epi8(_mm512_loadu_si512(p.values + (s * rows + j) * 64), zero);
      _mm512_storeu_si512(tiles + s * S::kWeightBytes + j * 64, w);
      if constexpr (S::kOneProduct)
        _mm512_storeu_si512(tiles + s * S::kWeightBytes + (rows + j) * 64,
                            _mm512_and_si512(_mm512_slli_epi16(w, 4), high));
    }
}

/// Scales (and scaled sums) of 16 activation rows by sub-block: [subs][16], zeros for rows that are not
/// there.
struct AmxRows {
  const std::int8_t* q;
  float *d, *dsum;
};
template <class B>
void gather_scales(const LinearArgs& a, std::size_t t0, std::size_t rows, const AmxRows& to) {
  using S = AmxShape<B>;
  const QuantizedRows& x = *a.x;
  const std::size_t groups = a.k / 32, subs = a.k / S::kSub;
  for (std::size_t r = 0; r < kTileRows; ++r)
    for (std::size_t s = 0; s < subs; ++s) {
      const bool there = r < rows;
      const std::size_t row = t0 + r;
      const float d = there ? x.d[row * groups + s / S::kSubsPerGroup] : 0.0f;
      to.d[s * kTileRows + r] = d;
      if constexpr (S::F::kMin) {
        if constexpr (S::kSub == 32)
          to.dsum[s * kTileRows + r] = there ? x.dsum[row * groups + s] : 0.0f;
        else
          to.dsum[s * kTileRows + r] = there ? d * static_cast<float>(x.sum16[row * subs + s]) : 0.0f;
      }
    }
}

/// Sums of `count` sub-blocks from `s0` for two tiles of the accumulators, through tiles 0..3 (see the
/// callers): one product: (rows 0, panel 0), (rows 0, panel 1), (rows 1, panel 0), (rows 1, panel 1); two
/// products: (panel 0: lo, hi), (panel 1: lo, hi) of one tile of rows.
template <class B>
inline void sums_one_product(const std::int8_t* q0, const std::int8_t* q1, std::size_t stride,
                             const std::uint8_t* w0, const std::uint8_t* w1, std::size_t s0,
                             std::size_t count, std::int32_t* out) {
  using S = AmxShape<B>;
  for (std::size_t i = 0; i < count; ++i, out += 4 * kTileInts) {
    const std::size_t s = s0 + i;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, q0 + s * 64, stride);
    _tile_loadd(6, w0 + s * S::kWeightBytes, 64);
    _tile_loadd(7, w1 + s * S::kWeightBytes, 64);
    _tile_loadd(5, q1 + s * 64, stride);
    if constexpr (S::F::kZero == 0) {
      _tile_dpbsud(0, 4, 6);
      _tile_dpbsud(1, 4, 7);
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    } else {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, out, 64);
    _tile_stored(1, out + kTileInts, 64);
    _tile_stored(2, out + 2 * kTileInts, 64);
    _tile_stored(3, out + 3 * kTileInts, 64);
  }
}
template <class B>
inline void sums_two_products(const std::int8_t* q, std::size_t stride, const std::uint8_t* w0,
                              const std::uint8_t* w1, std::size_t s0, std::size_t count, std::int32_t* out) {
  using S = AmxShape<B>;
  for (std::size_t i = 0; i < count; ++i, out += 4 * kTileInts) {
    const std::size_t s = s0 + i;
    const std::int8_t* lo = q + s / S::kSubsPerGroup * 64 + s % S::kSubsPerGroup * S::kSub;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, lo, stride);
    _tile_loadd(6, w0 + s * S::kWeightBytes, 64);
    _tile_loadd(5, lo + 32, stride);
    _tile_loadd(7, w1 + s * S::kWeightBytes, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 5, 6);
    _tile_dpbssd(2, 4, 7);
    _tile_dpbssd(3, 5, 7);
    _tile_stored(0, out, 64);
    _tile_stored(1, out + kTileInts, 64);
    _tile_stored(2, out + 2 * kTileInts, 64);
    _tile_stored(3, out + 3 * kTileInts, 64);
  }
}

/// One step of the chain for a tile of accumulators [16 rows][16 columns] over a chunk of sub-blocks.
template <class B>
inline void add_chunk(const std::int32_t* sums, std::size_t s0, std::size_t count, const AmxPanel& p,
                      const AmxRows& x, float* acc, float* accm) {
  using S = AmxShape<B>;
  __m512 y[kTileRows];
  for (std::size_t r = 0; r < kTileRows; ++r) y[r] = _mm512_load_ps(acc + r * 16);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t* sum = sums + i * 4 * kTileInts;
    const float* dx = x.d + (s0 + i) * kTileRows;
    const __m512 dw = _mm512_loadu_ps(p.d + (s0 + i) * 16);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kTileRows; ++r) {
      __m512i v = _mm512_load_si512(sum + r * 16);
      if constexpr (!S::kOneProduct)
        v = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(sum + kTileInts + r * 16), 4), v);
      y[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_mul_ps(dw, _mm512_set1_ps(dx[r])), y[r]);
    }
  }
  for (std::size_t r = 0; r < kTileRows; ++r) _mm512_store_ps(acc + r * 16, y[r]);
  if constexpr (S::F::kMin) {
    for (std::size_t r = 0; r < kTileRows; ++r) y[r] = _mm512_load_ps(accm + r * 16);
    for (std::size_t i = 0; i < count; ++i) {
      const float* dsum = x.dsum + (s0 + i) * kTileRows;
      const __m512 mw = _mm512_loadu_ps(p.m + (s0 + i) * 16);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kTileRows; ++r) y[r] = _mm512_fmadd_ps(mw, _mm512_set1_ps(dsum[r]), y[r]);
    }
    for (std::size_t r = 0; r < kTileRows; ++r) _mm512_store_ps(accm + r * 16, y[r]);
  }
}

/// Where a thread's scratch goes: panel bytes, tiles and scales of up to `panels` panels, scales of two row
/// tiles.
struct AmxScratch {
  std::size_t panels;
  std::byte *values, *first_panel, *first_rows;
  std::size_t panel_bytes, rows_bytes;
};
inline AmxScratch amx_scratch(std::byte* scratch, std::size_t k) {
  AmxScratch s;
  s.panels = amx_panels(k);
  s.panel_bytes = k * 32 + 2 * (k / 16) * 64;
  s.rows_bytes = 2 * (k / 16) * 64;
  s.values = scratch;
  s.first_panel = scratch + k * 16;
  s.first_rows = s.first_panel + s.panels * s.panel_bytes;
  return s;
}

template <class B, int slot>
void linear_amx(const LinearArgs& a) {
  using S = AmxShape<B>;
  if (a.rows < kAmxRows) return kernels_avx512().linear[slot](a);
  const AmxScratch at = amx_scratch(a.scratch, a.k);
  const std::size_t subs = a.k / S::kSub, stride = a.x->stride;

  alignas(64) std::int32_t sums[kSumChunk * 4 * kTileInts] = {};  // rows a tile lacks stay finite
  alignas(64) float acc[4][kTileInts], accm[4][kTileInts];
  AmxRows rows[2];
  for (std::size_t i = 0; i < 2; ++i) {
    rows[i].d = reinterpret_cast<float*>(at.first_rows + i * at.rows_bytes);
    rows[i].dsum = rows[i].d + subs * kTileRows;
  }

  TileConfig config;
  const auto configure = [&](std::size_t rows0, std::size_t rows1) {
    for (int i = 0; i < 4; ++i) {
      config.column_bytes[i] = 64;
      config.rows[i] = static_cast<std::uint8_t>(S::kOneProduct && i >= 2 ? rows1 : rows0);
    }
    for (int i = 4; i < 6; ++i) {
      config.column_bytes[i] = S::kOneProduct ? 64 : static_cast<std::uint16_t>(S::kSub);
      config.rows[i] = static_cast<std::uint8_t>(S::kOneProduct && i == 5 ? rows1 : rows0);
    }
    for (int i = 6; i < 8; ++i) {
      config.column_bytes[i] = 64;
      config.rows[i] = static_cast<std::uint8_t>(S::kWeightRows);
    }
    load_config(config);
  };
  std::size_t set0 = 0, set1 = 0;

  for (std::size_t n0 = a.n_begin; n0 < a.n_end; n0 += at.panels * 16) {
    // Unpack the panels of this block of columns; an odd one gets its own twin, whose results are not stored.
    AmxPanel panels[kAmxMaxPanels];
    const std::size_t columns = a.n_end - n0 < at.panels * 16 ? a.n_end - n0 : at.panels * 16;
    const std::size_t count = (columns + 15) / 16;
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* place = at.first_panel + i * at.panel_bytes;
      Panel p;
      p.values = reinterpret_cast<std::uint8_t*>(at.values);
      p.d = reinterpret_cast<float*>(place + a.k * 32);
      p.m = p.d + a.k / 16 * 16;
      const std::size_t n = n0 + i * 16;
      Rows r;
      rows_set(r, a.weight + n * a.row_bytes, a.row_bytes, a.n_end - n < 16 ? a.n_end - n : 16);
      const auto put = [&](std::size_t dword, Q bytes) { qput(p.values + dword * 64, bytes); };
      for (std::size_t b = 0; b < a.k / B::kBlock; ++b) B::unpack(r, b * B::kBytes, b, put, p.d, p.m);
      make_tiles<B>(p, subs, reinterpret_cast<std::uint8_t*>(place));
      panels[i] = {reinterpret_cast<std::uint8_t*>(place), p.d, p.m};
    }
    // The tile loads below read what was just stored.
    asm volatile("" ::: "memory");

    constexpr std::size_t step = S::kOneProduct ? 2 * kTileRows : kTileRows;
    for (std::size_t t0 = 0; t0 < a.rows; t0 += step) {
      const std::size_t rows0 = a.rows - t0 < kTileRows ? a.rows - t0 : kTileRows;
      std::size_t rows1 = 0;
      rows[0].q = a.x->q + t0 * stride;
      gather_scales<B>(a, t0, rows0, rows[0]);
      if constexpr (S::kOneProduct) {
        rows1 = a.rows - t0 - rows0 < kTileRows ? a.rows - t0 - rows0 : kTileRows;
        rows[1].q = rows1 > 0 ? a.x->q + (t0 + kTileRows) * stride : rows[0].q;
        if (rows1 > 0) gather_scales<B>(a, t0 + kTileRows, rows1, rows[1]);
      }
      const std::size_t shape1 = rows1 > 0 ? rows1 : rows0;
      if (set0 != rows0 || set1 != shape1) configure(set0 = rows0, set1 = shape1);

      for (std::size_t i = 0; i < count; i += 2) {
        const AmxPanel &p0 = panels[i], &p1 = panels[i + 1 < count ? i + 1 : i];
        __builtin_memset(acc, 0, sizeof acc);
        if constexpr (S::F::kMin) __builtin_memset(accm, 0, sizeof accm);
        for (std::size_t s = 0; s < subs; s += kSumChunk) {
          const std::size_t chunk = subs - s < kSumChunk ? subs - s : kSumChunk;
          if constexpr (S::kOneProduct) {
            sums_one_product<B>(rows[0].q, rows[1].q, stride, p0.tiles, p1.tiles, s, chunk, sums);
            add_chunk<B>(sums, s, chunk, p0, rows[0], acc[0], accm[0]);
            add_chunk<B>(sums + kTileInts, s, chunk, p1, rows[0], acc[1], accm[1]);
            if (rows1 > 0) {
              add_chunk<B>(sums + 2 * kTileInts, s, chunk, p0, rows[1], acc[2], accm[2]);
              add_chunk<B>(sums + 3 * kTileInts, s, chunk, p1, rows[1], acc[3], accm[3]);
            }
          } else {
            sums_two_products<B>(rows[0].q, stride, p0.tiles, p1.tiles, s, chunk, sums);
            add_chunk<B>(sums, s, chunk, p0, rows[0], acc[0], accm[0]);
            add_chunk<B>(sums + 2 * kTileInts, s, chunk, p1, rows[0], acc[1], accm[1]);
          }
        }
        for (std::size_t tile = 0; tile < (rows1 > 0 ? 4u : 2u); ++tile) {
          const std::size_t n = n0 + (i + tile % 2) * 16;
          if (n >= a.n_end || i + tile % 2 >= count) continue;
          const std::size_t width = a.n_end - n < 16 ? a.n_end - n : 16;
          for (std::size_t r = 0; r < (tile < 2 ? rows0 : rows1); ++r) {
            __m512 y = _mm512_load_ps(acc[tile] + r * 16);
            if constexpr (S::F::kMin) y = _mm512_add_ps(y, _mm512_load_ps(accm[tile] + r * 16));
            finish(a, t0 + (tile / 2) * kTileRows + r, n, width, y);
          }
        }
      }
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace quipu::backends

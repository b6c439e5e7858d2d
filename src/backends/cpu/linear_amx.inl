// Linear with quantised weights for many rows, on AMX int8: panels of 16 columns are unpacked to tiles, a
// tile of 16 rows of activations is operand A as it lies, and what a panel and a tile of rows make of a slab
// of K is a unit of work. The sums and the chain of linear_quant.inl, so the same bits; only the sums are
// made by tile products (linear_amx_blocks.inl, linear_amx_super.inl).

namespace quipu::backends {
namespace {

constexpr std::size_t kTileRows = 16;  ///< activation rows of a tile
constexpr std::size_t kTileInts = 256;

/// A panel of one thread: B operands of its weights and, of super-blocks, of its minima, and the scales and
/// minima of its 16 columns.
struct AmxPanel {
  std::uint8_t *tiles, *minima;
  GroupScales scales;
};

/// A tile of 16 activation rows: planes, scales by slab [slabs][16], and sums by block of 32 [blocks][16],
/// zeros for rows that are not there.
struct AmxRows {
  const std::int8_t *q, *wide;
  std::size_t stride, wide_stride;
  float *d, *sums;

  const WideSlab* slab(std::size_t i) const { return reinterpret_cast<const WideSlab*>(wide) + i; }
};

/// The 16 x 16 block of a matrix at row t0 and column c0 with rows and columns exchanged.
inline void turned(const float* from, std::size_t width, std::size_t t0, std::size_t rows, std::size_t c0,
                   __m512i (&v)[16]) {
  const __mmask16 there = first(width - c0 < 16 ? width - c0 : 16);
#pragma GCC unroll 16
  for (std::size_t r = 0; r < 16; ++r)
    v[r] = r < rows ? _mm512_maskz_loadu_epi32(there, from + (t0 + r) * width + c0) : _mm512_setzero_si512();
  transpose16(v);
}
/// The rows of a matrix from t0 on as columns: [width][16].
inline void turn_rows(const float* from, std::size_t width, std::size_t t0, std::size_t rows, float* to) {
  __m512i v[16];
  for (std::size_t c = 0; c < width; c += 16) {
    turned(from, width, t0, rows, c, v);
    for (std::size_t i = 0; i < 16 && c + i < width; ++i) _mm512_storeu_si512(to + (c + i) * kTileRows, v[i]);
  }
}
/// A slab of one tile of results: its operands, its blocks, and where its accumulators are.
struct AmxUnit {
  const AmxRows* x;
  const AmxPanel* w;
  std::size_t slab, b0, count;
  float* acc;
};

/// The order of the units of a block of columns and rows: slab by slab, kAmxTogether panels at a time, so
/// that what is read twice stays in L1.
struct AmxOrder {
  const AmxRows* rows;
  const AmxPanel* panels;
  std::size_t panel_count, tiles, blocks, slab_blocks;
  float* acc;
  std::size_t slab = 0, first = 0, tile = 0, panel = 0;

  AmxUnit unit() const {
    const std::size_t p = first + panel, b0 = slab * slab_blocks;
    const std::size_t count = blocks - b0 < slab_blocks ? blocks - b0 : slab_blocks;
    return {&rows[tile], &panels[p], slab, b0, count, acc + (p * kAmxTiles + tile) * kTileInts};
  }
  /// False: there is none.
  bool next() {
    if (++panel < kAmxTogether && first + panel < panel_count) return true;
    panel = 0;
    if (++tile < tiles) return true;
    tile = 0;
    first += kAmxTogether;
    if (first < panel_count) return true;
    first = 0;
    return ++slab * slab_blocks < blocks;
  }
};

/// The minima of a panel as operand B: those of sub-blocks i and i + kSubs / 2 side by side, for both parts
/// of a sum in WideSlab. Their product's even and odd chains are those of sum_minima, exact, so that the
/// order within them does not matter.
template <class B>
inline void put_minima(const AmxPanel& p, std::size_t blocks) {
  constexpr std::size_t subs = B::kBlock / B::kSubWidth, half = subs / 2;
  for (std::size_t b = 0; b < blocks; ++b) {
    const float* m = p.scales.m + b * subs * 16;
    std::uint8_t* to = p.minima + b * kTileBytes;
    for (std::size_t i = 0; i < half; ++i) {  // small integers: the lower halves of the floats are zero
      const __m512i pair = _mm512_or_si512(_mm512_srli_epi32(_mm512_loadu_si512(m + i * 16), 16),
                                           _mm512_loadu_si512(m + (half + i) * 16));
      _mm512_storeu_si512(to + i * 64, pair);
      _mm512_storeu_si512(to + (half + i) * 64, pair);
    }
    for (std::size_t i = subs; i < 16; ++i) _mm512_storeu_si512(to + i * 64, _mm512_setzero_si512());
  }
}
/// The minima of a unit times the sums of its activations, to memory; takes tiles 3, 4 and 6.
template <class B>
inline void multiply_minima(const AmxRows& x, const AmxPanel& w, std::size_t slab, float* to) {
  const std::uint16_t* sums = B::kSubWidth == 32 ? x.slab(slab)->sums32 : x.slab(slab)->sums16;
  _tile_zero(3);
  _tile_loadd(4, sums, x.wide_stride);
  _tile_loadd(6, w.minima + slab * kTileBytes, 64);
  _tile_dpbf16ps(3, 4, 6);
  _tile_stored(3, to, 64);
}

/// `there` rows at `from`, and zeros for those that a tile lacks, at `to`.
inline const std::int8_t* filled_up(std::byte* to, const std::int8_t* from, std::size_t stride,
                                    std::size_t there) {
  __builtin_memset(to, 0, kTileRows * stride);
  __builtin_memcpy(to, from, there * stride);
  return reinterpret_cast<const std::int8_t*>(to);
}

/// Where a thread's scratch goes (linear_scratch): tiles and scales of up to `panels` panels; scales and sums
/// of kAmxTiles tiles of rows; the planes of a tile that lacks rows; accumulators.
struct AmxScratch {
  std::size_t panels;
  std::byte *first_panel, *first_rows, *part;
  std::size_t panel_bytes, rows_bytes;
  float* acc;
};
inline AmxScratch amx_scratch(std::byte* scratch, std::size_t k) {
  AmxScratch s;
  s.panels = amx_panels(k);
  s.panel_bytes = k * kAmxPanelBytes;
  s.rows_bytes = k * 8;
  s.first_panel = scratch;
  s.first_rows = s.first_panel + s.panels * s.panel_bytes;
  s.part = s.first_rows + kAmxTiles * s.rows_bytes;
  s.acc = reinterpret_cast<float*>(s.part + kTileRows * (quantized_stride(k) + wide_stride(k)));
  return s;
}

/// What `finish` reads and writes of a row, while its sums are made.
inline void ask_for_row(const LinearArgs& a, std::size_t t, std::size_t n, std::size_t columns) {
  const std::size_t from = out_row(a, t) * a.n + n;
  for (std::size_t i = 0; i < columns; i += 16) {
    prefetch_far(a.y + from + i);
    if (a.residual != nullptr && a.residual != a.y) prefetch_far(a.residual + from + i);
  }
}

/// The tiles of B's panels and the chains of its units.
template <class B>
struct AmxBlocks;
template <class B>
struct AmxSuper;

template <class B, int slot>
void linear_amx(const LinearArgs& a) {
  using Work = std::conditional_t<B::kScaled, AmxSuper<B>, AmxBlocks<B>>;
  if (a.rows < kAmxRows) return kernels_avx512().linear[slot](a);
  const AmxScratch at = amx_scratch(a.scratch, a.k);
  const QuantizedRows& x = *a.x;
  const std::size_t blocks = a.k / B::kBlock;
  const Ahead ahead(a);
  Work::configure();

  AmxRows rows[kAmxTiles];
  for (std::size_t i = 0; i < kAmxTiles; ++i) {
    rows[i].d = reinterpret_cast<float*>(at.first_rows + i * at.rows_bytes);
    rows[i].sums = rows[i].d + slabs(a.k) * kTileRows;
  }
  for (std::size_t n0 = a.n_begin; n0 < a.n_end; n0 += at.panels * 16) {
    AmxPanel panels[kAmxMaxPanels];
    const std::size_t columns = a.n_end - n0 < at.panels * 16 ? a.n_end - n0 : at.panels * 16;
    const std::size_t count = (columns + 15) / 16;
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* place = at.first_panel + i * at.panel_bytes;
      AmxPanel& p = panels[i];
      p.tiles = reinterpret_cast<std::uint8_t*>(place);
      p.scales.d = reinterpret_cast<float*>(place + a.k * Work::kBytesPerWeight * 16);
      p.scales.m = p.scales.d + blocks * 16;
      if constexpr (B::kBlock == 256) {
        p.scales.minus_dmin = p.scales.m + a.k / B::kSubWidth * 16;
        p.minima = reinterpret_cast<std::uint8_t*>(p.scales.minus_dmin + blocks * 16);
        if constexpr (!B::kScaled) p.scales.fs = reinterpret_cast<float*>(p.minima + blocks * kTileBytes);
      }
      const std::size_t n = n0 + i * 16;
      Rows r;
      rows_set(r, a.weight + n * a.row_bytes, a.row_bytes, a.n_end - n < 16 ? a.n_end - n : 16);
      const auto put = [&](auto... weights) { Work::put(p.tiles, weights...); };
      const std::uint8_t* after = ahead.of(r.p[0]);
      for (std::size_t b = 0; b < blocks; ++b) {
        prefetch_block<B>(after + b * B::kBytes * kGroup);
        B::unpack(r, b * B::kBytes, b, put, p.scales);
      }
      if constexpr (B::kBlock == 256 && B::Format::kMin) put_minima<B>(p, blocks);
    }

    for (std::size_t t0 = 0; t0 < a.rows; t0 += kAmxTiles * kTileRows) {
      const std::size_t left = a.rows - t0;
      const std::size_t rows_here = left < kAmxTiles * kTileRows ? left : kAmxTiles * kTileRows;
      const std::size_t tiles = (rows_here + kTileRows - 1) / kTileRows;
      for (std::size_t i = 0; i < tiles; ++i) {
        const std::size_t t = t0 + i * kTileRows, there = a.rows - t < kTileRows ? a.rows - t : kTileRows;
        AmxRows& r = rows[i];
        r.stride = x.stride, r.q = x.q + t * r.stride;
        if constexpr (B::kBlock == 256) r.wide_stride = wide_stride(a.k), r.wide = x.wide + t * r.wide_stride;
        if (there < kTileRows) {  // a tile always has 16 rows
          r.q = filled_up(at.part, r.q, r.stride, there);
          if constexpr (B::kBlock == 256)
            r.wide = filled_up(at.part + kTileRows * r.stride, r.wide, r.wide_stride, there);
        }
        turn_rows(x.d, slabs(a.k), t, there, r.d);
        if constexpr (B::Format::kMin && B::kBlock == 32) turn_rows(x.fsum, a.k / 32, t, there, r.sums);
      }
      __builtin_memset(at.acc, 0, count * kAmxTiles * kTileBytes);
      for (std::size_t r = 0; r < rows_here; ++r) ask_for_row(a, t0 + r, n0, columns);
      // The tile loads below read what was just stored.
      asm volatile("" ::: "memory");
      Work::run({rows, panels, count, tiles, a.k / Work::kUnitBlock, kSlab / Work::kUnitBlock, at.acc});
      asm volatile("" ::: "memory");

      for (std::size_t r = 0; r < rows_here; ++r)
        for (std::size_t p = 0; p < count; ++p) {
          const std::size_t n = n0 + p * 16, width = a.n_end - n < 16 ? a.n_end - n : 16;
          const float* y = at.acc + (p * kAmxTiles + r / kTileRows) * kTileInts + r % kTileRows * 16;
          finish(a, t0 + r, n, width, _mm512_load_ps(y));
        }
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace quipu::backends

// Linear with quantised weights for many rows, on AMX int8: the panels, the integer sums and the chain of
// linear_quant.inl, so the same bits; only the sums are made by tile products.
//
// Activations are operand A as they lie (a row of QuantizedRows is [lo32 | hi32] a group), a panel is operand
// B. Four-bit weights: one product of 64 bytes a group, [lo | hi] x [w ; 16 w], is the whole sum. Others: a
// product for lo and one for hi, sum = 16 hi + lo.
//
// Per group a tile of sums goes through memory to the vector unit (scale, convert, fma: three operations for
// 16 sums), which bounds the speed: a store takes as long as a product, and beside tile instructions one of
// the two vector ports is gone. So the accumulators of a tile are in registers for a chunk of K, and what two
// panels need of a chunk stays in L1 for kAmxTiles tiles of rows.

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
  static constexpr std::size_t kChunk = 256 / kSub;  ///< sub-blocks between two visits of an accumulator
};

/// A panel of one thread: B operands by sub-block, scales and minima of the 16 columns by sub-block.
struct AmxPanel {
  std::uint8_t* tiles;
  float *d, *m;
};

/// Dword i of every row of a panel to its places in the B tiles, the zero point taken off (unless it is 0 and
/// 16 w needs the unsigned range).
template <class B>
inline void put_dword(std::uint8_t* tiles, std::size_t i, __m512i bytes) {
  using S = AmxShape<B>;
  constexpr std::size_t rows = S::kSub / 4;
  std::uint8_t* to = tiles + i / rows * S::kWeightBytes + i % rows * 64;
  const __m512i w = _mm512_sub_epi8(bytes, _mm512_set1_epi8(static_cast<char>(S::F::kZero)));
  _mm512_storeu_si512(to, w);
  if constexpr (S::kOneProduct)
    _mm512_storeu_si512(to + rows * 64,
                        _mm512_and_si512(_mm512_slli_epi16(w, 4), _mm512_set1_epi8(static_cast<char>(0xf0))));
}

/// A tile of 16 activation rows: planes, and scales (and scaled sums) by sub-block [subs][16], zeros for rows
/// that are not there.
struct AmxRows {
  const std::int8_t* q;
  std::size_t stride;
  float *d, *dsum;
};

/// The 16 x 16 block of a matrix at row t0 and column c0 with rows and columns exchanged.
template <class T>
inline void turned(const T* from, std::size_t width, std::size_t t0, std::size_t rows, std::size_t c0,
                   __m512i (&v)[16]) {
  const __mmask16 there = first(width - c0 < 16 ? width - c0 : 16);
#pragma GCC unroll 16
  for (std::size_t r = 0; r < 16; ++r)
    v[r] = r < rows ? _mm512_maskz_loadu_epi32(there, from + (t0 + r) * width + c0) : _mm512_setzero_si512();
  transpose16(v);
}
template <class B>
void gather_scales(const LinearArgs& a, std::size_t t0, std::size_t rows, const AmxRows& to) {
  using S = AmxShape<B>;
  const QuantizedRows& x = *a.x;
  const std::size_t groups = a.k / 32, subs = a.k / S::kSub;
  __m512i v[16];
  for (std::size_t g = 0; g < groups; g += 16) {
    turned(x.d, groups, t0, rows, g, v);
    const std::size_t count = groups - g < 16 ? groups - g : 16;
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < S::kSubsPerGroup; ++j)
        _mm512_storeu_si512(to.d + ((g + i) * S::kSubsPerGroup + j) * kTileRows, v[i]);
  }
  if constexpr (S::F::kMin) {
    for (std::size_t s = 0; s < subs; s += 16) {
      const std::size_t count = subs - s < 16 ? subs - s : 16;
      if constexpr (S::kSub == 32)
        turned(x.dsum, groups, t0, rows, s, v);
      else
        turned(x.sum16, subs, t0, rows, s, v);
      for (std::size_t i = 0; i < count; ++i) {
        __m512 sum = _mm512_castsi512_ps(v[i]);
        if constexpr (S::kSub == 16)
          sum = _mm512_mul_ps(_mm512_loadu_ps(to.d + (s + i) * kTileRows), _mm512_cvtepi32_ps(v[i]));
        _mm512_storeu_ps(to.dsum + (s + i) * kTileRows, sum);
      }
    }
  }
}

/// A chunk of sub-blocks of one tile of results: its operands, and where its accumulators are.
struct AmxUnit {
  const AmxRows* x;
  const AmxPanel* w;
  std::size_t s0, count;
  float *acc, *accm;
};

// Tiles are named in the instruction, so what takes turns stands twice.
template <bool unsigned_weights>
inline void one_product_even(const std::int8_t* x, std::size_t stride, const std::uint8_t* w,
                             std::int32_t* out) {
  _tile_zero(0);
  _tile_loadd(4, x, stride);
  _tile_loadd(6, w, 64);
  if constexpr (unsigned_weights)
    _tile_dpbsud(0, 4, 6);
  else
    _tile_dpbssd(0, 4, 6);
  _tile_stored(0, out, 64);
}
template <bool unsigned_weights>
inline void one_product_odd(const std::int8_t* x, std::size_t stride, const std::uint8_t* w,
                            std::int32_t* out) {
  _tile_zero(1);
  _tile_loadd(5, x, stride);
  _tile_loadd(7, w, 64);
  if constexpr (unsigned_weights)
    _tile_dpbsud(1, 5, 7);
  else
    _tile_dpbssd(1, 5, 7);
  _tile_stored(1, out, 64);
}
/// Sums with lo, then those with hi.
inline void two_products_even(const std::int8_t* lo, std::size_t stride, const std::uint8_t* w,
                              std::int32_t* out) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_loadd(6, w, 64);
  _tile_loadd(4, lo, stride);
  _tile_dpbssd(0, 4, 6);
  _tile_loadd(5, lo + 32, stride);
  _tile_dpbssd(1, 5, 6);
  _tile_stored(0, out, 64);
  _tile_stored(1, out + kTileInts, 64);
}
inline void two_products_odd(const std::int8_t* lo, std::size_t stride, const std::uint8_t* w,
                             std::int32_t* out) {
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(7, w, 64);
  _tile_loadd(4, lo, stride);
  _tile_dpbssd(2, 4, 7);
  _tile_loadd(5, lo + 32, stride);
  _tile_dpbssd(3, 5, 7);
  _tile_stored(2, out, 64);
  _tile_stored(3, out + kTileInts, 64);
}

constexpr std::size_t kRing = 4;       ///< sub-blocks whose sums are in memory at a time
constexpr std::size_t kSumsAhead = 2;  ///< so many sub-blocks are multiplied before one is added up

/// The sums of sub-block s of a unit, to memory. `at`: sub-blocks multiplied so far, which says whose turn it
/// is.
template <class B>
inline void make_sums(const AmxUnit& u, std::size_t s, std::size_t at, std::int32_t* out) {
  using S = AmxShape<B>;
  const std::uint8_t* w = u.w->tiles + s * S::kWeightBytes;
  if constexpr (S::kOneProduct) {
    const std::int8_t* x = u.x->q + s * 64;
    if (at % 2 == 0)
      one_product_even<S::F::kZero == 0>(x, u.x->stride, w, out);
    else
      one_product_odd<S::F::kZero == 0>(x, u.x->stride, w, out);
  } else {
    const std::int8_t* lo = u.x->q + s / S::kSubsPerGroup * 64 + s % S::kSubsPerGroup * S::kSub;
    if (at % 2 == 0)
      two_products_even(lo, u.x->stride, w, out);
    else
      two_products_odd(lo, u.x->stride, w, out);
  }
}

/// The order of the units of a block of columns and rows: chunk by chunk of K, so that what two panels need
/// of it stays in L1 for all tiles of rows.
struct AmxOrder {
  const AmxRows* rows;
  const AmxPanel* panels;
  std::size_t panel_count, tiles, subs, chunk;
  float *acc, *accm;
  std::size_t c = 0, pair = 0, tile = 0, half = 0;

  AmxUnit unit() const {
    const std::size_t p = pair * 2 + half, s0 = c * chunk, place = (p * kAmxTiles + tile) * kTileInts;
    const std::size_t count = subs - s0 < chunk ? subs - s0 : chunk;
    return {&rows[tile], &panels[p], s0, count, acc + place, accm + place};
  }
  /// False: there is none.
  bool next() {
    if (half == 0 && pair * 2 + 1 < panel_count) {
      half = 1;
      return true;
    }
    half = 0;
    if (++tile < tiles) return true;
    tile = 0;
    if (++pair < (panel_count + 1) / 2) return true;
    pair = 0;
    return ++c * chunk < subs;
  }
};

/// The sums of all sub-blocks in order, made kSumsAhead before they are taken.
template <class B>
struct AmxSums {
  AmxOrder order;
  std::int32_t* ring;
  AmxUnit unit = order.unit();
  std::size_t s = 0, made = 0, taken = 0;
  bool done = false;

  std::int32_t* place(std::size_t at) const { return ring + at % kRing * 2 * kTileInts; }
  /// Those of the next sub-block, good until the next call.
  const std::int32_t* take() {
    make();
    return place(taken++);
  }
  void make() {
    if (done) return;
    make_sums<B>(unit, unit.s0 + s, made, place(made));
    ++made;
    if (++s < unit.count) return;
    s = 0;
    done = !order.next();
    if (!done) unit = order.unit();
  }
};

/// The chain of a unit's accumulators [16 rows][16 columns]. Later sums are made meanwhile, so that tiles and
/// the vector unit do not wait for each other.
template <class B>
inline void add_unit(const AmxUnit& u, AmxSums<B>& sums) {
  using S = AmxShape<B>;
  __m512 y[kTileRows];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kTileRows; ++r) y[r] = _mm512_load_ps(u.acc + r * 16);
  for (std::size_t i = 0; i < u.count; ++i) {
    const std::int32_t* sum = sums.take();
    const float* dx = u.x->d + (u.s0 + i) * kTileRows;
    const __m512 dw = _mm512_loadu_ps(u.w->d + (u.s0 + i) * 16);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kTileRows; ++r) {
      __m512i v = _mm512_load_si512(sum + r * 16);
      if constexpr (!S::kOneProduct)
        v = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(sum + kTileInts + r * 16), 4), v);
      y[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_mul_ps(dw, _mm512_set1_ps(dx[r])), y[r]);
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kTileRows; ++r) _mm512_store_ps(u.acc + r * 16, y[r]);
  if constexpr (S::F::kMin) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kTileRows; ++r) y[r] = _mm512_load_ps(u.accm + r * 16);
    for (std::size_t i = 0; i < u.count; ++i) {
      const float* dsum = u.x->dsum + (u.s0 + i) * kTileRows;
      const __m512 mw = _mm512_loadu_ps(u.w->m + (u.s0 + i) * 16);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kTileRows; ++r) y[r] = _mm512_fmadd_ps(mw, _mm512_set1_ps(dsum[r]), y[r]);
    }
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kTileRows; ++r) _mm512_store_ps(u.accm + r * 16, y[r]);
  }
}

/// Where a thread's scratch goes (linear_scratch): tiles and scales of up to `panels` panels; scales of
/// kAmxTiles tiles of rows; the planes of a tile that lacks rows; accumulators.
struct AmxScratch {
  std::size_t panels;
  std::byte *first_panel, *first_rows, *part;
  std::size_t panel_bytes, rows_bytes;
  float *acc, *accm;
};
inline AmxScratch amx_scratch(std::byte* scratch, std::size_t k) {
  AmxScratch s;
  s.panels = amx_panels(k);
  s.panel_bytes = k * 40;
  s.rows_bytes = k * 8;
  s.first_panel = scratch;
  s.first_rows = s.first_panel + s.panels * s.panel_bytes;
  s.part = s.first_rows + kAmxTiles * s.rows_bytes;
  s.acc = reinterpret_cast<float*>(s.part + kTileRows * 2 * k);
  s.accm = s.acc + kAmxMaxPanels * kAmxTiles * kTileInts;
  return s;
}

template <class B>
void configure_int8() {
  using S = AmxShape<B>;
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.column_bytes[i] =
        i == 4 || i == 5 ? (S::kOneProduct ? 64 : static_cast<std::uint16_t>(S::kSub)) : 64;
    config.rows[i] = i < 6 ? 16 : static_cast<std::uint8_t>(S::kWeightRows);
  }
  load_config(config);
}

template <class B, int slot>
void linear_amx(const LinearArgs& a) {
  using S = AmxShape<B>;
  if (a.rows < kAmxRows) return kernels_avx512().linear[slot](a);
  const AmxScratch at = amx_scratch(a.scratch, a.k);
  const std::size_t subs = a.k / S::kSub;
  alignas(64) std::int32_t ring[kRing * 2 * kTileInts];
  configure_int8<B>();

  AmxRows rows[kAmxTiles];
  for (std::size_t i = 0; i < kAmxTiles; ++i) {
    rows[i].d = reinterpret_cast<float*>(at.first_rows + i * at.rows_bytes);
    rows[i].dsum = rows[i].d + subs * kTileRows;
  }
  for (std::size_t n0 = a.n_begin; n0 < a.n_end; n0 += at.panels * 16) {
    AmxPanel panels[kAmxMaxPanels];
    const std::size_t columns = a.n_end - n0 < at.panels * 16 ? a.n_end - n0 : at.panels * 16;
    const std::size_t count = (columns + 15) / 16;
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* place = at.first_panel + i * at.panel_bytes;
      auto* d = reinterpret_cast<float*>(place + a.k * 32);
      const AmxPanel& p = panels[i] = {reinterpret_cast<std::uint8_t*>(place), d, d + a.k / 16 * 16};
      const std::size_t n = n0 + i * 16;
      Rows r;
      rows_set(r, a.weight + n * a.row_bytes, a.row_bytes, a.n_end - n < 16 ? a.n_end - n : 16);
      const auto put = [&](std::size_t dword, Q bytes) { put_dword<B>(p.tiles, dword, bytes); };
      for (std::size_t b = 0; b < a.k / B::kBlock; ++b) B::unpack(r, b * B::kBytes, b, put, p.d, p.m);
    }

    for (std::size_t t0 = 0; t0 < a.rows; t0 += kAmxTiles * kTileRows) {
      const std::size_t left = a.rows - t0;
      const std::size_t tiles = left < kAmxTiles * kTileRows ? (left + 15) / 16 : kAmxTiles;
      for (std::size_t i = 0; i < tiles; ++i) {
        const std::size_t t = t0 + i * kTileRows, there = a.rows - t < kTileRows ? a.rows - t : kTileRows;
        rows[i].q = a.x->q + t * a.x->stride;
        rows[i].stride = a.x->stride;
        if (there < kTileRows) {  // a tile always has 16 rows
          __builtin_memset(at.part, 0, kTileRows * 2 * a.k);
          for (std::size_t r = 0; r < there; ++r)
            __builtin_memcpy(at.part + r * 2 * a.k, rows[i].q + r * a.x->stride, 2 * a.k);
          rows[i].q = reinterpret_cast<const std::int8_t*>(at.part);
          rows[i].stride = 2 * a.k;
        }
        gather_scales<B>(a, t, there, rows[i]);
      }
      __builtin_memset(at.acc, 0, count * kAmxTiles * kTileBytes);
      if constexpr (S::F::kMin) __builtin_memset(at.accm, 0, count * kAmxTiles * kTileBytes);
      // The tile loads below read what was just stored.
      asm volatile("" ::: "memory");

      AmxOrder order{rows, panels, count, tiles, subs, S::kChunk, at.acc, at.accm};
      AmxSums<B> sums{order, ring};
      for (std::size_t i = 0; i < kSumsAhead; ++i) sums.make();
      do add_unit<B>(order.unit(), sums);
      while (order.next());
      asm volatile("" ::: "memory");

      for (std::size_t tile = 0; tile < tiles; ++tile)
        for (std::size_t p = 0; p < count; ++p) {
          const std::size_t t = t0 + tile * kTileRows, n = n0 + p * 16,
                            place = (p * kAmxTiles + tile) * kTileInts;
          const std::size_t there = a.rows - t < kTileRows ? a.rows - t : kTileRows;
          const std::size_t width = a.n_end - n < 16 ? a.n_end - n : 16;
          for (std::size_t r = 0; r < there; ++r) {
            __m512 y = _mm512_load_ps(at.acc + place + r * 16);
            if constexpr (S::F::kMin) y = _mm512_add_ps(y, _mm512_load_ps(at.accm + place + r * 16));
            finish(a, t + r, n, width, y);
          }
        }
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace quipu::backends

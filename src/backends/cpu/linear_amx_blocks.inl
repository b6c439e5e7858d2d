// Blocks of 32, and the sub-blocks of Q4_K, on AMX int8 (linear_amx.inl). Four-bit weights: one product of 64
// bytes a block, [lo | hi] x [w ; 16 w], is the whole sum. Others: a product for lo and one for hi, sum = 16
// hi + lo.
//
// Per block a tile of sums goes through memory to the vector unit (convert, fma: two operations for 16 sums),
// which bounds the speed: a store takes as long as a product, and beside tile instructions one of the two
// vector ports is gone. So the accumulators of a tile are in registers for a slab of K.

namespace quipu::backends {
namespace {

/// How a format's tiles are shaped.
template <class F>
struct AmxShape {
  static constexpr bool kOneProduct = F::kMost == 15;
  static constexpr std::size_t kWeightRows = kOneProduct ? 16 : 8;  ///< of a B tile, 64 bytes each
  static constexpr std::size_t kTileBytes = kWeightRows * 64;
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
constexpr std::size_t kSlabSubs = kSlab / 32;

/// The sums of sub-block s of a unit, to place `at` of the ring.
template <class F>
[[gnu::always_inline]] inline void make_sums(const AmxUnit& u, std::size_t s, std::size_t at,
                                             std::int32_t* ring) {
  using S = AmxShape<F>;
  const std::uint8_t* w = u.w->tiles + (u.b0 + s) * S::kTileBytes;
  const std::int8_t* x = u.x->q + (u.b0 + s) * 64;
  std::int32_t* out = ring + at % kRing * 2 * kTileInts;
  if constexpr (S::kOneProduct) {
    if (at % 2 == 0)
      one_product_even<F::kZero == 0>(x, u.x->stride, w, out);
    else
      one_product_odd<F::kZero == 0>(x, u.x->stride, w, out);
  } else {
    if (at % 2 == 0)
      two_products_even(x, u.x->stride, w, out);
    else
      two_products_odd(x, u.x->stride, w, out);
  }
}

/// All units of an order, whose sub-blocks are multiplied kSumsAhead before they are added up, so that tiles
/// and the vector unit do not wait for each other. Chain: begins with a unit, takes the sums of its
/// sub-blocks by `add`, and puts what it has to the unit's accumulators by `finish`.
template <class F, class Chain>
void add_units(AmxOrder order) {
  alignas(64) std::int32_t ring[kRing * 2 * kTileInts];
  alignas(64) float minima[kTileInts];  // apart from the chain, which is to be in registers
  AmxUnit u = order.unit();
  std::size_t at = 0;    // the ring's place of sub-block 0
  std::size_t made = 0;  // sub-blocks of the unit that are multiplied
  for (; made < kSumsAhead && made < u.count; ++made) make_sums<F>(u, made, made, ring);
  for (bool more = true; more;) {
    more = order.next();
    AmxUnit next = u;
    next.count = 0;
    if (more) next = order.unit();
    std::size_t ahead = 0;
    Chain chain(u, minima);
    if (u.count == kSlabSubs) {  // these come first, so that `at` is 0
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kSlabSubs; ++i) {
        if (i + kSumsAhead < kSlabSubs)
          make_sums<F>(u, i + kSumsAhead, i + kSumsAhead, ring);
        else if (ahead < next.count)
          make_sums<F>(next, i + kSumsAhead - kSlabSubs, i + kSumsAhead, ring), ++ahead;
        chain.add(i, ring + i % kRing * 2 * kTileInts);
      }
    } else {
      for (std::size_t i = 0; i < u.count; ++i) {
        if (made < u.count)
          make_sums<F>(u, made, at + made, ring), ++made;
        else if (ahead < kSumsAhead && ahead < next.count)
          make_sums<F>(next, ahead, at + u.count + ahead, ring), ++ahead;
        chain.add(i, ring + (at + i) % kRing * 2 * kTileInts);
      }
      at += u.count;
    }
    chain.finish();
    u = next;
    made = ahead;
  }
}

/// A slab of a tile of results, in registers: sums times scales, then the factors (and, of super-blocks, the
/// minima).
template <class B>
struct AmxChain {
  using F = typename B::Format;
  const AmxUnit& u;
  float* minima;
  __m512 y[kTileRows];

  [[gnu::always_inline]] AmxChain(const AmxUnit& unit, float* place) : u(unit), minima(place) {
    if constexpr (B::kBlock == 256) multiply_minima<B>(*u.x, *u.w, u.slab, minima);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kTileRows; ++r) y[r] = _mm512_setzero_ps();
  }
  [[gnu::always_inline]] void add(std::size_t i, const std::int32_t* sum) {
    const float* scales = B::kBlock == 32 ? u.w->scales.d : u.w->scales.fs;
    const __m512 scale = _mm512_loadu_ps(scales + (u.b0 + i) * 16);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kTileRows; ++r) {
      __m512i v = _mm512_load_si512(sum + r * 16);
      if constexpr (!AmxShape<F>::kOneProduct)
        v = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(sum + kTileInts + r * 16), 4), v);
      y[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), scale, y[r]);
    }
    if constexpr (B::kBlock == 32 && F::kMin) {
      const float* x = u.x->sums + (u.b0 + i) * kTileRows;
      const __m512 m = _mm512_loadu_ps(u.w->scales.m + (u.b0 + i) * 16);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kTileRows; ++r) y[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(x[r]), y[r]);
    }
  }
  [[gnu::always_inline]] void finish() {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kTileRows; ++r) {
      const __m512 dx = _mm512_set1_ps(u.x->d[u.slab * kTileRows + r]);
      __m512 acc = _mm512_load_ps(u.acc + r * 16);
      if constexpr (B::kBlock == 32) {
        acc = _mm512_fmadd_ps(y[r], dx, acc);
      } else {
        const __m512 d = _mm512_loadu_ps(u.w->scales.d + u.slab * 16);
        const __m512 minus_dmin = _mm512_loadu_ps(u.w->scales.minus_dmin + u.slab * 16);
        acc = _mm512_fmadd_ps(y[r], _mm512_mul_ps(d, dx), acc);
        acc = _mm512_fmadd_ps(_mm512_load_ps(minima + r * 16), _mm512_mul_ps(minus_dmin, dx), acc);
      }
      _mm512_store_ps(u.acc + r * 16, acc);
    }
  }
};

/// Formats whose scales are apart from their weights.
template <class B>
struct AmxBlocks {
  using F = typename B::Format;
  using S = AmxShape<F>;
  static constexpr std::size_t kUnitBlock = 32;
  static constexpr std::size_t kBytesPerWeight = S::kTileBytes / 512;  ///< in a panel's tiles

  static void configure() {
    TileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.column_bytes[i] = (i == 4 || i == 5) && !S::kOneProduct ? 32 : 64;
      config.rows[i] = i < 6 ? 16 : static_cast<std::uint8_t>(S::kWeightRows);
    }
    load_config(config);
  }
  /// Dword i of every row of a panel to its places in the tiles, the zero point taken off (unless it is 0 and
  /// 16 w needs the unsigned range).
  template <class... Scale>
  static void put(std::uint8_t* tiles, std::size_t i, __m512i bytes, Scale...) {
    std::uint8_t* to = tiles + i / 8 * S::kTileBytes + i % 8 * 64;
    const __m512i w = _mm512_sub_epi8(bytes, _mm512_set1_epi8(static_cast<char>(F::kZero)));
    _mm512_storeu_si512(to, w);
    if constexpr (S::kOneProduct)
      _mm512_storeu_si512(
          to + 8 * 64, _mm512_and_si512(_mm512_slli_epi16(w, 4), _mm512_set1_epi8(static_cast<char>(0xf0))));
  }
  static void run(AmxOrder order) { add_units<F, AmxChain<B>>(order); }
};

}  // namespace
}  // namespace quipu::backends

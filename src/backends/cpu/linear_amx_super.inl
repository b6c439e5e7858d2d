// Super-blocks whose weights are summed up times their scales, on AMX int8 (linear_amx.inl). Weights times
// the scales of their sub-blocks are integers w of up to 13 bits and a sign, which stand in one byte or as w
// = base p + r in two; with activations 16 h + l the sum of a whole super-block is
//
//     r l + 16 r h + base p l + 16 base p h
//
// in up to four tiles of sums, which go to the vector unit once. A product takes 64 values, so activations
// are read from QuantizedRows::wide.

namespace quipu::backends {
namespace {

/// How the integers of a format are written as bytes.
template <class F>
struct AmxDigits {
  static constexpr int kMost = F::kMostScaled;
  /// -w instead of w: of 128 and -124 only -128 and 124 fit a byte.
  static constexpr bool kNegated = kMost == 128;
  static constexpr bool kTwo = kMost > 128;
  static constexpr bool kSigned = F::kZero != 0;
  static constexpr int kBaseBits = kSigned ? 5 : 4;
  /// Tiles of sums: those of 16 r h and 16 p l are one where the base is 16.
  static constexpr std::size_t kSums = !kTwo ? 2 : kBaseBits == 4 ? 3 : 4;
  static_assert(kMost <= 4096 && (kSigned || kMost < 128 * 16));
};

/// Words (elements 0 and 2, 1 and 3 of a dword) as bytes.
inline __m512i packed(__m512i even, __m512i odd) {
  return _mm512_or_si512(_mm512_and_si512(even, _mm512_set1_epi16(0xff)), _mm512_slli_epi16(odd, 8));
}

template <class B>
struct AmxSuper {
  using F = typename B::Format;
  using D = AmxDigits<F>;
  static constexpr std::size_t kUnitBlock = 256;
  static constexpr std::size_t kBytesPerWeight = D::kTwo ? 2 : 1;     ///< in a panel's tiles
  static constexpr std::size_t kTilesBytes = kBytesPerWeight * 1024;  ///< of 64 values of a panel

  static void configure() {
    TileConfig config;
    for (int i = 0; i < 8; ++i) config.column_bytes[i] = 64, config.rows[i] = 16;
    load_config(config);
  }

  /// Dword i of every row of a panel, times the scales of its sub-block.
  static void put(std::uint8_t* tiles, std::size_t i, __m512i bytes, __m512i scale) {
    __m512i even, odd;
    ManyRows::spread<F>(bytes, scale, even, odd);
    if constexpr (D::kNegated) {
      even = _mm512_sub_epi16(_mm512_setzero_si512(), even);
      odd = _mm512_sub_epi16(_mm512_setzero_si512(), odd);
    }
    std::uint8_t* to = tiles + i / 16 * kTilesBytes + i % 16 * 64;
    if constexpr (!D::kTwo) {
      _mm512_storeu_si512(to, packed(even, odd));
      return;
    }
    const auto high = [](__m512i w) {
      if constexpr (!D::kSigned) return _mm512_srli_epi16(w, D::kBaseBits);
      // 4096 is 127 * 32 + 32.
      return _mm512_min_epi16(
          _mm512_srai_epi16(_mm512_add_epi16(w, _mm512_set1_epi16(1 << (D::kBaseBits - 1))), D::kBaseBits),
          _mm512_set1_epi16(127));
    };
    const __m512i even_high = high(even), odd_high = high(odd);
    _mm512_storeu_si512(to, packed(_mm512_sub_epi16(even, _mm512_slli_epi16(even_high, D::kBaseBits)),
                                   _mm512_sub_epi16(odd, _mm512_slli_epi16(odd_high, D::kBaseBits))));
    _mm512_storeu_si512(to + 1024, packed(even_high, odd_high));
  }

  /// The products of 64 values.
  static void multiply(const std::int8_t* x, std::size_t stride, const std::uint8_t* w) {
    _tile_loadd(6, w, 64);
    _tile_loadd(4, x, stride);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(5, x + 64, stride);
    _tile_dpbssd(1, 5, 6);
    if constexpr (D::kTwo) {
      _tile_loadd(7, w + 1024, 64);
      if constexpr (D::kSums == 3)
        _tile_dpbssd(1, 4, 7);
      else
        _tile_dpbssd(3, 4, 7);
      _tile_dpbssd(2, 5, 7);
    }
  }
  /// Adds rows [4 quarter, 4 quarter + 4) of the sums of a unit to its accumulators.
  static void add_rows(const AmxUnit& u, const std::int32_t* sums, std::size_t quarter) {
    const __m512 d = _mm512_loadu_ps(u.w->scales.d + u.slab * 16);
#pragma GCC unroll 4
    for (std::size_t r = 4 * quarter; r < 4 * quarter + 4; ++r) {
      const auto part = [&](std::size_t i) { return _mm512_load_si512(sums + i * kTileInts + r * 16); };
      __m512i v = _mm512_add_epi32(part(0), _mm512_slli_epi32(part(1), 4));
      if constexpr (D::kSums == 4) v = _mm512_add_epi32(v, _mm512_slli_epi32(part(3), D::kBaseBits));
      if constexpr (D::kTwo) v = _mm512_add_epi32(v, _mm512_slli_epi32(part(2), 4 + D::kBaseBits));
      if constexpr (D::kNegated) v = _mm512_sub_epi32(_mm512_setzero_si512(), v);
      const __m512 dx = _mm512_set1_ps(u.x->d[u.slab * kTileRows + r]);
      __m512 y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_mul_ps(d, dx), _mm512_load_ps(u.acc + r * 16));
      if constexpr (F::kMin) {
        const __m512 minus = _mm512_mul_ps(_mm512_loadu_ps(u.w->scales.minus_dmin + u.slab * 16), dx);
        y = _mm512_fmadd_ps(_mm512_castsi512_ps(part(D::kSums)), minus, y);
      }
      _mm512_store_ps(u.acc + r * 16, y);
    }
  }

  /// While a unit is multiplied the vector unit adds up the one before it.
  static void run(AmxOrder order) {
    alignas(64) std::int32_t sums[2][(D::kSums + (F::kMin ? 1 : 0)) * kTileInts];
    AmxUnit before{};
    for (std::size_t at = 0;; ++at) {
      const AmxUnit u = order.unit();
      const WideSlab* x = u.x->slab(u.slab);
      const std::uint8_t* w = u.w->tiles + u.slab * 4 * kTilesBytes;
      _tile_zero(0);
      _tile_zero(1);
      if constexpr (D::kTwo) _tile_zero(2);
      if constexpr (D::kSums == 4) _tile_zero(3);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i) {
        multiply(x->planes[i].low, u.x->wide_stride, w + i * kTilesBytes);
        if (at > 0) add_rows(before, sums[(at + 1) % 2], i);
      }
      std::int32_t* to = sums[at % 2];
      if constexpr (F::kMin) {
        static_assert(D::kSums <= 3);
        multiply_minima<B>(*u.x, *u.w, u.slab, reinterpret_cast<float*>(to + D::kSums * kTileInts));
      }
      _tile_stored(0, to, 64);
      _tile_stored(1, to + kTileInts, 64);
      if constexpr (D::kTwo) _tile_stored(2, to + 2 * kTileInts, 64);
      if constexpr (D::kSums == 4) _tile_stored(3, to + 3 * kTileInts, 64);
      before = u;
      if (order.next()) continue;
      for (std::size_t i = 0; i < 4; ++i) add_rows(before, to, i);
      return;
    }
  }
};

}  // namespace
}  // namespace quipu::backends

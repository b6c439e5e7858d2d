// Attention on AMX tiles, for one query row as for many: products of bfloat16 planes, summed as
// docs/numerics.md says. Dimensions and positions come in blocks of 32, held as 16 pairs of the elements n
// and n + 16, so that nothing is shuffled to make a pair.
//
// Scores of many rows: queries are operand A, keys, turned once a span, operand B. Scores of few rows: keys
// are operand A as they come and the turned queries B; the sums are turned instead. The bits are the same.

namespace quipu::backends {
namespace {

/// Query rows from which on keys are turned instead of sums.
constexpr std::size_t kTurnedKeysRows = 64;

/// The two bfloat16 planes of 32 floats, as pairs.
struct Planes {
  __m512i hi, lo;
};
/// A dword is the upper halves of a (below) and b.
inline __m512i pair_upper(__m512 a, __m512 b) {
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(a), 16), _mm512_castps_si512(b),
                                   _mm512_set1_epi32(static_cast<int>(0xffff0000)), 0xf8);
}
inline __m512 upper(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}
/// Queries and weights: the first plane to nearest.
inline Planes round_planes(V16 a, V16 b) {
  const __m512 ha = from_bf16(to_bf16(a.v)), hb = from_bf16(to_bf16(b.v));
  return {pair_upper(ha, hb), pair_upper(_mm512_sub_ps(a.v, ha), _mm512_sub_ps(b.v, hb))};
}
/// Keys and values: both cut, which loses nothing of a half.
inline Planes cut_planes(V16 a, V16 b) {
  return {pair_upper(a.v, b.v), pair_upper(_mm512_sub_ps(a.v, upper(a.v)), _mm512_sub_ps(b.v, upper(b.v)))};
}

/// C (tiles 0 to 3) = sum over `blocks`, ascending, of x_hi y_hi + x_lo y_hi + x_hi y_lo, with x
/// [block][plane] shared by the four and y [block][4][plane] their own. `turned`: y is operand A. Not `both`:
/// y_lo is zero.
template <bool turned>
inline void products_of_four(const std::byte* x, const std::byte* y, std::size_t blocks, bool both,
                             float* out) {
  asm volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::size_t b = 0; b < blocks; ++b, x += 2 * kTileBytes, y += 8 * kTileBytes) {
    _tile_loadd(4, x, 64);
    _tile_loadd(5, x + kTileBytes, 64);
    _tile_loadd(6, y, 64);
    _tile_loadd(7, y + 2 * kTileBytes, 64);
    if constexpr (turned) {
      _tile_dpbf16ps(0, 6, 4);
      _tile_dpbf16ps(1, 7, 4);
      _tile_dpbf16ps(0, 6, 5);
      _tile_dpbf16ps(1, 7, 5);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(0, 5, 6);
      _tile_dpbf16ps(1, 5, 7);
    }
    _tile_loadd(6, y + 4 * kTileBytes, 64);
    _tile_loadd(7, y + 6 * kTileBytes, 64);
    if constexpr (turned) {
      _tile_dpbf16ps(2, 6, 4);
      _tile_dpbf16ps(3, 7, 4);
      _tile_dpbf16ps(2, 6, 5);
      _tile_dpbf16ps(3, 7, 5);
    } else {
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(3, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    if (!both) continue;
    _tile_loadd(6, y + kTileBytes, 64);
    _tile_loadd(7, y + 3 * kTileBytes, 64);
    if constexpr (turned) {
      _tile_dpbf16ps(0, 6, 4);
      _tile_dpbf16ps(1, 7, 4);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_loadd(6, y + 5 * kTileBytes, 64);
    _tile_loadd(7, y + 7 * kTileBytes, 64);
    if constexpr (turned) {
      _tile_dpbf16ps(2, 6, 4);
      _tile_dpbf16ps(3, 7, 4);
    } else {
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  _tile_stored(0, out, 64);
  _tile_stored(1, out + 256, 64);
  _tile_stored(2, out + 512, 64);
  _tile_stored(3, out + 768, 64);
  asm volatile("" ::: "memory");
}

/// 16 rows of pairs as a tile, `turned`: rows and pairs exchanged.
inline void store_tile(std::byte* tile, __m512i (&rows)[16], bool turned) {
  if (turned) transpose16(rows);
  for (std::size_t i = 0; i < 16; ++i) _mm512_store_si512(tile + 64 * i, rows[i]);
}

class TileWalk : public SpanWalk<TileWalk> {
 public:
  explicit TileWalk(const AttentionArgs& a)
      : SpanWalk(a),
        blocks_((a.head_dim + 31) / 32),
        fours_((a.v_dim + 63) / 64),
        turned_keys_(rows_ >= kTurnedKeysRows) {
    const auto tiles = [&](std::size_t count) {
      return reinterpret_cast<std::byte*>(take(count * kTileBytes / sizeof(float)));
    };
    const std::size_t row_blocks = (rows_ + 15) / 16;
    queries_ = tiles(row_blocks * blocks_ * 2);
    keys_ = tiles(blocks_ * 8);
    values_ = tiles(fours_ * 16);
    weights_ = tiles(4);
    floats_ = take(kSpan * (wide(a.head_dim) > wide(a.v_dim) ? wide(a.head_dim) : wide(a.v_dim)));
    sums_ = take(1024);
    TileConfig config;
    for (int i = 0; i < 8; ++i) config.rows[i] = 16, config.column_bytes[i] = 64;
    load_config(config);
    for (std::size_t i = 0; i < row_blocks; ++i) pack_queries(i);
  }
  ~TileWalk() { _tile_release(); }
  TileWalk(const TileWalk&) = delete;
  TileWalk& operator=(const TileWalk&) = delete;

  void attend(const Span& span) {
    SpanArgs s = span_args(span);
    load_floats(a_.k_type, span.k, a_.k_row_bytes, a_.head_dim, span.from, span.to);
    pack_keys();
    ask_for(s.next_k, s.next_bytes_k, 0, 1);
    load_floats(a_.v_type, span.v, a_.v_row_bytes, a_.v_dim, span.from, span.to);
    ask_for(s.next_v, s.next_bytes_v, 0, 1);
    const bool finite = pack_values(0, kSpan);
    for (std::size_t r = 0; r < rows_; r += 16) {
      const std::size_t count = rows_ - r < 16 ? rows_ - r : 16;
      weigh(s, span, r, count);
      if (finite) {
        add_values(r, 0, count);
        continue;
      }
      // An infinity that a row does not see must not meet its weight of zero.
      for (std::size_t i = 0; i < count; ++i)
        if (seen_[i]) {
          pack_values(lo_[i], hi_[i]);
          add_values(r, i, i + 1);
        }
    }
  }

 private:
  static std::size_t wide(std::size_t n) { return (n + 63) / 64 * 64; }

  void pack_queries(std::size_t block) {
    for (std::size_t b = 0; b < blocks_; ++b) {
      __m512i hi[16], lo[16];
      for (std::size_t i = 0; i < 16; ++i) {
        const std::size_t r = 16 * block + i;
        V16 x[2] = {set1(0), set1(0)};
        for (std::size_t half = 0; half < 2 && r < rows_; ++half) {
          const std::size_t e = 32 * b + 16 * half;
          if (e < a_.head_dim) x[half] = load_part(query(r) + e, a_.head_dim - e < 16 ? a_.head_dim - e : 16);
        }
        const Planes p = round_planes(x[0], x[1]);
        hi[i] = p.hi, lo[i] = p.lo;
      }
      std::byte* to = queries_ + (block * blocks_ + b) * 2 * kTileBytes;
      store_tile(to, hi, !turned_keys_);
      store_tile(to + kTileBytes, lo, !turned_keys_);
    }
  }

  /// The rows of a span as floats; zeros where nobody looks.
  void load_floats(KvType type, const std::byte* rows, std::size_t row_bytes, std::size_t n, std::size_t from,
                   std::size_t to) {
    for (std::size_t j = 0; j < kSpan; ++j) {
      float* x = floats_ + j * wide(n);
      std::size_t i = 0;
      if (j >= from && j < to) {
        load_any_row(type, rows + j * row_bytes, n, x);
        i = padded(n);
      }
      for (; i < wide(n); i += 16) store(x + i, set1(0));
    }
  }

  /// [block][16 keys][plane]
  void pack_keys() {
    for (std::size_t b = 0; b < blocks_; ++b)
      for (std::size_t g = 0; g < 4; ++g) {
        __m512i hi[16], lo[16];
        for (std::size_t i = 0; i < 16; ++i) {
          const float* x = floats_ + (16 * g + i) * wide(a_.head_dim) + 32 * b;
          const Planes p = cut_planes(load(x), load(x + 16));
          hi[i] = p.hi, lo[i] = p.lo;
        }
        std::byte* to = keys_ + (4 * b + g) * 2 * kTileBytes;
        store_tile(to, hi, turned_keys_);
        store_tile(to + kTileBytes, lo, turned_keys_);
      }
  }

  /// Of positions [lo, hi), zeros elsewhere: [64 dimensions][32 positions][16 dimensions][plane]. False: not
  /// all are finite.
  bool pack_values(std::size_t lo, std::size_t hi) {
    I16 largest = iset1(0);
    const auto at = [&](std::size_t j, std::size_t e) {
      const V16 x = j >= lo && j < hi ? load(floats_ + j * wide(a_.v_dim) + e) : set1(0);
      largest = imax(largest, bits(abs(x)));
      return x;
    };
    for (std::size_t four = 0; four < fours_; ++four)
      for (std::size_t b = 0; b < 2; ++b)
        for (std::size_t t = 0; t < 4; ++t)
          for (std::size_t n = 0; n < 16; ++n) {
            const std::size_t j = 32 * b + n, e = 64 * four + 16 * t;
            const Planes p = cut_planes(at(j, e), at(j + 16, e));
            std::byte* to = values_ + ((four * 2 + b) * 4 + t) * 2 * kTileBytes + 64 * n;
            _mm512_store_si512(to, p.hi);
            _mm512_store_si512(to + kTileBytes, p.lo);
          }
    return reduce_imax(largest) < 0x7f800000;
  }

  /// The weights of up to 16 rows from r on as planes, and what their earlier values are multiplied by.
  void weigh(SpanArgs s, const Span& span, std::size_t r, std::size_t count) {
    const std::byte* queries = queries_ + r / 16 * blocks_ * 2 * kTileBytes;
    if (turned_keys_) {
      products_of_four<false>(queries, keys_, blocks_, a_.k_type != KvType::bf16, sums_);
    } else {
      products_of_four<true>(queries, keys_, blocks_, a_.k_type != KvType::bf16, sums_);
      for (std::size_t g = 0; g < 4; ++g) {
        __m512i v[16];
        for (std::size_t i = 0; i < 16; ++i) v[i] = _mm512_load_si512(sums_ + 256 * g + 16 * i);
        transpose16(v);
        for (std::size_t i = 0; i < count; ++i) _mm512_store_si512(sums_ + 256 * g + 16 * i, v[i]);
      }
    }
    for (std::size_t i = 0; i < 16; ++i) {
      seen_[i] = i < count && sees(r + i, span, lo_[i], hi_[i]);
      V16 weights[4] = {set1(0), set1(0), set1(0), set1(0)};
      if (seen_[i]) {
        s.lo = lo_[i], s.hi = hi_[i];
        const SpanRow row = span_row(r + i, span, nullptr);
        V16 scores[4];
        for (std::size_t g = 0; g < 4; ++g)
          scores[g] = scores16(s, row, 16 * g, load(sums_ + 256 * g + 16 * i));
        float w[kSpan];
        factors_[i] = update(row.state, scores, w);
        for (std::size_t g = 0; g < 4; ++g) weights[g] = load(w + 16 * g);
      }
      for (std::size_t b = 0; b < 2; ++b) {
        const Planes p = round_planes(weights[2 * b], weights[2 * b + 1]);
        _mm512_store_si512(weights_ + b * 2 * kTileBytes + 64 * i, p.hi);
        _mm512_store_si512(weights_ + b * 2 * kTileBytes + kTileBytes + 64 * i, p.lo);
      }
    }
  }

  /// values = values * factor + the span's sum, of rows r + begin to r + end - 1.
  void add_values(std::size_t r, std::size_t begin, std::size_t end) {
    for (std::size_t four = 0; four < fours_; ++four) {
      products_of_four<false>(weights_, values_ + four * 16 * kTileBytes, 2, a_.v_type != KvType::bf16,
                              sums_);
      for (std::size_t i = begin; i < end; ++i) {
        if (!seen_[i]) continue;
        float* values = part(r + i).values;
        for (std::size_t t = 0; t < 4 && 64 * four + 16 * t < v_; ++t) {
          float* y = values + 64 * four + 16 * t;
          store(y, fma(load(y), set1(factors_[i]), load(sums_ + 256 * t + 16 * i)));
        }
      }
    }
  }

  std::size_t blocks_, fours_;  ///< of 32 dimensions of keys, of 64 of values
  bool turned_keys_;
  std::byte *queries_, *keys_, *values_, *weights_;
  float *floats_, *sums_;
  // Of the 16 rows at hand:
  bool seen_[16];
  std::size_t lo_[16], hi_[16];
  float factors_[16];
};

void attention_amx(const AttentionArgs& a) { TileWalk(a).run(); }

}  // namespace
}  // namespace quipu::backends

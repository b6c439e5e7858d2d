// Linear with quantised weights: exact integer sums per block, then fma in ascending order
// (docs/numerics.md). One row of activations reads the blocks where they lie, a group of weight rows at a
// time; a few rows unpack a block at a time (linear_few.inl), many unpack panels first (linear_many.inl). All
// give the same bits.

#include <bit>

namespace quipu::backends {
namespace {

/// acc plus the products of bytes with those of a plane, by dword; not where kPairSums.
template <class F, class V>
inline V dot(V acc, V u, V x) {
  if constexpr (F::kWide) return qdot_wide(acc, u, x);
  return qdot(acc, u, x);
}
/// Of simd_avx2.hpp; called only where kPairSums.
template <bool wide, int most, int n, class U, class H, class L>
Q qsum_planes(const U& u, const H& high, const L& low);
/// Sum over j < n of u(j) * (16 * high(j) + low(j)), by dword.
template <class F, int n, class U, class H, class L>
inline Q sum_planes(const U& u, const H& high, const L& low) {
  if constexpr (kPairSums) {
    return qsum_planes<F::kWide, F::kMost, n>(u, high, low);
  } else {
    Q sum = qzero();
    for (int j = 0; j < n; ++j) sum = dot<F>(sum, u(j), high(j));
    sum = qshl32<4>(sum);
    for (int j = 0; j < n; ++j) sum = dot<F>(sum, u(j), low(j));
    return sum;
  }
}
/// What the zero point of the bytes contributes to a sum, with the sum of the activations.
template <class F>
inline Q less_zero(Q total, std::int32_t sum) {
  if constexpr (F::kZero == 0) {
    return total;
  } else {  // a broadcast load and a shift: nothing scalar
    constexpr int shift = std::bit_width(static_cast<unsigned>(F::kZero)) - 1;
    static_assert(F::kZero == 1 << shift);
    return qsub32(total, qshl32<shift>(qset1_32(sum)));
  }
}

/// A row of activations in planes, and where its groups' sums stand.
struct PlanesRow {
  const std::int8_t* q;
  const float *d, *fsum;
  const std::int32_t *sum32, *sum16;
};
inline PlanesRow planes_row(const QuantizedRows& x, std::size_t t) {
  const std::size_t groups = x.width / 32;
  return {x.q + t * x.stride, x.d + t * slabs(x.width), x.fsum + t * groups, x.sum32 + t * groups,
          x.sum16 + t * groups * 2};
}

/// Where the scales of a group of rows go, kGroup side by side: factors d (and minima m) by block of 32; or
/// factors d (and -dmin) by super-block, scales s (and minima m) by sub-block, as integers where kScaled.
struct GroupScales {
  float *d, *m;
  float* minus_dmin = nullptr;
  std::int32_t* s = nullptr;
  float* fs = nullptr;
};

// ---- blocks of 32: a block is one sub-block ----

template <class F>
struct Blocks32 {
  static constexpr std::size_t kBlock = 32, kSubWidth = 32, kBytes = F::kBytes;
  static constexpr bool kScaled = false;
  using Format = F;

  /// Adds block b of one row of activations.
  static void one_row(const Rows& r, std::size_t off, std::size_t b, const PlanesRow& x, FG& part) {
    FG d = fg_zero(), m = fg_zero();
    F::scales(r, off, d, m);
    const std::int8_t* q = x.q + b * 64;
    const Q l0 = qbroadcast16(q), l1 = qbroadcast16(q + 16), h0 = qbroadcast16(q + 32),
            h1 = qbroadcast16(q + 48);
    Q s[4];
    for (int j = 0; j < 4; ++j) {
      Q u0, u1;
      F::unpack(r, off, j, u0, u1);
      s[j] =
          sum_planes<F, 2>([&](int i) { return i == 0 ? u0 : u1; }, [&](int i) { return i == 0 ? h0 : h1; },
                           [&](int i) { return i == 0 ? l0 : l1; });
    }
    const Q sum = less_zero<F>(qtree(s[0], s[1], s[2], s[3]), x.sum32[b]);
    part = fg_fma(fg_from_int(sum), d, part);
    if constexpr (F::kMin) part = fg_fma(m, fg_set1(x.fsum[b]), part);
  }

  /// put(i, bytes): dword i of every row of the group.
  template <class Put>
  static void unpack(const Rows& r, std::size_t off, std::size_t b, const Put& put, const GroupScales& to) {
    Q lo[4], hi[4];
    for (int j = 0; j < 4; ++j) F::unpack(r, off, j, lo[j], hi[j]);
    qtranspose(lo[0], lo[1], lo[2], lo[3]);
    qtranspose(hi[0], hi[1], hi[2], hi[3]);
    for (std::size_t j = 0; j < 4; ++j) {
      put(b * 8 + j, lo[j]);
      put(b * 8 + 4 + j, hi[j]);
    }
    FG d = fg_zero(), m = fg_zero();
    F::scales(r, off, d, m);
    fg_store(to.d + b * kGroup, d);
    if constexpr (F::kMin) fg_store(to.m + b * kGroup, m);
  }
};

// ---- super-blocks of 256: sub-blocks of 32 or 16, whose scales are integers ----

/// Sums over sub-blocks j of minima m(j) times the sums x(t, j) of row t of activations, each rounded once:
/// eight terms in two halves that are exact, sixteen (of four bits) in one.
template <int subs, int rows, class M, class X>
inline void sum_minima(const M& m, const X& x, FG (&out)[rows]) {
  constexpr int half = subs == 8 ? 4 : subs;
  FG second[rows];
  for (int t = 0; t < rows; ++t) out[t] = second[t] = fg_zero();
#pragma GCC unroll 4
  for (int j = 0; j < half; ++j) {
    const FG mj = m(j);
    for (int t = 0; t < rows; ++t) out[t] = fg_fma(mj, fg_set1(x(t, j)), out[t]);
    if constexpr (half < subs) {
      const FG mk = m(half + j);
      for (int t = 0; t < rows; ++t) second[t] = fg_fma(mk, fg_set1(x(t, half + j)), second[t]);
    }
  }
  if constexpr (half < subs)
    for (int t = 0; t < rows; ++t) out[t] = fg_add(out[t], second[t]);
}

/// Sums of sub-blocks times their scales.
template <bool integers>
struct ScaledTotal {
  Q sum = qzero();
  void add(Q of_sub, Q scale) { sum = qadd32(sum, qmul32(of_sub, scale)); }
  FG value() const { return fg_from_int(sum); }
};
template <>
struct ScaledTotal<false> {
  FG sum = fg_zero();
  void add(Q of_sub, Q scale) { sum = fg_fma(fg_from_int(of_sub), fg_from_int(scale), sum); }
  FG value() const { return sum; }
};

template <class F>
struct Blocks256 {
  static constexpr std::size_t kBlock = 256, kSubWidth = 256 / F::kSubs, kBytes = F::kBytes;
  static constexpr bool kScaled = F::kScaled;
  using Format = F;
  static constexpr int kPer = static_cast<int>(kSubWidth / 16);  ///< pieces of a sub-block
  static constexpr int kSubsPerChunk = F::kPieces / kPer;

  /// The sum of the activations of sub-block `at` of a row.
  static std::int32_t sum_of(const PlanesRow& x, std::size_t at) {
    return kPer == 2 ? x.sum32[at] : x.sum16[at];
  }
  static float float_sum_of(const PlanesRow& x, std::size_t at) {
    return kPer == 2 ? x.fsum[at] : static_cast<float>(x.sum16[at]);
  }

  using Total = ScaledTotal<F::kScaled>;

  /// Adds the sums of the sub-blocks of chunk c and those behind it, times their scales, for one row of
  /// activations.
  template <int c>
  static void sum_chunks(const Rows& r, std::size_t off, std::size_t b, const PlanesRow& x,
                         const Q (&scale)[F::kSubs], Total& total) {
    const std::int8_t* q = x.q + b * 512;
    Q s[kSubsPerChunk][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      Q u[F::kPieces];
      F::template unpack<c>(r, off, j, u);
      for (int i = 0; i < kSubsPerChunk; ++i) {
        const auto low = [&](int h) {
          const int piece = F::piece(c, i * kPer + h);
          return q + piece / 2 * 64 + piece % 2 * 16;
        };
        s[i][j] = sum_planes<F, kPer>([&](int h) { return u[i * kPer + h]; },
                                      [&](int h) { return qbroadcast16(low(h) + 32); },
                                      [&](int h) { return qbroadcast16(low(h)); });
      }
    }
    for (int i = 0; i < kSubsPerChunk; ++i) {
      const int sub = F::piece(c, i * kPer) / kPer;
      const Q sum = less_zero<F>(qtree(s[i][0], s[i][1], s[i][2], s[i][3]),
                                 sum_of(x, b * F::kSubs + static_cast<std::size_t>(sub)));
      total.add(sum, scale[sub]);
    }
    if constexpr (c + 1 < F::kChunks) sum_chunks<c + 1>(r, off, b, x, scale, total);
  }
  /// Adds super-block b of one row of activations.
  static void one_row(const Rows& r, std::size_t off, std::size_t b, const PlanesRow& x, FG& acc) {
    Q scale[F::kSubs], min[F::kSubs];
    Total total;
    FG d = fg_zero(), minus_dmin = fg_zero();
    F::header(r, off, scale, min, d, minus_dmin);
    sum_chunks<0>(r, off, b, x, scale, total);
    const FG dx = fg_set1(x.d[b]);
    acc = fg_fma(total.value(), fg_mul(d, dx), acc);
    if constexpr (F::kMin) {
      FG minima[1];
      sum_minima<F::kSubs>(
          [&](int j) { return fg_from_int(min[j]); },
          [&](int, int j) { return float_sum_of(x, b * F::kSubs + static_cast<std::size_t>(j)); }, minima);
      acc = fg_fma(minima[0], fg_mul(minus_dmin, dx), acc);
    }
  }

  template <int c, class Put>
  static void unpack_chunks(const Rows& r, std::size_t off, std::size_t b, const Put& put,
                            const Q (&scale)[F::kSubs]) {
    Q u[4][F::kPieces];
    for (int j = 0; j < 4; ++j) F::template unpack<c>(r, off, j, u[j]);
    for (int i = 0; i < F::kPieces; ++i) {
      qtranspose(u[0][i], u[1][i], u[2][i], u[3][i]);
      const int piece = F::piece(c, i);
      for (int j = 0; j < 4; ++j)
        put(b * 64 + static_cast<std::size_t>(piece * 4 + j), u[j][i], scale[piece / kPer]);
    }
    if constexpr (c + 1 < F::kChunks) unpack_chunks<c + 1>(r, off, b, put, scale);
  }
  /// put(i, bytes, scale): dword i of every row of the group, and the scales of its sub-block.
  template <class Put>
  static void unpack(const Rows& r, std::size_t off, std::size_t b, const Put& put, const GroupScales& to) {
    Q scale[F::kSubs], min[F::kSubs];
    FG d = fg_zero(), minus_dmin = fg_zero();
    F::header(r, off, scale, min, d, minus_dmin);
    unpack_chunks<0>(r, off, b, put, scale);
    fg_store(to.d + b * kGroup, d);
    if constexpr (F::kMin) fg_store(to.minus_dmin + b * kGroup, minus_dmin);
    for (std::size_t i = 0; i < F::kSubs; ++i) {
      const std::size_t place = (b * F::kSubs + i) * kGroup;
      if (to.s != nullptr) qput(to.s + place, scale[i]);
      if (to.fs != nullptr) fg_store(to.fs + place, fg_from_int(scale[i]));
      if constexpr (F::kMin) fg_store(to.m + place, fg_from_int(min[i]));
    }
  }
};

// ---- both ----

/// Asks for what is read after a group of rows, piece by piece while the group is worked on, into L2: the
/// rows of a group are parallel streams, which the hardware follows too late, and L1's fill buffers would not
/// hold them.
template <class B>
inline void prefetch_block(const std::uint8_t* at) {
  constexpr std::size_t bytes = B::kBytes * kGroup;
  for (std::size_t i = 0; i < bytes; i += 64) prefetch_far(at + i);
}

constexpr std::size_t kMargin = 4096;  // read ahead at least, beyond the next group

/// Where that is, whole groups ahead: behind the rows in hand, or in what is read after all of them.
struct Ahead {
  std::size_t distance;
  const std::uint8_t *end, *next;

  explicit Ahead(const LinearArgs& a) : end(a.weight + a.n_end * a.row_bytes), next(a.next) {
    const std::size_t group = kGroup * a.row_bytes;
    distance = group + (kMargin + group - 1) / group * group;
  }
  /// What to ask for while the group at `at` is worked on, from its first byte to its last.
  const std::uint8_t* of(const std::uint8_t* at) const {
    const auto left = static_cast<std::size_t>(end - at);
    return next != nullptr && left <= distance ? next + (distance - left) : at + distance;
  }
};

/// Blocks that share a scale of activations.
template <class B>
constexpr std::size_t kSlabBlocks = kSlab / B::kBlock;

template <class B>
void linear_one_row(const LinearArgs& a) {
  const std::size_t blocks = a.k / B::kBlock;
  const Ahead ahead(a);
  const PlanesRow x = planes_row(*a.x, 0);
  for (std::size_t n = a.n_begin; n < a.n_end; n += kGroup) {
    const std::size_t count = a.n_end - n < kGroup ? a.n_end - n : kGroup;
    const std::uint8_t *base = a.weight + n * a.row_bytes, *after = ahead.of(base);
    Rows r;
    rows_set(r, base, a.row_bytes, count);
    FG acc = fg_zero();
    for (std::size_t b0 = 0; b0 < blocks; b0 += kSlabBlocks<B>) {
      const std::size_t b1 = blocks - b0 < kSlabBlocks<B> ? blocks : b0 + kSlabBlocks<B>;
      FG part = fg_zero();
      for (std::size_t b = b0; b < b1; ++b) {
        prefetch_block<B>(after + b * B::kBytes * kGroup);
        B::one_row(r, b * B::kBytes, b, x, B::kBlock == 32 ? part : acc);
      }
      if constexpr (B::kBlock == 32) acc = fg_fma(part, fg_set1(x.d[b0 / kSlabBlocks<B>]), acc);
    }
    finish(a, 0, n, count, acc);
  }
}

}  // namespace
}  // namespace quipu::backends

// Linear with quantised weights: exact integer sums per block, then one fma per block in ascending order
// (docs/numerics.md). One row of activations reads the blocks where they lie, a group of rows at a time; more
// rows unpack a panel of the group first and use it for all of them. Both give the same bits.

namespace quipu::backends {
namespace {

template <class F>
inline Q dot(Q acc, Q u, Q x) {
  if constexpr (F::kWide) return qdot_wide(acc, u, x);
  return qdot(acc, u, x);
}
/// What the zero point of the bytes contributes to a sum, with the sum of the activations.
template <class F>
inline Q less_zero(Q total, std::int32_t sum) {
  if constexpr (F::kZero == 0) return total;
  return qadd32(total, qset1_32(-F::kZero * sum));
}

inline FG fg_load_part(const float* p, std::size_t n) {
  if (n == kGroup) return fg_load(p);
  float t[kGroup] = {};
  __builtin_memcpy(t, p, n * sizeof(float));
  return fg_load(t);
}
/// Bias and residual, in this order, then the store of a group's outputs of activation row t.
inline void finish(const LinearArgs& a, std::size_t t, std::size_t n, std::size_t count, FG y) {
  if (a.bias != nullptr) y = fg_add(y, fg_load_part(a.bias + n, count));
  if (a.residual != nullptr) y = fg_add(y, fg_load_part(a.residual + out_row(a, t) * a.n + n, count));
  float* out = a.y + out_row(a, t) * a.n + n;
  if (count == kGroup)
    fg_store(out, y);
  else
    fg_store_n(out, y, count);
}

/// Rows shorter than this end before the hardware prefetcher has caught on to a group's parallel streams:
/// they are asked for in software, near ones into L1 and those kFarBytes ahead into L2. For longer rows that
/// only costs.
constexpr std::size_t kStreamBytes = 2048, kFarBytes = 49152;

/// A group of rows unpacked: dword k / 4 of every row side by side, scales (and minima) by sub-block.
struct Panel {
  std::uint8_t* values;
  float *d, *m;
};
inline Panel panel_in(std::byte* scratch, std::size_t k) {
  Panel p;
  p.values = reinterpret_cast<std::uint8_t*>(scratch);
  p.d = reinterpret_cast<float*>(scratch + k * kGroup);
  p.m = p.d + k / 16 * kGroup;
  return p;
}
constexpr std::size_t kDword = 4 * kGroup;  ///< bytes of one dword of every row

// ---- blocks of 32: a block is one sub-block ----

template <class F>
struct Blocks32 {
  static constexpr std::size_t kBlock = 32, kSubWidth = 32, kBytes = F::kBytes;
  using Format = F;

  static void one_row(const Rows& r, std::size_t off, std::size_t b, const QuantizedRows& x, FG& acc,
                      FG& accm) {
    const std::int8_t* q = x.q + b * 64;
    const Q l0 = qbroadcast16(q), l1 = qbroadcast16(q + 16), h0 = qbroadcast16(q + 32),
            h1 = qbroadcast16(q + 48);
    Q s[4];
    for (int j = 0; j < 4; ++j) {
      Q u0, u1;
      F::unpack(r, off, j, u0, u1);
      const Q high = dot<F>(dot<F>(qzero(), u0, h0), u1, h1);
      s[j] = dot<F>(dot<F>(qshl32<4>(high), u0, l0), u1, l1);
    }
    const Q sum = less_zero<F>(qtree(s[0], s[1], s[2], s[3]), x.sum32[b]);
    FG d = fg_zero(), m = fg_zero();
    F::scales(r, off, d, m);
    acc = fg_fma(fg_from_int(sum), fg_mul(d, fg_set1(x.d[b])), acc);
    if constexpr (F::kMin) accm = fg_fma(m, fg_set1(x.dsum[b]), accm);
  }

  static void unpack(const Rows& r, std::size_t off, std::size_t b, const Panel& p) {
    Q lo[4], hi[4];
    for (int j = 0; j < 4; ++j) F::unpack(r, off, j, lo[j], hi[j]);
    qtranspose(lo[0], lo[1], lo[2], lo[3]);
    qtranspose(hi[0], hi[1], hi[2], hi[3]);
    std::uint8_t* out = p.values + b * 8 * kDword;
    for (std::size_t j = 0; j < 4; ++j) {
      qput(out + j * kDword, lo[j]);
      qput(out + (4 + j) * kDword, hi[j]);
    }
    FG d = fg_zero(), m = fg_zero();
    F::scales(r, off, d, m);
    fg_store(p.d + b * kGroup, d);
    if constexpr (F::kMin) fg_store(p.m + b * kGroup, m);
  }
};

// ---- super-blocks of 256: sub-blocks of 32 or 16 ----

template <class F>
struct Blocks256 {
  static constexpr std::size_t kBlock = 256, kSubWidth = 256 / F::kSubs, kBytes = F::kBytes;
  using Format = F;
  static constexpr int kPer = static_cast<int>(kSubWidth / 16);  ///< pieces of a sub-block
  static constexpr int kSubsPerChunk = F::kPieces / kPer;

  template <int c>
  static void add_chunks(const Rows& r, std::size_t off, std::size_t b, const QuantizedRows& x, const FG* dw,
                         const FG* mw, FG& acc, FG& accm) {
    const std::int8_t* q = x.q + b * 512;
    Q s[kSubsPerChunk][4];
    for (int j = 0; j < 4; ++j) {
      Q u[F::kPieces];
      F::template unpack<c>(r, off, j, u);
      for (int i = 0; i < kSubsPerChunk; ++i) {
        Q high = qzero();
        for (int h = 0; h < kPer; ++h) {
          const int piece = c * F::kPieces + i * kPer + h;
          high = dot<F>(high, u[i * kPer + h], qbroadcast16(q + piece / 2 * 64 + 32 + piece % 2 * 16));
        }
        Q sum = qshl32<4>(high);
        for (int h = 0; h < kPer; ++h) {
          const int piece = c * F::kPieces + i * kPer + h;
          sum = dot<F>(sum, u[i * kPer + h], qbroadcast16(q + piece / 2 * 64 + piece % 2 * 16));
        }
        s[i][j] = sum;
      }
    }
    for (int i = 0; i < kSubsPerChunk; ++i) {
      const int sub = c * kSubsPerChunk + i;
      const std::size_t at = b * F::kSubs + static_cast<std::size_t>(sub);
      const Q sum =
          less_zero<F>(qtree(s[i][0], s[i][1], s[i][2], s[i][3]), kPer == 2 ? x.sum32[at] : x.sum16[at]);
      const float dx = x.d[kPer == 2 ? at : at / 2];
      acc = fg_fma(fg_from_int(sum), fg_mul(dw[sub], fg_set1(dx)), acc);
      if constexpr (F::kMin) {
        const float total = kPer == 2 ? x.dsum[at] : dx * static_cast<float>(x.sum16[at]);
        accm = fg_fma(mw[sub], fg_set1(total), accm);
      }
    }
    if constexpr (c + 1 < F::kChunks) add_chunks<c + 1>(r, off, b, x, dw, mw, acc, accm);
  }
  static void one_row(const Rows& r, std::size_t off, std::size_t b, const QuantizedRows& x, FG& acc,
                      FG& accm) {
    FG dw[F::kSubs], mw[F::kSubs];
    F::header(r, off, dw, mw);
    add_chunks<0>(r, off, b, x, dw, mw, acc, accm);
  }

  template <int c>
  static void unpack_chunks(const Rows& r, std::size_t off, std::uint8_t* out) {
    Q u[4][F::kPieces];
    for (int j = 0; j < 4; ++j) F::template unpack<c>(r, off, j, u[j]);
    for (int i = 0; i < F::kPieces; ++i) {
      qtranspose(u[0][i], u[1][i], u[2][i], u[3][i]);
      for (int j = 0; j < 4; ++j)
        qput(out + static_cast<std::size_t>((c * F::kPieces + i) * 4 + j) * kDword, u[j][i]);
    }
    if constexpr (c + 1 < F::kChunks) unpack_chunks<c + 1>(r, off, out);
  }
  static void unpack(const Rows& r, std::size_t off, std::size_t b, const Panel& p) {
    unpack_chunks<0>(r, off, p.values + b * 64 * kDword);
    FG dw[F::kSubs], mw[F::kSubs];
    F::header(r, off, dw, mw);
    for (std::size_t i = 0; i < F::kSubs; ++i) {
      fg_store(p.d + (b * F::kSubs + i) * kGroup, dw[i]);
      if constexpr (F::kMin) fg_store(p.m + (b * F::kSubs + i) * kGroup, mw[i]);
    }
  }
};

// ---- both ----

template <class B>
void linear_one_row(const LinearArgs& a) {
  constexpr bool min = B::Format::kMin;
  const std::size_t blocks = a.k / B::kBlock, group_bytes = kGroup * a.row_bytes;
  const bool ask = B::kBlock == 32 && a.row_bytes < kStreamBytes;
  for (std::size_t n = a.n_begin; n < a.n_end; n += kGroup) {
    const std::size_t count = a.n_end - n < kGroup ? a.n_end - n : kGroup;
    const std::uint8_t* base = a.weight + n * a.row_bytes;
    Rows r;
    rows_set(r, base, a.row_bytes, count);
    FG acc = fg_zero(), accm = fg_zero();
    for (std::size_t b = 0; b < blocks; ++b) {
      if (ask) {
        constexpr std::size_t bytes = B::kBytes * kGroup;
        const std::uint8_t* next = base + b * bytes;
        for (std::size_t i = 0; i < bytes; i += 64) prefetch(next + group_bytes + i);
        for (std::size_t i = 0; i < bytes; i += 64) prefetch_far(next + kFarBytes + i);
      }
      B::one_row(r, b * B::kBytes, b, *a.x, acc, accm);
    }
    finish(a, 0, n, count, min ? fg_add(acc, accm) : acc);
  }
}

/// A panel times `tokens` rows of activations from t0, all in registers.
template <class B, int tokens>
void panel_rows(const LinearArgs& a, const Panel& p, std::size_t t0, std::size_t n, std::size_t count) {
  using F = typename B::Format;
  constexpr std::size_t kDwords = B::kSubWidth / 4;
  const std::size_t groups = a.k / 32, subs = a.k / B::kSubWidth;
  const QuantizedRows& x = *a.x;
  const std::int8_t* q = x.q + t0 * x.stride;
  const float *dx = x.d + t0 * groups, *dsum = x.dsum + t0 * groups;
  const std::int32_t* sums = (B::kSubWidth == 32 ? x.sum32 : x.sum16) + t0 * subs;
  FG acc[tokens], accm[tokens];
  for (int t = 0; t < tokens; ++t) acc[t] = accm[t] = fg_zero();
  for (std::size_t s = 0; s < subs; ++s) {
    const std::size_t g = B::kSubWidth == 32 ? s : s / 2;
    const std::int8_t* lo = q + g * 64 + (B::kSubWidth == 32 ? 0 : s % 2 * 16);
    const std::uint8_t* w = p.values + s * kDwords * kDword;
    Q sum[tokens];
    for (int t = 0; t < tokens; ++t) sum[t] = qzero();
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kDwords; ++j) {
      const Q u = qget(w + j * kDword);
      for (int t = 0; t < tokens; ++t)
        sum[t] = dot<F>(sum[t], u, qbroadcast4(lo + static_cast<std::size_t>(t) * x.stride + 32 + j * 4));
    }
    for (int t = 0; t < tokens; ++t) sum[t] = qshl32<4>(sum[t]);
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kDwords; ++j) {
      const Q u = qget(w + j * kDword);
      for (int t = 0; t < tokens; ++t)
        sum[t] = dot<F>(sum[t], u, qbroadcast4(lo + static_cast<std::size_t>(t) * x.stride + j * 4));
    }
    const FG d = fg_load(p.d + s * kGroup);
    for (int t = 0; t < tokens; ++t) {
      const std::size_t row = static_cast<std::size_t>(t);
      const float scale = dx[row * groups + g];
      acc[t] =
          fg_fma(fg_from_int(less_zero<F>(sum[t], sums[row * subs + s])), fg_mul(d, fg_set1(scale)), acc[t]);
      if constexpr (F::kMin) {
        const float total =
            B::kSubWidth == 32 ? dsum[row * groups + g] : scale * static_cast<float>(sums[row * subs + s]);
        accm[t] = fg_fma(fg_load(p.m + s * kGroup), fg_set1(total), accm[t]);
      }
    }
  }
  for (int t = 0; t < tokens; ++t)
    finish(a, t0 + static_cast<std::size_t>(t), n, count, F::kMin ? fg_add(acc[t], accm[t]) : acc[t]);
}

/// Activation rows a panel dword serves per load: as many as keep sums and accumulators in registers.
constexpr int kTokens = kGroup == 16 ? 8 : 4;

template <class B>
void linear_quant(const LinearArgs& a) {
  if (a.rows == 1) return linear_one_row<B>(a);
  const Panel p = panel_in(a.scratch, a.k);
  for (std::size_t n = a.n_begin; n < a.n_end; n += kGroup) {
    const std::size_t count = a.n_end - n < kGroup ? a.n_end - n : kGroup;
    Rows r;
    rows_set(r, a.weight + n * a.row_bytes, a.row_bytes, count);
    for (std::size_t b = 0; b < a.k / B::kBlock; ++b) B::unpack(r, b * B::kBytes, b, p);
    std::size_t t = 0;
    for (; t + kTokens <= a.rows; t += kTokens) panel_rows<B, kTokens>(a, p, t, n, count);
    if (kTokens > 4 && t + 4 <= a.rows) {
      panel_rows<B, 4>(a, p, t, n, count);
      t += 4;
    }
    if (t + 2 <= a.rows) {
      panel_rows<B, 2>(a, p, t, n, count);
      t += 2;
    }
    if (t < a.rows) panel_rows<B, 1>(a, p, t, n, count);
  }
}

}  // namespace
}  // namespace quipu::backends

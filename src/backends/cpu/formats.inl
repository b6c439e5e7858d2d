// One unpacker per block format: blocks of a group of rows, where they lie in the file, to bytes and scales.
// The dot kernels of linear_quant.inl know nothing else about a format. Layouts: tensor/blocks.hpp,
// docs/formats.md.
//
// Bytes are "q + zero" (0 <= byte <= kMost <= 127), or for kWide formats signed bytes (-kMost <= byte <=
// kMost) in the form `qdot_wide` (or `qpairs`) takes, whose zero is kWideZero.

namespace quipu::backends {
namespace {

/// Left shift of 16-bit words by n, right for negative n: moves bits inside bytes when a mask follows.
template <int n>
inline Q shift(Q a) {
  if constexpr (n > 0) return qshl16<n>(a);
  if constexpr (n < 0) return qshr16<-n>(a);
  return a;
}
inline Q low_nibble(Q a) { return qand(a, qset1_8(15)); }
inline Q high_nibble(Q a) { return qand(qshr16<4>(a), qset1_8(15)); }

alignas(16) constexpr std::int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                   1,    13,   25,  38,  53,  69,  89,  113};
alignas(16) constexpr std::int8_t kMxfp4Table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// ---- blocks of 32: unpack gives elements 0..15 and 16..31 of quads; scales gives d (and m) by row ----

struct FormatQ4_0 {
  static constexpr std::size_t kBytes = 18;
  static constexpr int kZero = 8, kMost = 15;
  static constexpr bool kMin = false, kWide = false;
  static void unpack(const Rows& r, std::size_t off, int j, Q& lo, Q& hi) {
    const Q v = qload(r, j, off + 2);
    lo = low_nibble(v);
    hi = high_nibble(v);
  }
  static void scales(const Rows& r, std::size_t off, FG& d, FG&) { d = fg_load_halves(r, off); }
};

struct FormatQ4_1 {
  static constexpr std::size_t kBytes = 20;
  static constexpr int kZero = 0, kMost = 15;
  static constexpr bool kMin = true, kWide = false;
  static void unpack(const Rows& r, std::size_t off, int j, Q& lo, Q& hi) {
    const Q v = qload(r, j, off + 4);
    lo = low_nibble(v);
    hi = high_nibble(v);
  }
  static void scales(const Rows& r, std::size_t off, FG& d, FG& m) { fg_halves(qload_dword(r, off), d, m); }
};

struct FormatQ5_0 {
  static constexpr std::size_t kBytes = 22;
  static constexpr int kZero = 16, kMost = 31;
  static constexpr bool kMin = false, kWide = false;
  static void unpack(const Rows& r, std::size_t off, int j, Q& lo, Q& hi) {
    const Q v = qload(r, j, off + 6);
    lo = qor(low_nibble(v), qfifth_bits(r, j, off + 2));
    hi = qor(high_nibble(v), qfifth_bits(r, j, off + 4));
  }
  static void scales(const Rows& r, std::size_t off, FG& d, FG&) { d = fg_load_halves(r, off); }
};

struct FormatQ5_1 {
  static constexpr std::size_t kBytes = 24;
  static constexpr int kZero = 0, kMost = 31;
  static constexpr bool kMin = true, kWide = false;
  static void unpack(const Rows& r, std::size_t off, int j, Q& lo, Q& hi) {
    const Q v = qload(r, j, off + 8);
    lo = qor(low_nibble(v), qfifth_bits(r, j, off + 4));
    hi = qor(high_nibble(v), qfifth_bits(r, j, off + 6));
  }
  static void scales(const Rows& r, std::size_t off, FG& d, FG& m) { FormatQ4_1::scales(r, off, d, m); }
};

struct FormatQ8_0 {
  static constexpr std::size_t kBytes = 34;
  static constexpr int kZero = kWideZero, kMost = 128;
  static constexpr bool kMin = false, kWide = true;
  static void unpack(const Rows& r, std::size_t off, int j, Q& lo, Q& hi) {
    lo = qwide(qload(r, j, off + 2));
    hi = qwide(qload(r, j, off + 18));
  }
  static void scales(const Rows& r, std::size_t off, FG& d, FG&) { d = fg_load_halves(r, off); }
};

struct FormatIQ4_NL {
  static constexpr std::size_t kBytes = 18;
  static constexpr int kZero = kWideZero, kMost = 128;
  static constexpr bool kMin = false, kWide = true;
  static void unpack(const Rows& r, std::size_t off, int j, Q& lo, Q& hi) {
    const Q table = qwide(qtable(kIq4Table));
    const Q v = qload(r, j, off + 2);
    lo = qlookup(table, low_nibble(v));
    hi = qlookup(table, high_nibble(v));
  }
  static void scales(const Rows& r, std::size_t off, FG& d, FG&) { d = fg_load_halves(r, off); }
};

struct FormatMXFP4 {
  static constexpr std::size_t kBytes = 17;
  static constexpr int kZero = kWideZero, kMost = 128;
  static constexpr bool kMin = false, kWide = true;
  static void unpack(const Rows& r, std::size_t off, int j, Q& lo, Q& hi) {
    const Q table = qwide(qtable(kMxfp4Table));
    const Q v = qload(r, j, off + 1);
    lo = qlookup(table, low_nibble(v));
    hi = qlookup(table, high_nibble(v));
  }
  /// 2^(e - 128), a subnormal for e < 2.
  static void scales(const Rows& r, std::size_t off, FG& d, FG&) {
    const Q e = qand(qload_dword(r, off), qset1_32(0xff));
    Q bits = qshl32<23>(qsub32(e, qset1_32(1)));
    bits = qselect_equal32(e, qzero(), qset1_32(0x00200000), bits);
    d = fg_from_bits(qselect_equal32(e, qset1_32(1), qset1_32(0x00400000), bits));
  }
};

// ---- super-blocks of 256: kChunks calls of unpack give kPieces pieces of 16 elements each, of which
// piece(c, i) tells the place in the block; header gives the scales dw and minima mw of the sub-blocks, by
// row ----

/// Chunk after chunk.
template <int pieces>
struct InOrder {
  static constexpr int piece(int c, int i) { return c * pieces + i; }
};
/// Formats whose bytes hold four pieces that lie 32 elements apart: chunk c has the even or the odd ones of a
/// half.
struct EveryOther {
  static constexpr int piece(int c, int i) { return c / 2 * 8 + 2 * i + c % 2; }
};

/// Byte n of every dword, unsigned or signed.
template <int n>
inline Q byte_of(Q a) {
  return qand(qshr32<8 * n>(a), qset1_32(0xff));
}
template <int n>
inline Q signed_byte_of(Q a) {
  return qsar32<24>(qshl32<24 - 8 * n>(a));
}
/// out[i] = factor * float(byte i of the dword).
inline void scale_bytes(Q w, FG factor, FG* out) {
  out[0] = fg_mul(factor, fg_from_int(byte_of<0>(w)));
  out[1] = fg_mul(factor, fg_from_int(byte_of<1>(w)));
  out[2] = fg_mul(factor, fg_from_int(byte_of<2>(w)));
  out[3] = fg_mul(factor, fg_from_int(byte_of<3>(w)));
}
/// The same with minus zero's sign turned: -(factor * float(byte)).
inline void minus_bytes(Q w, FG factor, FG* out) { scale_bytes(w, fg_negate(factor), out); }
/// factor * float(byte - 32).
inline void scale_bytes_less_32(Q w, FG factor, FG* out) {
  const Q zero = qset1_32(32);
  out[0] = fg_mul(factor, fg_from_int(qsub32(byte_of<0>(w), zero)));
  out[1] = fg_mul(factor, fg_from_int(qsub32(byte_of<1>(w), zero)));
  out[2] = fg_mul(factor, fg_from_int(qsub32(byte_of<2>(w), zero)));
  out[3] = fg_mul(factor, fg_from_int(qsub32(byte_of<3>(w), zero)));
}
inline void load_dwords(const Rows& r, std::size_t off, Q (&w)[4]) {
  for (int j = 0; j < 4; ++j) w[j] = qload(r, j, off);
  qtranspose(w[0], w[1], w[2], w[3]);
}

struct FormatQ2_K : EveryOther {
  static constexpr std::size_t kBytes = 84;
  static constexpr int kZero = 0, kSubs = 16, kPieces = 4, kChunks = 4, kMost = 3;
  static constexpr bool kMin = true, kWide = false;
  template <int c>
  static void unpack(const Rows& r, std::size_t off, int j, Q (&out)[kPieces]) {
    const Q m = qset1_8(3);
    const Q v = qload(r, j, off + 16 + 16 * c);
    out[0] = qand(v, m);
    out[1] = qand(qshr16<2>(v), m);
    out[2] = qand(qshr16<4>(v), m);
    out[3] = qand(qshr16<6>(v), m);
  }
  static void header(const Rows& r, std::size_t off, FG (&dw)[kSubs], FG (&mw)[kSubs]) {
    Q w[4];
    load_dwords(r, off, w);
    FG d, dmin;
    fg_halves(qload_dword(r, off + 80), d, dmin);
    for (int i = 0; i < 4; ++i) {
      scale_bytes(low_nibble(w[i]), d, dw + 4 * i);
      minus_bytes(high_nibble(w[i]), dmin, mw + 4 * i);
    }
  }
};

struct FormatQ3_K : EveryOther {
  static constexpr std::size_t kBytes = 110;
  static constexpr int kZero = 4, kSubs = 16, kPieces = 4, kChunks = 4, kMost = 7;
  static constexpr bool kMin = false, kWide = false;
  template <int c>
  static void unpack(const Rows& r, std::size_t off, int j, Q (&out)[kPieces]) {
    constexpr int half = c / 2;
    const Q m = qset1_8(3), bit = qset1_8(4);
    const Q high = qload(r, j, off + 16 * (c % 2)), v = qload(r, j, off + 32 + 16 * c);
    out[0] = qor(qand(v, m), qand(shift<2 - 4 * half>(high), bit));
    out[1] = qor(qand(qshr16<2>(v), m), qand(shift<1 - 4 * half>(high), bit));
    out[2] = qor(qand(qshr16<4>(v), m), qand(shift<-4 * half>(high), bit));
    out[3] = qor(qand(qshr16<6>(v), m), qand(shift<-1 - 4 * half>(high), bit));
  }
  static void header(const Rows& r, std::size_t off, FG (&dw)[kSubs], FG (&)[kSubs]) {
    const Q a = qload_dword(r, off + 96), b = qload_dword(r, off + 100), top = qload_dword(r, off + 104);
    const Q two = qset1_8(0x30);
    const FG d = fg_half_high(qload_dword(r, off + 106));
    scale_bytes_less_32(qor(low_nibble(a), qand(shift<4>(top), two)), d, dw);
    scale_bytes_less_32(qor(low_nibble(b), qand(shift<2>(top), two)), d, dw + 4);
    scale_bytes_less_32(qor(high_nibble(a), qand(top, two)), d, dw + 8);
    scale_bytes_less_32(qor(high_nibble(b), qand(shift<-2>(top), two)), d, dw + 12);
  }
};

struct FormatQ4_K : InOrder<4> {
  static constexpr std::size_t kBytes = 144;
  static constexpr int kZero = 0, kSubs = 8, kPieces = 4, kChunks = 4, kMost = 15;
  static constexpr bool kMin = true, kWide = false;
  template <int c>
  static void unpack(const Rows& r, std::size_t off, int j, Q (&out)[kPieces]) {
    for (int h = 0; h < 2; ++h) {
      const Q v = qload(r, j, off + 16 + 32 * c + 16 * static_cast<std::size_t>(h));
      out[h] = low_nibble(v);
      out[2 + h] = high_nibble(v);
    }
  }
  /// d, dmin, then 12 bytes of 6-bit scales and minima: dword 1 scales 0..3, dword 2 minima 0..3, dword 3 the
  /// low nibbles of 4..7, whose high bits top the bytes of dwords 1 and 2.
  static void header(const Rows& r, std::size_t off, FG (&dw)[kSubs], FG (&mw)[kSubs]) {
    Q w[4];
    load_dwords(r, off, w);
    const Q six = qset1_8(0x3f), two = qset1_8(0x30);
    FG d, dmin;
    fg_halves(w[0], d, dmin);
    scale_bytes(qand(w[1], six), d, dw);
    scale_bytes(qor(low_nibble(w[3]), qand(qshr16<2>(w[1]), two)), d, dw + 4);
    minus_bytes(qand(w[2], six), dmin, mw);
    minus_bytes(qor(high_nibble(w[3]), qand(qshr16<2>(w[2]), two)), dmin, mw + 4);
  }
};

struct FormatQ5_K : InOrder<4> {
  static constexpr std::size_t kBytes = 176;
  static constexpr int kZero = 0, kSubs = 8, kPieces = 4, kChunks = 4, kMost = 31;
  static constexpr bool kMin = true, kWide = false;
  template <int c>
  static void unpack(const Rows& r, std::size_t off, int j, Q (&out)[kPieces]) {
    const Q bit = qset1_8(16);
    for (int h = 0; h < 2; ++h) {
      const Q high = qload(r, j, off + 16 + 16 * static_cast<std::size_t>(h));
      const Q v = qload(r, j, off + 48 + 32 * c + 16 * static_cast<std::size_t>(h));
      out[h] = qor(low_nibble(v), qand(shift<4 - 2 * c>(high), bit));
      out[2 + h] = qor(high_nibble(v), qand(shift<3 - 2 * c>(high), bit));
    }
  }
  static void header(const Rows& r, std::size_t off, FG (&dw)[kSubs], FG (&mw)[kSubs]) {
    FormatQ4_K::header(r, off, dw, mw);
  }
};

struct FormatQ6_K : EveryOther {
  static constexpr std::size_t kBytes = 210;
  static constexpr int kZero = 32, kSubs = 16, kPieces = 4, kChunks = 4, kMost = 63;
  static constexpr bool kMin = false, kWide = false;
  template <int c>
  static void unpack(const Rows& r, std::size_t off, int j, Q (&out)[kPieces]) {
    constexpr std::size_t at = c / 2 * 64 + c % 2 * 16;
    const Q two = qset1_8(0x30);
    const Q a = qload(r, j, off + at), b = qload(r, j, off + at + 32), high = qload(r, j, off + 128 + 16 * c);
    out[0] = qor(low_nibble(a), qand(shift<4>(high), two));
    out[1] = qor(low_nibble(b), qand(shift<2>(high), two));
    out[2] = qor(high_nibble(a), qand(high, two));
    out[3] = qor(high_nibble(b), qand(shift<-2>(high), two));
  }
  static void header(const Rows& r, std::size_t off, FG (&dw)[kSubs], FG (&)[kSubs]) {
    Q w[4];
    load_dwords(r, off + 192, w);
    const FG d = fg_half_high(qload_dword(r, off + 206));
    for (int i = 0; i < 4; ++i) {
      dw[4 * i] = fg_mul(d, fg_from_int(signed_byte_of<0>(w[i])));
      dw[4 * i + 1] = fg_mul(d, fg_from_int(signed_byte_of<1>(w[i])));
      dw[4 * i + 2] = fg_mul(d, fg_from_int(signed_byte_of<2>(w[i])));
      dw[4 * i + 3] = fg_mul(d, fg_from_int(signed_byte_of<3>(w[i])));
    }
  }
};

struct FormatIQ4_XS : InOrder<2> {
  static constexpr std::size_t kBytes = 136;
  static constexpr int kZero = kWideZero, kSubs = 8, kPieces = 2, kChunks = 8, kMost = 128;
  static constexpr bool kMin = false, kWide = true;
  template <int c>
  static void unpack(const Rows& r, std::size_t off, int j, Q (&out)[kPieces]) {
    const Q table = qwide(qtable(kIq4Table));
    const Q v = qload(r, j, off + 8 + 16 * c);
    out[0] = qlookup(table, low_nibble(v));
    out[1] = qlookup(table, high_nibble(v));
  }
  static void header(const Rows& r, std::size_t off, FG (&dw)[kSubs], FG (&)[kSubs]) {
    const Q a = qload_dword(r, off), low = qload_dword(r, off + 4);
    const FG d = fg_half_low(a);
    const auto scale = [&](Q l, Q h) {
      const Q six = qor(qand(l, qset1_32(15)), qand(h, qset1_32(0x30)));
      return fg_mul(d, fg_from_int(qsub32(six, qset1_32(32))));
    };
    dw[0] = scale(low, qshr32<12>(a));
    dw[1] = scale(qshr32<4>(low), qshr32<14>(a));
    dw[2] = scale(qshr32<8>(low), qshr32<16>(a));
    dw[3] = scale(qshr32<12>(low), qshr32<18>(a));
    dw[4] = scale(qshr32<16>(low), qshr32<20>(a));
    dw[5] = scale(qshr32<20>(low), qshr32<22>(a));
    dw[6] = scale(qshr32<24>(low), qshr32<24>(a));
    dw[7] = scale(qshr32<28>(low), qshr32<26>(a));
  }
};

}  // namespace
}  // namespace quipu::backends

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
// piece(c, i) tells the place in the block; header gives the scales s (and minima m) of the sub-blocks, which
// are integers, and the factors d (and -dmin), by row. kScaled: weights times their scales are
// summed up as integers, which are kMostScaled at most; else the sums are taken times the scales ----

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
/// The bytes of a dword, and those less 32.
inline void spread_bytes(Q w, Q* out) {
  out[0] = byte_of<0>(w);
  out[1] = byte_of<1>(w);
  out[2] = byte_of<2>(w);
  out[3] = byte_of<3>(w);
}
inline void spread_bytes_less_32(Q w, Q* out) {
  spread_bytes(w, out);
  for (int i = 0; i < 4; ++i) out[i] = qsub32(out[i], qset1_32(32));
}
inline void load_dwords(const Rows& r, std::size_t off, Q (&w)[4]) {
  for (int j = 0; j < 4; ++j) w[j] = qload(r, j, off);
  qtranspose(w[0], w[1], w[2], w[3]);
}

struct FormatQ2_K : EveryOther {
  static constexpr std::size_t kBytes = 84;
  static constexpr int kZero = 0, kSubs = 16, kPieces = 4, kChunks = 4, kMost = 3;
  static constexpr int kMostScaled = 45;
  static constexpr bool kScaled = true;
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
  static void header(const Rows& r, std::size_t off, Q (&s)[kSubs], Q (&m)[kSubs], FG& d, FG& minus_dmin) {
    Q w[4];
    load_dwords(r, off, w);
    FG dmin;
    fg_halves(qload_dword(r, off + 80), d, dmin);
    minus_dmin = fg_negate(dmin);
    for (int i = 0; i < 4; ++i) {
      spread_bytes(low_nibble(w[i]), s + 4 * i);
      spread_bytes(high_nibble(w[i]), m + 4 * i);
    }
  }
};

struct FormatQ3_K : EveryOther {
  static constexpr std::size_t kBytes = 110;
  static constexpr int kZero = 4, kSubs = 16, kPieces = 4, kChunks = 4, kMost = 7;
  static constexpr int kMostScaled = 128;
  static constexpr bool kScaled = true;
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
  static void header(const Rows& r, std::size_t off, Q (&s)[kSubs], Q (&)[kSubs], FG& d, FG&) {
    const Q a = qload_dword(r, off + 96), b = qload_dword(r, off + 100), top = qload_dword(r, off + 104);
    const Q two = qset1_8(0x30);
    d = fg_half_high(qload_dword(r, off + 106));
    spread_bytes_less_32(qor(low_nibble(a), qand(shift<4>(top), two)), s);
    spread_bytes_less_32(qor(low_nibble(b), qand(shift<2>(top), two)), s + 4);
    spread_bytes_less_32(qor(high_nibble(a), qand(top, two)), s + 8);
    spread_bytes_less_32(qor(high_nibble(b), qand(shift<-2>(top), two)), s + 12);
  }
};

struct FormatQ4_K : InOrder<4> {
  static constexpr std::size_t kBytes = 144;
  static constexpr int kZero = 0, kSubs = 8, kPieces = 4, kChunks = 4, kMost = 15;
  static constexpr bool kScaled = false;
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
  static void header(const Rows& r, std::size_t off, Q (&s)[kSubs], Q (&m)[kSubs], FG& d, FG& minus_dmin) {
    Q w[4];
    load_dwords(r, off, w);
    const Q six = qset1_8(0x3f), two = qset1_8(0x30);
    FG dmin;
    fg_halves(w[0], d, dmin);
    minus_dmin = fg_negate(dmin);
    spread_bytes(qand(w[1], six), s);
    spread_bytes(qor(low_nibble(w[3]), qand(qshr16<2>(w[1]), two)), s + 4);
    spread_bytes(qand(w[2], six), m);
    spread_bytes(qor(high_nibble(w[3]), qand(qshr16<2>(w[2]), two)), m + 4);
  }
};

struct FormatQ5_K : InOrder<4> {
  static constexpr std::size_t kBytes = 176;
  static constexpr int kZero = 0, kSubs = 8, kPieces = 4, kChunks = 4, kMost = 31;
  static constexpr int kMostScaled = 1953;
  static constexpr bool kScaled = true;
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
  static void header(const Rows& r, std::size_t off, Q (&s)[kSubs], Q (&m)[kSubs], FG& d, FG& minus_dmin) {
    FormatQ4_K::header(r, off, s, m, d, minus_dmin);
  }
};

struct FormatQ6_K : EveryOther {
  static constexpr std::size_t kBytes = 210;
  static constexpr int kZero = 32, kSubs = 16, kPieces = 4, kChunks = 4, kMost = 63;
  static constexpr int kMostScaled = 4096;
  static constexpr bool kScaled = true;
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
  static void header(const Rows& r, std::size_t off, Q (&s)[kSubs], Q (&)[kSubs], FG& d, FG&) {
    Q w[4];
    load_dwords(r, off + 192, w);
    d = fg_half_high(qload_dword(r, off + 206));
    for (int i = 0; i < 4; ++i) {
      s[4 * i] = signed_byte_of<0>(w[i]);
      s[4 * i + 1] = signed_byte_of<1>(w[i]);
      s[4 * i + 2] = signed_byte_of<2>(w[i]);
      s[4 * i + 3] = signed_byte_of<3>(w[i]);
    }
  }
};

struct FormatIQ4_XS : InOrder<2> {
  static constexpr std::size_t kBytes = 136;
  static constexpr int kZero = kWideZero, kSubs = 8, kPieces = 2, kChunks = 8, kMost = 128;
  static constexpr int kMostScaled = 4064;
  static constexpr bool kScaled = true;
  static constexpr bool kMin = false, kWide = true;
  template <int c>
  static void unpack(const Rows& r, std::size_t off, int j, Q (&out)[kPieces]) {
    const Q table = qwide(qtable(kIq4Table));
    const Q v = qload(r, j, off + 8 + 16 * c);
    out[0] = qlookup(table, low_nibble(v));
    out[1] = qlookup(table, high_nibble(v));
  }
  static void header(const Rows& r, std::size_t off, Q (&s)[kSubs], Q (&)[kSubs], FG& d, FG&) {
    const Q a = qload_dword(r, off), low = qload_dword(r, off + 4);
    d = fg_half_low(a);
    const auto scale = [](Q l, Q h) {
      return qsub32(qor(qand(l, qset1_32(15)), qand(h, qset1_32(0x30))), qset1_32(32));
    };
    s[0] = scale(low, qshr32<12>(a));
    s[1] = scale(qshr32<4>(low), qshr32<14>(a));
    s[2] = scale(qshr32<8>(low), qshr32<16>(a));
    s[3] = scale(qshr32<12>(low), qshr32<18>(a));
    s[4] = scale(qshr32<16>(low), qshr32<20>(a));
    s[5] = scale(qshr32<20>(low), qshr32<22>(a));
    s[6] = scale(qshr32<24>(low), qshr32<24>(a));
    s[7] = scale(qshr32<28>(low), qshr32<26>(a));
  }
};

}  // namespace
}  // namespace quipu::backends

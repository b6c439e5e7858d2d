// Quantised rows of keys and values as floats: exactly what the reference codecs (tensor/codecs) give.

namespace quipu::backends {
namespace {

/// out = d * code of 32 codes.
inline void scale_codes(const std::int8_t* codes, float d, float* out) {
  for (std::size_t i = 0; i < 32; i += 16) store(out + i, load_int8(codes + i) * set1(d));
}

/// Blocks of 32: a scale, a minimum, fifth bits, and codes of four bits, element i beside element i + 16.
template <std::size_t block_bytes, bool has_minimum, bool fifth, int zero>
inline void load_blocks(const std::byte* row, std::size_t n, float* out) {
  constexpr std::size_t fifth_at = has_minimum ? 4 : 2, codes_at = fifth_at + (fifth ? 4 : 0);
  constexpr std::uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  for (std::size_t b = 0; b < n / 32; ++b) {
    const std::byte* block = row + b * block_bytes;
    const I16 packed = load_uint8(reinterpret_cast<const std::uint8_t*>(block + codes_at));
    const V16 d = set1(half_at(block)), m = set1(has_minimum ? half_at(block + 2) : 0);
    for (int half = 0; half < 2; ++half) {
      V16 code = to_float((half == 0 ? packed & iset1(15) : sar<4>(packed)) - iset1(zero));
      if constexpr (fifth) {
        std::uint8_t bytes[16];
        for (std::size_t i = 0; i < 16; ++i)
          bytes[i] =
              std::to_integer<std::uint8_t>(block[fifth_at + 2 * static_cast<std::size_t>(half) + i / 8]);
        const V16 set = to_float(load_uint8(bytes) & load_uint8(bit));
        code = code + select_less(set1(0), set, set1(16), set1(0));
      }
      const V16 x = code * d;
      store(out + 32 * b + 16 * half, has_minimum ? x + m : x);
    }
  }
}

inline void load_iq4_nl(const std::byte* row, std::size_t n, float* out) {
  for (std::size_t b = 0; b < n / 32; ++b) {
    const std::byte* block = row + b * 18;
    std::int8_t codes[32];
    lookup_halves(kIq4Table, reinterpret_cast<const std::uint8_t*>(block + 2), codes);
    scale_codes(codes, half_at(block), out + 32 * b);
  }
}

/// One stored row of keys or values of any type as floats, zero-padded to 16.
inline void load_any_row(KvType type, const std::byte* row, std::size_t n, float* out) {
  switch (type) {
    case KvType::q8_0:
      for (std::size_t b = 0; b < n / 32; ++b)
        scale_codes(reinterpret_cast<const std::int8_t*>(row + b * 34 + 2), half_at(row + b * 34),
                    out + 32 * b);
      break;
    case KvType::q4_0:
      load_blocks<18, false, false, 8>(row, n, out);
      break;
    case KvType::q4_1:
      load_blocks<20, true, false, 0>(row, n, out);
      break;
    case KvType::q5_0:
      load_blocks<22, false, true, 16>(row, n, out);
      break;
    case KvType::q5_1:
      load_blocks<24, true, true, 0>(row, n, out);
      break;
    case KvType::iq4_nl:
      load_iq4_nl(row, n, out);
      break;
    default:
      load_row(type, row, n, out);
  }
}

}  // namespace
}  // namespace quipu::backends

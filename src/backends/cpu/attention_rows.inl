// Stored rows of keys and values as floats.

namespace quipu::backends {
namespace {

/// One stored row of F32, F16 or BF16 as floats, zero-padded to 16.
inline void load_row(KvType type, const std::byte* row, std::size_t n, float* out) {
  const auto* half = reinterpret_cast<const std::uint16_t*>(row);
  switch (type) {
    case KvType::f32:
      for_lanes(n, [&](std::size_t i, std::size_t m) {
        store(out + i, load_part(reinterpret_cast<const float*>(row) + i, m));
      });
      break;
    case KvType::f16:
      for_lanes(n, [&](std::size_t i, std::size_t m) {
        store(out + i, m == 16 ? load_f16(half + i) : load_f16_n(half + i, m));
      });
      break;
    case KvType::bf16:
      for_lanes(n, [&](std::size_t i, std::size_t m) {
        store(out + i, m == 16 ? load_bf16(half + i) : load_bf16_n(half + i, m));
      });
      break;
    default:
      break;
  }
}

}  // namespace
}  // namespace quipu::backends

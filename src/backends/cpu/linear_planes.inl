// Panels for linear_many.inl on Arm: weights as signed bytes, less their zero point, and activations in two
// planes, so that sixteen (i8mm: thirty-two) products take an instruction. A sub-block's sum is 16 times the
// high plane's and the low plane's.

namespace quipu::backends {
namespace {

/// Where element k of a row's low plane lies.
constexpr std::size_t plane_at(std::size_t k) { return k / 32 * 64 + k % 32; }

#if defined(__ARM_FEATURE_MATMUL_INT8)

/// Pairs of rows by eight weights: what one side of a 2 x 8 by 8 x 2 product takes.
struct ManyRows {
  static constexpr bool kWords = false;
  static constexpr std::size_t kLeastRows = 8;
  static constexpr std::size_t kBytesPerWeight = 1;
  static constexpr int kTokens = 4;

  template <class F>
  static void put(std::byte* weights, std::size_t dword, Q bytes) {
    const uint32x4_t v = dwords(qsub8(bytes, qset1_8(F::kZero)));
    std::byte* to = weights + dword / 2 * 32 + dword % 2 * 4;
    const auto lane = [to](std::uint32_t x, std::size_t row) { __builtin_memcpy(to + 8 * row, &x, 4); };
    lane(vgetq_lane_u32(v, 0), 0);
    lane(vgetq_lane_u32(v, 1), 1);
    lane(vgetq_lane_u32(v, 2), 2);
    lane(vgetq_lane_u32(v, 3), 3);
  }

  template <std::size_t width, int panels, int tokens>
  static void add(const std::byte* const* weights, std::size_t sub, const std::int8_t* q, std::size_t stride,
                  Q (&sum)[panels][tokens]) {
    constexpr int couples = (tokens + 1) / 2;
    int32x4_t tile[panels][couples][2];  // rows 0 and 1, rows 2 and 3; in each [row][row of activations]
    for (auto& panel : tile)
      for (auto& couple : panel) couple[0] = couple[1] = vdupq_n_s32(0);
    const auto add_plane = [&](std::size_t plane) {
#pragma GCC unroll 4
      for (std::size_t k = 0; k < width; k += 8) {
        int8x16_t x[couples];
        for (int c = 0; c < couples; ++c) {
          const std::int8_t* row =
              q + static_cast<std::size_t>(2 * c) * stride + plane + plane_at(sub * width + k);
          const int8x8_t first = vld1_s8(row);
          x[c] = vcombine_s8(first, 2 * c + 1 < tokens ? vld1_s8(row + stride) : first);
        }
        for (int i = 0; i < panels; ++i) {
          const std::byte* w = weights[i] + (sub * width + k) * 4;
          for (int half = 0; half < 2; ++half) {
            const int8x16_t rows = signs(qget(w + 16 * half));
            for (int c = 0; c < couples; ++c) tile[i][c][half] = vmmlaq_s32(tile[i][c][half], rows, x[c]);
          }
        }
      }
    };
    add_plane(32);
    for (auto& panel : tile)
      for (auto& couple : panel)
        for (int32x4_t& part : couple) part = vshlq_n_s32(part, 4);
    add_plane(0);
    for (int i = 0; i < panels; ++i)
      for (int t = 0; t < tokens; ++t) {
        const int32x4_t a = tile[i][t / 2][0], b = tile[i][t / 2][1];
        sum[i][t] = bytes(t % 2 == 0 ? vuzp1q_s32(a, b) : vuzp2q_s32(a, b));
      }
  }
};

#else

/// Dword i of every row side by side.
struct ManyRows {
  static constexpr bool kWords = false;
  static constexpr std::size_t kLeastRows = 8;
  static constexpr std::size_t kBytesPerWeight = 1;
  static constexpr int kTokens = 4;

  template <class F>
  static void put(std::byte* weights, std::size_t dword, Q bytes) {
    qput(weights + dword * 16, qsub8(bytes, qset1_8(F::kZero)));
  }

  template <std::size_t width, int panels, int tokens>
  static void add(const std::byte* const* weights, std::size_t sub, const std::int8_t* q, std::size_t stride,
                  Q (&sum)[panels][tokens]) {
    int32x4_t s[panels][tokens];
    for (auto& panel : s)
      for (int32x4_t& one : panel) one = vdupq_n_s32(0);
    const auto add_plane = [&](std::size_t plane) {
      for (std::size_t k = 0; k < width; k += 16) {
        int8x16_t x[tokens];
        for (int t = 0; t < tokens; ++t)
          x[t] = vld1q_s8(q + static_cast<std::size_t>(t) * stride + plane + plane_at(sub * width + k));
        for (int i = 0; i < panels; ++i) {
          const std::byte* w = weights[i] + (sub * width + k) * 4;
          const int8x16_t w0 = signs(qget(w)), w1 = signs(qget(w + 16)), w2 = signs(qget(w + 32)),
                          w3 = signs(qget(w + 48));
          for (int t = 0; t < tokens; ++t) {
            s[i][t] = vdotq_laneq_s32(s[i][t], w0, x[t], 0);
            s[i][t] = vdotq_laneq_s32(s[i][t], w1, x[t], 1);
            s[i][t] = vdotq_laneq_s32(s[i][t], w2, x[t], 2);
            s[i][t] = vdotq_laneq_s32(s[i][t], w3, x[t], 3);
          }
        }
      }
    };
    add_plane(32);
    for (auto& panel : s)
      for (int32x4_t& one : panel) one = vshlq_n_s32(one, 4);
    add_plane(0);
    for (int i = 0; i < panels; ++i)
      for (int t = 0; t < tokens; ++t) sum[i][t] = bytes(s[i][t]);
  }
};

#endif

}  // namespace
}  // namespace quipu::backends

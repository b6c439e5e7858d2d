// One table of kernels per instruction set, chosen once. Only plain types: the files compiled for an
// instruction set must not instantiate inline functions that the rest of the program shares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quipu {
enum class Isa;
}

namespace quipu::backends {

/// Values that share a scale of activations; the last group of a row may be shorter.
inline constexpr std::size_t kSlab = 256;
constexpr std::size_t slabs(std::size_t width) { return (width + kSlab - 1) / kSlab; }

/// Activations of a linear with quantised weights: 12-bit integers q in groups of kSlab (docs/numerics.md),
/// as two int8 planes, q = 16 hi + lo, or as words. Width is a multiple of 32.
struct QuantizedRows {
  /// [rows][stride]. Planes: of every 32 values 32 bytes lo, 32 bytes hi. Words: int16, of every four values
  /// 0, 2, 1, 3.
  std::int8_t* q = nullptr;
  bool words = false;
  /// [rows][wide_stride(width)], null where nothing reads it: the planes again, as WideSlab.
  std::int8_t* wide = nullptr;
  float* d = nullptr;             ///< [rows][slabs(width)] scales
  std::int32_t* sum32 = nullptr;  ///< [rows][width / 32] sums of q
  std::int32_t* sum16 = nullptr;  ///< [rows][width / 16]
  float* fsum = nullptr;          ///< [rows][width / 32] float(sum32)
  std::size_t stride = 0;         ///< bytes: 2 * width and padding to an odd multiple of 64 (cache sets)
  std::size_t width = 0;
};
/// A slab for tiles. Sums of q are there twice as bfloat16 numbers, a multiple of 256 and the rest, those of
/// sub-blocks i and i + 4 (of 16 values: i and i + 8) side by side: first all multiples, then all rests.
struct WideSlab {
  struct {
    std::int8_t low[64], high[64];
  } planes[kSlab / 64];
  std::uint16_t sums16[32], sums32[32];
};
constexpr std::size_t wide_stride(std::size_t width) { return width / kSlab * sizeof(WideSlab) + 64; }
constexpr std::size_t quantized_stride(std::size_t width) { return 2 * width + (width % 64 == 0 ? 64 : 0); }

/// One thread's share of a linear: output columns [n_begin, n_end) of all rows.
struct LinearArgs {
  const std::uint8_t* weight = nullptr;
  std::size_t row_bytes = 0;
  std::size_t k = 0;
  std::size_t n_begin = 0, n_end = 0, n = 0;
  /// What is read after the rows up to n_end, to be asked for early; null: what lies behind them.
  const std::uint8_t* next = nullptr;
  const QuantizedRows* x = nullptr;  ///< quantised weights
  const float* xf = nullptr;         ///< float weights: [rows][k]
  std::size_t rows = 0;
  float* y = nullptr;  ///< [rows][n]
  const float* bias = nullptr;
  const float* residual = nullptr;  ///< [rows][n], added after the bias; may be y itself
  std::byte* scratch = nullptr;     ///< linear_scratch bytes of this thread, 64-aligned
  /// Experts: row t of the call is row map[t] of y, and row map[t] / map_share of xf. Null: row t of both.
  const std::uint32_t* map = nullptr;
  std::uint32_t map_share = 1;
};

/// One row of a router (graph::MoeRoute).
struct RouteArgs {
  const float* logits = nullptr;        ///< [experts]
  const float* bias = nullptr;          ///< [experts] or null
  const float* expert_scale = nullptr;  ///< [experts] or null
  float* out = nullptr;                 ///< [used] numbers, [used] weights
  std::size_t experts = 0, used = 0, groups = 1, groups_used = 1, group_top = 1;
  int gating = 0;  ///< graph::Gating as an integer
  bool renormalise = false;
  float scale = 1;
  float* work = nullptr;  ///< [2 * experts + groups], 64-aligned
};

struct RopeArgs {
  const float* x = nullptr;
  float* y = nullptr;
  const float* cos = nullptr;  ///< [pairs]
  const float* sin = nullptr;
  std::size_t heads = 0, head_dim = 0, pairs = 0;
  std::size_t first = 0;  ///< element of a head at which the turned ones begin
  bool neox = false;
};

enum class KvType : std::uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl };

/// Rows of queries that share one key/value head: attention over positions of one sequence.
struct AttentionArgs {
  const float* q = nullptr;           ///< first query row's first head of this group
  std::size_t q_stride = 0;           ///< floats between tokens
  float* out = nullptr;               ///< where the first row's first head goes
  std::size_t out_stride = 0;         ///< floats between tokens
  std::size_t tokens = 0, group = 0;  ///< query rows: tokens x heads of the group
  std::int64_t first_position = 0;    ///< of the first token
  std::size_t head_dim = 0, v_dim = 0;
  const std::byte* k = nullptr;  ///< page 0's rows of this key/value head
  const std::byte* v = nullptr;
  std::size_t k_page_bytes = 0, v_page_bytes = 0, k_row_bytes = 0, v_row_bytes = 0;
  KvType k_type = KvType::f16, v_type = KvType::f16;
  const std::uint32_t* pages = nullptr;
  float scale = 1, soft_cap = 0;
  std::int64_t window = 0;
  std::int64_t end =
      0;  ///< > 0: not causal, every row sees the positions below it (within window / 2 of its own)
  std::int64_t begin = 0;         ///< positions below it are not seen
  std::int64_t run = 0;           ///< > 0: a row sees its own run of so many positions
  const float* sinks = nullptr;   ///< [group] or null
  const float* slopes = nullptr;  ///< [group] or null
  /// Null, or [group][2 * bias_reach + 1] biases by distance, from -bias_reach on.
  const float* biases = nullptr;
  std::int64_t bias_reach = 0;
  /// Chunks of 512 positions to walk: all of them into `out`, or one into `partial`.
  std::int64_t chunk_begin = 0, chunk_end = INT64_MAX;
  float* partial = nullptr;  ///< [tokens * group][v_dim16 + 16]: weighted values, then maximum and sum
  std::byte* scratch = nullptr;
};

struct Kernels {
  const char* name;
  int group;  ///< rows of a weight group: shares of a linear begin at multiples of 16

  void (*rms_norm)(const float* x, const float* weight, float* y, std::size_t n, float eps);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float* y, std::size_t n,
                     float eps);
  /// `activation` is graph::Activation as an integer.
  void (*activate)(int activation, const float* x, float* y, std::size_t n);
  /// `limit` and `shift` as in graph::Glu.
  void (*glu)(int activation, const float* gate, const float* up, float* y, std::size_t n, float limit,
              float shift);
  /// `settings`: alpha_p, alpha_n, beta, eps of graph::Xielu.
  void (*xielu)(const float* x, const float* settings, float* y, std::size_t n);
  /// graph::GaussianTopK.
  void (*gaussian_top_k)(const float* x, float deviations, float* y, std::size_t n);
  void (*add)(const float* a, const float* b, float* y, std::size_t n);
  void (*mul)(const float* a, const float* b, float* y, std::size_t n);
  void (*scale)(const float* x, float factor, float* y, std::size_t n);
  /// y = fma(factor, b, a).
  void (*add_scaled)(const float* a, const float* b, float factor, float* y, std::size_t n);
  /// y = sum over j, ascending, of weights[j] * x[j * stride + i].
  void (*weighted_sum)(const float* x, std::size_t stride, const float* weights, std::size_t count, float* y,
                       std::size_t n);
  void (*route)(const RouteArgs&);
  void (*rope)(const RopeArgs&);
  /// Row `row` of `out` from `x`.
  void (*quantize)(const float* x, const QuantizedRows& out, std::size_t row);
  /// The norm of a row of out.width and its quantised form in one pass; y: null, or the norm as floats too.
  void (*rms_norm_quantize)(const float* x, const float* weight, float* y, float eps,
                            const QuantizedRows& out, std::size_t row);
  void (*layer_norm_quantize)(const float* x, const float* weight, const float* bias, float* y, float eps,
                              const QuantizedRows& out, std::size_t row);
  /// Linears of at least so many rows take words, fewer take planes.
  std::size_t word_rows;
  /// Linears of at least so many rows with super-blocks take the planes by 64 values, too.
  std::size_t wide_rows;
  void (*store_f16)(const float* x, std::uint16_t* y, std::size_t n);
  void (*store_bf16)(const float* x, std::uint16_t* y, std::size_t n);
  /// Most query rows of one call: enough to share what is done once a span, few enough to balance.
  std::size_t query_rows;
  void (*attention)(const AttentionArgs&);
  /// Merges `chunks` partial states, `stride` floats apart, and writes one output row.
  void (*attention_merge)(const float* partial, std::size_t chunks, std::size_t stride, std::size_t v_dim,
                          const float* sink, float* out);
  /// By kernel slot of the weight's dtype (weight_slot), null where there is none.
  void (*linear[16])(const LinearArgs&);
};

/// Slot of a weight dtype (GGUF number) in `Kernels::linear`, -1 when there is no kernel.
constexpr int weight_slot(std::uint32_t dtype) {
  switch (dtype) {
    case 0:
      return 0;  // F32
    case 1:
      return 1;  // F16
    case 30:
      return 2;  // BF16
    case 2:
      return 3;  // Q4_0
    case 3:
      return 4;  // Q4_1
    case 6:
      return 5;  // Q5_0
    case 7:
      return 6;  // Q5_1
    case 8:
      return 7;  // Q8_0
    case 20:
      return 8;  // IQ4_NL
    case 39:
      return 9;  // MXFP4
    case 10:
      return 10;  // Q2_K
    case 11:
      return 11;  // Q3_K
    case 12:
      return 12;  // Q4_K
    case 13:
      return 13;  // Q5_K
    case 14:
      return 14;  // Q6_K
    case 23:
      return 15;  // IQ4_XS
    default:
      return -1;
  }
}

constexpr bool is_quantized_slot(int slot) { return slot >= 3; }

/// How `rows` rows of one linear are stored, of what `all` has room for.
inline QuantizedRows stored_for(QuantizedRows all, std::size_t rows, const Kernels& kernels) {
  all.words = rows >= kernels.word_rows;
  if (rows < kernels.wide_rows) all.wide = nullptr;
  return all;
}

/// AMX: fewer rows than this are left to the AVX-512 kernels (a tile of few rows costs as much as a full
/// one).
inline constexpr std::size_t kAmxRows = 9;
/// Panels of 16 columns unpacked at a time: as many as fit in half of a 2 MiB L2 with their scales, an even
/// number.
inline constexpr std::size_t kAmxMaxPanels = 8, kAmxPanelBytes = 42;  ///< bytes a weight of 16 columns
constexpr std::size_t amx_panels(std::size_t k) {
  const std::size_t fit = (std::size_t{1} << 20) / (k * kAmxPanelBytes) / 2 * 2;
  return fit < 2 ? 2 : fit > kAmxMaxPanels ? kAmxMaxPanels : fit;
}
/// Two panels of kPanelWeights (two bytes each; of a chunk of K, as they stay in L1), their scales and
/// minima, accumulators of kPanelBlock rows.
inline constexpr std::size_t kPanelWeights = 4096, kPanelBlock = 512;
constexpr std::size_t panel_scratch(std::size_t k) {
  return 2 * kPanelWeights * 2 + 2 * 3 * (k / 16) * 64 + 2 * kPanelBlock * 64;
}
/// Tiles of 16 activation rows and panels whose slabs stay in L1 together.
inline constexpr std::size_t kAmxTiles = 2, kAmxTogether = 2;
/// Scratch bytes per thread for a linear of width k.
constexpr std::size_t linear_scratch(std::size_t k) {
  const std::size_t tiles = (k + 256) * (kAmxTiles * 8 + 80) + amx_panels(k) * k * kAmxPanelBytes +
                            kAmxMaxPanels * kAmxTiles * 1024;
  return tiles > panel_scratch(k) ? tiles : panel_scratch(k);
}
/// Float weights without AVX-512: a chunk of K of 16 weight rows at most, the sums of a block of rows of
/// activations (sixteen lanes each), the block itself; 16 floats between lanes.
inline constexpr std::size_t kFloatPanelChunk = 1024, kFloatPanelBlock = 60;
constexpr std::size_t float_scratch(std::size_t k) {
  const std::size_t width = (k + 15) / 16 * 16, chunks = (width + kFloatPanelChunk - 1) / kFloatPanelChunk;
  return ((kFloatPanelChunk + 16 + kFloatPanelBlock * 16) * 16 + kFloatPanelBlock * width + chunks * 256) *
         sizeof(float);
}
/// The same for BF16 weights: AMX packs 128 rows of activations in two planes, and 32 weight rows.
constexpr std::size_t bf16_scratch(std::size_t k) { return (k + 32) * (128 * 4 + 32 * 2) + 4096; }
/// What a linear with weights of a slot (`weight_slot`), k wide, needs.
constexpr std::size_t slot_scratch(const Kernels& kernels, int slot, std::size_t k) {
  std::size_t bytes = linear_scratch(k);
  const auto least = [&](std::size_t n) { bytes = n > bytes ? n : bytes; };
  if (!is_quantized_slot(slot) && kernels.group < 16) least(float_scratch(k));
  if (slot == weight_slot(30)) least(bf16_scratch(k));
  return bytes;
}
/// For attention with these head sizes: floats of a span and queries.
constexpr std::size_t attention_scratch(std::size_t head_dim, std::size_t v_dim, std::size_t query_rows) {
  const std::size_t d = head_dim + 63, v = v_dim + 63, rows = query_rows + 15;
  return 4 * (64 * (d + v + (d > v ? d : v)) + rows * (d + 2 * v + 4)) + 16384;
}

const Kernels& kernels_baseline();
#if defined(__x86_64__)
const Kernels& kernels_avx2();
const Kernels& kernels_avxvnni();
const Kernels& kernels_avx512();
const Kernels& kernels_amx();
#elif defined(__aarch64__)
const Kernels& kernels_neon();
const Kernels& kernels_i8mm();
#endif
/// The table of an instruction set of this machine.
const Kernels& kernels_for(Isa isa);

}  // namespace quipu::backends

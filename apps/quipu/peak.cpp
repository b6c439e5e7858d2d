#include "peak.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/cpu_features.hpp"
#include "core/threads.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace quipu::app {
namespace {

using Clock = std::chrono::steady_clock;

/// Keeps the optimiser from dropping a result.
void use(std::uint64_t value) { asm volatile("" : : "r"(value)); }

template <class Work>
double best_seconds(ThreadPool& pool, int repetitions, const Work& work) {
  double best = 1e30;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = Clock::now();
    pool.run([&](int thread) { work(thread); });
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

/// Sums words so that every cache line is read; eight sums, so that the adds do not limit it.
std::uint64_t read_all(const std::uint64_t* data, std::size_t words) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= words; i += 8)
    for (std::size_t k = 0; k < 8; ++k) sums[k] += data[i + k];
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

constexpr long kIterations = 400'000;

#if defined(__x86_64__)

__attribute__((target("avx2"))) std::uint64_t read_all_avx2(const std::uint64_t* data, std::size_t words) {
  __m256i sums[4] = {};
  for (std::size_t i = 0; i + 16 <= words; i += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 256), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 264), _MM_HINT_T0);
    for (std::size_t k = 0; k < 4; ++k)
      sums[k] =
          _mm256_xor_si256(sums[k], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 4 * k)));
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// Eight full tiles.
__attribute__((target("amx-tile"))) void configure_tiles() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = 16;
    config.row_bytes[i] = 64;
  }
  asm volatile("" ::"m"(config) : "memory");  // all of it is stored before the load below reads it
  _tile_loadconfig(&config);
}

/// Operations: four tile products of 16 x 16 x 64 an iteration.
__attribute__((target("amx-tile,amx-int8"))) void multiply_tiles(int) {
  configure_tiles();
  for (long i = 0; i < kIterations; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_release();
}
constexpr double kTileOperations = 4.0 * 16 * 16 * 64 * 2;

/// The same of bfloat16: 16 x 16 x 32. What tiles hold after their configuration is 0.
__attribute__((target("amx-tile,amx-bf16"))) void multiply_tiles_bf16(int) {
  configure_tiles();
  for (long i = 0; i < kIterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}
constexpr double kTileBf16Operations = 4.0 * 16 * 16 * 32 * 2;

__attribute__((target("avx512f,avx512bw,avx512vnni"))) void multiply_avx512(int seed) {
  __m512i sums[8] = {};
  __m512i a = _mm512_set1_epi8(static_cast<char>(seed)), b = _mm512_set1_epi8(3);
  for (long i = 0; i < kIterations * 4; ++i) {
    for (auto& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, a, b);
      asm volatile("" : "+v"(a), "+v"(b));  // another product each time, as far as the compiler knows
    }
  }
  __m512i all = sums[0];
  for (int k = 1; k < 8; ++k) all = _mm512_xor_si512(all, sums[k]);
  std::uint64_t words[8];
  std::memcpy(words, &all, sizeof words);
  use(words[0]);
}
constexpr double kAvx512Operations = 4.0 * 8 * 64 * 2;

__attribute__((target("avx2"))) void multiply_avx2(int seed) {
  __m256i sums[4] = {};
  __m256i a = _mm256_set1_epi8(static_cast<char>(seed)), b = _mm256_set1_epi8(3);
  const __m256i ones = _mm256_set1_epi16(1);
  for (long i = 0; i < kIterations * 4; ++i) {
    for (auto& sum : sums) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
      asm volatile("" : "+x"(a), "+x"(b));
    }
  }
  __m256i all = sums[0];
  for (int k = 1; k < 4; ++k) all = _mm256_xor_si256(all, sums[k]);
  use(static_cast<std::uint64_t>(_mm256_extract_epi32(all, 0)));
}
constexpr double kAvx2Operations = 4.0 * 4 * 32 * 2;

__attribute__((target("avx2,avxvnni"))) void multiply_avxvnni(int seed) {
  __m256i sums[8] = {};
  __m256i a = _mm256_set1_epi8(static_cast<char>(seed)), b = _mm256_set1_epi8(3);
  for (long i = 0; i < kIterations * 4; ++i) {
    for (auto& sum : sums) {
      sum = _mm256_dpbusd_avx_epi32(sum, a, b);
      asm volatile("" : "+x"(a), "+x"(b));
    }
  }
  __m256i all = sums[0];
  for (int k = 1; k < 8; ++k) all = _mm256_xor_si256(all, sums[k]);
  use(static_cast<std::uint64_t>(_mm256_extract_epi32(all, 0)));
}
constexpr double kAvxVnniOperations = 4.0 * 8 * 32 * 2;

// Sums of floats: as many chains as hide the latency of two units, small terms, so that no sum leaves the
// numbers.

__attribute__((target("avx512f"))) void fuse_avx512(int seed) {
  __m512 sums[8] = {};
  __m512 a = _mm512_set1_ps(static_cast<float>(seed)), b = _mm512_set1_ps(1e-6F);
  for (long i = 0; i < kIterations * 4; ++i)
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(a, b, sum);
      asm volatile("" : "+v"(a), "+v"(b));
    }
  for (int k = 1; k < 8; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
  use(static_cast<std::uint64_t>(_mm512_cvtss_f32(sums[0])));
}
constexpr double kFuseAvx512Operations = 4.0 * 8 * 16 * 2;

__attribute__((target("avx2,fma"))) void fuse_avx2(int seed) {
  __m256 sums[8] = {};
  __m256 a = _mm256_set1_ps(static_cast<float>(seed)), b = _mm256_set1_ps(1e-6F);
  for (long i = 0; i < kIterations * 4; ++i)
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(a, b, sum);
      asm volatile("" : "+x"(a), "+x"(b));
    }
  for (int k = 1; k < 8; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
  use(static_cast<std::uint64_t>(_mm256_cvtss_f32(sums[0])));
}
constexpr double kFuseAvx2Operations = 4.0 * 8 * 8 * 2;

#elif defined(__aarch64__)

__attribute__((target("arch=armv8.2-a+dotprod"))) void multiply_neon(int seed) {
  int32x4_t sums[8] = {};
  int8x16_t a = vdupq_n_s8(static_cast<std::int8_t>(seed)), b = vdupq_n_s8(3);
  for (long i = 0; i < kIterations * 4; ++i)
    for (auto& sum : sums) {
      sum = vdotq_s32(sum, a, b);
      asm volatile("" : "+w"(a), "+w"(b));
    }
  for (int k = 1; k < 8; ++k) sums[0] = veorq_s32(sums[0], sums[k]);
  use(static_cast<std::uint64_t>(vgetq_lane_s32(sums[0], 0)));
}
constexpr double kNeonOperations = 4.0 * 8 * 16 * 2;

__attribute__((target("arch=armv8.2-a+i8mm"))) void multiply_i8mm(int seed) {
  int32x4_t sums[8] = {};
  int8x16_t a = vdupq_n_s8(static_cast<std::int8_t>(seed)), b = vdupq_n_s8(3);
  for (long i = 0; i < kIterations * 4; ++i)
    for (auto& sum : sums) {
      sum = vmmlaq_s32(sum, a, b);
      asm volatile("" : "+w"(a), "+w"(b));
    }
  for (int k = 1; k < 8; ++k) sums[0] = veorq_s32(sums[0], sums[k]);
  use(static_cast<std::uint64_t>(vgetq_lane_s32(sums[0], 0)));
}
constexpr double kI8mmOperations = 4.0 * 8 * 32 * 2;

void fuse_neon(int seed) {
  float32x4_t sums[8] = {};
  float32x4_t a = vdupq_n_f32(static_cast<float>(seed)), b = vdupq_n_f32(1e-6F);
  for (long i = 0; i < kIterations * 4; ++i)
    for (auto& sum : sums) {
      sum = vfmaq_f32(sum, a, b);
      asm volatile("" : "+w"(a), "+w"(b));
    }
  for (int k = 1; k < 8; ++k) sums[0] = vaddq_f32(sums[0], sums[k]);
  use(static_cast<std::uint64_t>(vgetq_lane_f32(sums[0], 0)));
}
constexpr double kFuseNeonOperations = 4.0 * 8 * 4 * 2;

#endif

/// What the compiler makes of it for any processor.
void multiply_baseline(int seed) {
  std::int16_t a[16], b[16];
  std::int32_t sums[16] = {};
  for (int k = 0; k < 16; ++k) {
    a[k] = static_cast<std::int16_t>(seed + k);
    b[k] = static_cast<std::int16_t>(3 + k);
  }
  for (long i = 0; i < kIterations; ++i) {
    for (int k = 0; k < 16; ++k) sums[k] += a[k] * b[k];
    asm volatile("" : "+m"(a), "+m"(b));
  }
  use(static_cast<std::uint64_t>(sums[0] ^ sums[7]));
}
constexpr double kBaselineOperations = 16.0 * 2;

void fuse_baseline(int seed) {
  float a[16], b[16], sums[16] = {};
  for (int k = 0; k < 16; ++k) {
    a[k] = static_cast<float>(seed + k);
    b[k] = 1e-6F;
  }
  for (long i = 0; i < kIterations; ++i) {
    for (int k = 0; k < 16; ++k) sums[k] += a[k] * b[k];
    asm volatile("" : "+m"(a), "+m"(b));
  }
  use(static_cast<std::uint64_t>(sums[0] + sums[7]));
}

/// One thread's loop and the operations of each of its kIterations.
struct Loop {
  void (*run)(int seed);
  double operations;
};

Loop int8_loop([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::amx) return {multiply_tiles, kTileOperations};
  if (isa == Isa::avx512) return {multiply_avx512, kAvx512Operations};
  if (isa == Isa::avxvnni) return {multiply_avxvnni, kAvxVnniOperations};
  if (isa == Isa::avx2) return {multiply_avx2, kAvx2Operations};
#elif defined(__aarch64__)
  if (isa == Isa::neon) return {multiply_neon, kNeonOperations};
  if (isa == Isa::i8mm) return {multiply_i8mm, kI8mmOperations};
#endif
  return {multiply_baseline, kBaselineOperations};
}

Loop float_loop([[maybe_unused]] Isa isa, [[maybe_unused]] bool bf16) {
#if defined(__x86_64__)
  if (isa == Isa::amx && bf16) return {multiply_tiles_bf16, kTileBf16Operations};
  if (isa == Isa::amx || isa == Isa::avx512) return {fuse_avx512, kFuseAvx512Operations};
  if (isa == Isa::avxvnni || isa == Isa::avx2) return {fuse_avx2, kFuseAvx2Operations};
#elif defined(__aarch64__)
  if (isa != Isa::baseline) return {fuse_neon, kFuseNeonOperations};
#endif
  return {fuse_baseline, kBaselineOperations};
}

double operations_per_second(int threads, Loop loop) {
  ThreadPool pool(threads);
  const double seconds = best_seconds(pool, 20, [&](int thread) { loop.run(thread + 1); });
  return loop.operations * static_cast<double>(kIterations) * threads / seconds;
}

}  // namespace

double measure_read_bandwidth(int threads) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  constexpr std::size_t kWords = kBytes / sizeof(std::uint64_t);
  const auto data = std::make_unique<std::uint64_t[]>(kWords);
  ThreadPool pool(threads);
  // Each thread touches its own part first, so that the pages lie near it.
  pool.run([&](int thread) {
    const Range part = share(kWords, thread, threads, 4096);
    std::memset(data.get() + part.begin, 1, (part.end - part.begin) * sizeof(std::uint64_t));
  });
  const double seconds = best_seconds(pool, 5, [&](int thread) {
    const Range part = share(kWords, thread, threads, 4096);
#if defined(__x86_64__)
    if (detect_isa() >= Isa::avx2) return use(read_all_avx2(data.get() + part.begin, part.end - part.begin));
#endif
    use(read_all(data.get() + part.begin, part.end - part.begin));
  });
  return static_cast<double>(kBytes) / seconds;
}

double measure_int8_peak(int threads) { return operations_per_second(threads, int8_loop(detect_isa())); }

double measure_float_peak(int threads, bool bf16) {
  return operations_per_second(threads, float_loop(detect_isa(), bf16));
}

}  // namespace quipu::app

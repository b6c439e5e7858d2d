// What the vector types of AVX2 and AVX-512 have in common.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace quipu::backends {
namespace {

/// codes[i] and codes[i + 16]: the table's entries for the low and the high half of packed[i], i < 16.
inline void lookup_halves(const std::int8_t* table, const std::uint8_t* packed, std::int8_t* codes) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed)), mask = _mm_set1_epi8(15);
  auto* to = reinterpret_cast<__m128i*>(codes);
  _mm_storeu_si128(to, _mm_shuffle_epi8(entries, _mm_and_si128(v, mask)));
  _mm_storeu_si128(to + 1, _mm_shuffle_epi8(entries, _mm_and_si128(_mm_srli_epi16(v, 4), mask)));
}
inline float half_at(const void* p) {
  std::uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return _cvtsh_ss(bits);
}
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace quipu::backends

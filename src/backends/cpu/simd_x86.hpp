// What the vector types of AVX2 and AVX-512 have in common.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace quipu::backends {
namespace {

inline void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace quipu::backends

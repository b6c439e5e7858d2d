// AVX2's kernels with AVX-VNNI's dot products, which processors without AVX-512 have.
#include "backends/cpu/simd_avx2.hpp"

// The vector types first, then the kernels written over them.
#include "backends/cpu/linear_words.inl"

#include "backends/cpu/kernels_generic.inl"

namespace quipu::backends {

const Kernels& kernels_avxvnni() { return kKernels; }

}  // namespace quipu::backends

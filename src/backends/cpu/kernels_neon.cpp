#include "backends/cpu/simd_neon.hpp"

// The vector types first, then the kernels written over them.
#include "backends/cpu/linear_planes.inl"

#include "backends/cpu/kernels_generic.inl"

namespace quipu::backends {

const Kernels& kernels_neon() { return kKernels; }

}  // namespace quipu::backends

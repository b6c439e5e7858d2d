// Stands for the kernels that CMakeLists.txt leaves out of sanitizer builds, which nothing calls there.
#include "backends/cpu/kernels.hpp"

namespace quipu::backends {

#ifdef QUIPU_WITHOUT_AVXVNNI
const Kernels& kernels_avxvnni() { return kernels_baseline(); }
#endif
#ifdef QUIPU_WITHOUT_AVX512
const Kernels& kernels_avx512() { return kernels_baseline(); }
#endif
#ifdef QUIPU_WITHOUT_AMX
const Kernels& kernels_amx() { return kernels_baseline(); }
#endif

}  // namespace quipu::backends

// What this processor can do, and which kernels to use.
#pragma once

#include <string_view>

namespace quipu {

/// Kernel families, each a superset of the one before.
enum class Isa {
  baseline,  ///< whatever the compiler targets by default (SSE2, NEON)
  avx2,      ///< AVX2 + FMA + F16C
  avx512,    ///< AVX-512 F/BW/DQ/VL/VNNI/VBMI
  amx,       ///< avx512 + AMX tile, int8, bf16, permitted by the kernel
};

std::string_view to_string(Isa isa);

/// The best family this machine supports. The first call asks the kernel for AMX tile permission; refusal
/// means `avx512`.
Isa detect_isa();

/// `detect_isa()`, or the lower family named by `QUIPU_ISA` (baseline|avx2|avx512|amx). Throws `Error`
/// (invalid_argument) for an unknown name, (unsupported) for one the machine lacks.
Isa selected_isa();

}  // namespace quipu

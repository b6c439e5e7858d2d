// What this processor can do, and which kernels to use.
#pragma once

#include <span>
#include <string_view>

namespace quipu {

/// Kernel families of an architecture, ascending: where several are to be had, the last is the fastest.
enum class Isa {
  baseline,  ///< whatever the compiler targets by default (SSE2, Armv8)
  avx2,      ///< AVX2 + FMA + F16C
  avxvnni,   ///< avx2 + AVX-VNNI: processors without AVX-512, and some with it
  avx512,    ///< AVX-512 F/BW/DQ/VL/VNNI/VBMI
  amx,       ///< avx512 + AMX tile, int8, bf16, permitted by the kernel
  neon,      ///< Advanced SIMD with dot products (Armv8.2)
  i8mm,      ///< neon + products of 8-bit matrices (Armv8.6)
};

std::string_view to_string(Isa isa);

/// The families this machine supports, ascending from `baseline`. The first call asks the kernel for AMX tile
/// permission; where it refuses, `amx` is not among them.
std::span<const Isa> available_isas();

/// The last of `available_isas()`.
Isa detect_isa();

/// `detect_isa()`, or the family named by `QUIPU_ISA` (baseline|avx2|avxvnni|avx512|amx|neon|i8mm). Throws
/// `Error` (invalid_argument) for an unknown name, (unsupported) for one the machine lacks.
Isa selected_isa();

}  // namespace quipu

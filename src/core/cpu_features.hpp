// What this processor can do, and which kernels to use.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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

/// What an x86-64 processor and its operating system say: registers of CPUID (leaves that are not there: 0)
/// and the register files that are saved (XCR0).
struct X86Words {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t saved = 0;
};
/// The families these words give, ascending. `ask_for_tiles` is called where everything else speaks for AMX:
/// false when the kernel refuses.
std::vector<Isa> isas_of(const X86Words& words, bool (*ask_for_tiles)());

/// The last of `available_isas()`.
Isa detect_isa();

/// `detect_isa()`, or the family named by `QUIPU_ISA` (baseline|avx2|avxvnni|avx512|amx|neon|i8mm). Throws
/// `Error` (invalid_argument) for an unknown name, (unsupported) for one the machine lacks.
Isa selected_isa();

}  // namespace quipu

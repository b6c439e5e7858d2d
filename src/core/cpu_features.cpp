#include "core/cpu_features.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "core/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace quipu {
namespace {

constexpr std::array kAllIsas{Isa::baseline, Isa::avx2, Isa::avxvnni, Isa::avx512,
                              Isa::amx,      Isa::neon, Isa::i8mm};

constexpr bool has(std::uint32_t word, int bit) { return (word >> bit & 1U) != 0; }
constexpr int kOsxsave = 27;  // of leaf 1, ECX: XCR0 can be read

#if defined(__x86_64__)

// Which register files the operating system saves (XCR0). Inline assembly, because the intrinsic needs a
// target flag that this file must not be built with.
std::uint64_t enabled_state() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

// Linux gives out the 8 KiB of tile state only to processes that ask for it.
bool request_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILE_DATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::vector<Isa> detect() {
  X86Words words;
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) words.leaf1_ecx = ecx;
  if (has(words.leaf1_ecx, kOsxsave)) words.saved = enabled_state();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    words.leaf7_ebx = ebx;
    words.leaf7_ecx = ecx;
    words.leaf7_edx = edx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  }
  return isas_of(words, request_tiles);
}

#elif defined(__aarch64__) && defined(__linux__)

// Linux, Documentation/arch/arm64/elf_hwcaps.rst; numbers as in uapi/asm/hwcap.h.
std::vector<Isa> detect() {
  constexpr unsigned long kDotProducts = 1UL << 20, kMatrices = 1UL << 13;
  if ((::getauxval(AT_HWCAP) & kDotProducts) == 0) return {Isa::baseline};
  if ((::getauxval(AT_HWCAP2) & kMatrices) == 0) return {Isa::baseline, Isa::neon};
  return {Isa::baseline, Isa::neon, Isa::i8mm};
}

#else

std::vector<Isa> detect() { return {Isa::baseline}; }

#endif

}  // namespace

// Bit numbers: Intel SDM volume 2, CPUID leaves 1 and 7; volume 1, chapter 13 (XCR0).
std::vector<Isa> isas_of(const X86Words& words, bool (*ask_for_tiles)()) {
  std::vector<Isa> here{Isa::baseline};
  const std::uint32_t first = words.leaf1_ecx, b = words.leaf7_ebx, c = words.leaf7_ecx, d = words.leaf7_edx;
  const auto saved = [&](std::uint64_t mask) { return (words.saved & mask) == mask; };
  const bool avx = has(first, kOsxsave) && has(first, 28), fma = has(first, 12), f16c = has(first, 29);
  if (!(avx && fma && f16c && has(b, 5) && saved(0x6))) return here;
  here.push_back(Isa::avx2);
  if (has(words.leaf7_1_eax, 4)) here.push_back(Isa::avxvnni);
  const bool avx512 = has(b, 16) && has(b, 17) && has(b, 30) && has(b, 31) && has(c, 1) && has(c, 11);
  if (!(avx512 && saved(0xE6))) return here;
  here.push_back(Isa::avx512);
  const bool amx = has(d, 22) && has(d, 24) && has(d, 25);
  if (amx && saved(0x60000) && ask_for_tiles()) here.push_back(Isa::amx);
  return here;
}

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avxvnni:
      return "avxvnni";
    case Isa::avx512:
      return "avx512";
    case Isa::amx:
      return "amx";
    case Isa::neon:
      return "neon";
    case Isa::i8mm:
      return "i8mm";
  }
  return "unknown";
}

std::span<const Isa> available_isas() {
  static const std::vector<Isa> here = detect();
  return here;
}

Isa detect_isa() { return available_isas().back(); }

Isa selected_isa() {
  const char* name = std::getenv("QUIPU_ISA");
  if (name == nullptr || *name == '\0') return detect_isa();
  const std::span<const Isa> here = available_isas();
  for (const Isa isa : kAllIsas) {
    if (to_string(isa) != name) continue;
    if (std::find(here.begin(), here.end(), isa) == here.end())
      fail(ErrorCode::unsupported, "QUIPU_ISA is \"{}\", which this machine lacks; its best is \"{}\"",
           to_string(isa), to_string(here.back()));
    return isa;
  }
  fail(ErrorCode::invalid_argument,
       "QUIPU_ISA is \"{}\"; expected baseline, avx2, avxvnni, avx512, amx, neon or i8mm", printable(name));
}

}  // namespace quipu

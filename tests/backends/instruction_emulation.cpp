#include "backends/instruction_emulation.hpp"

#if defined(__x86_64__) && defined(__linux__)

#include <ucontext.h>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace quipu::backends {
namespace {

struct Tile {
  std::uint8_t bytes[16][64];
};
struct TileState {
  bool configured = false;
  std::uint8_t rows[8] = {};
  std::uint16_t column_bytes[8] = {};
  std::uint8_t configuration[64] = {};
  Tile tiles[8] = {};
};
thread_local TileState state;
thread_local long long carried_out = 0;

/// A three-byte VEX instruction of the map 0F38 (SDM volume 2, 2.3.5).
struct Instruction {
  std::uint8_t opcode, prefix;  ///< prefix: 0 none, 1 66, 2 F3, 3 F2
  bool wide;                    ///< 256 bits
  unsigned mod, reg, rm, vvvv;
  std::uintptr_t base;    ///< of a memory operand, with displacement
  std::uintptr_t stride;  ///< its scaled index, 0 without one
  std::uintptr_t next;
};

constexpr int kRegisters[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

bool decode(const greg_t* registers, Instruction& i) {
  const auto start = static_cast<std::uintptr_t>(registers[REG_RIP]);
  const auto* code = reinterpret_cast<const std::uint8_t*>(start);
  if (code[0] != 0xC4 || (code[1] & 0x1F) != 2) return false;
  const unsigned r = (code[1] & 0x80) != 0 ? 0 : 8, x = (code[1] & 0x40) != 0 ? 0 : 8,
                 b = (code[1] & 0x20) != 0 ? 0 : 8;
  const auto value = [&](unsigned r) { return static_cast<std::uintptr_t>(registers[kRegisters[r]]); };
  i.vvvv = (~code[2] >> 3) & 15U;
  i.prefix = code[2] & 3;
  i.wide = (code[2] & 4) != 0;
  if ((code[2] & 0x80) != 0) return false;  // W
  i.opcode = code[3];
  i.mod = code[4] >> 6;
  i.reg = (code[4] >> 3 & 7) | r;
  i.rm = code[4] & 7;
  std::size_t at = 5;
  i.base = i.stride = 0;
  bool from_next = false;
  if (i.mod != 3) {
    unsigned base = i.rm;
    if (i.rm == 4) {
      const unsigned sib = code[at++], index = (sib >> 3 & 7) | x;
      base = sib & 7;
      if (index != 4) i.stride = value(index) << (sib >> 6);
    }
    if (i.mod == 0 && base == 5) {
      from_next = i.rm == 5;  // without a SIB byte: relative to the next instruction
    } else {
      i.base = value(base | b);
    }
    std::int32_t displacement = 0;
    if (i.mod == 1) {
      displacement = static_cast<std::int8_t>(code[at]);
      at += 1;
    } else if (i.mod == 2 || base == 5) {
      std::memcpy(&displacement, code + at, 4);
      at += 4;
    }
    i.base += static_cast<std::uintptr_t>(static_cast<std::intptr_t>(displacement));
  }
  if (i.mod == 3) i.rm |= b;
  i.next = start + at;
  if (from_next) i.base += i.next;
  return true;
}

/// False where the processor would fault: palette, reserved bytes or sizes that no tile has.
bool load_configuration(const std::uint8_t* memory) {
  std::memcpy(state.configuration, memory, 64);
  const std::uint8_t* c = state.configuration;
  for (Tile& tile : state.tiles) tile = {};
  if (c[0] == 0) {
    state.configured = false;
    return true;
  }
  if (c[0] != 1 || c[1] != 0) return false;
  for (int i = 2; i < 16; ++i)
    if (c[i] != 0) return false;
  for (int i = 0; i < 16; ++i) {
    std::uint16_t width = 0;
    std::memcpy(&width, c + 16 + 2 * i, 2);
    const std::uint8_t rows = c[48 + i];
    if (i >= 8 ? width != 0 || rows != 0 : width > 64 || rows > 16 || (width == 0) != (rows == 0))
      return false;
    if (i >= 8) continue;
    state.rows[i] = rows;
    state.column_bytes[i] = width;
  }
  state.configured = true;
  return true;
}

bool usable(unsigned tile) { return tile < 8 && state.configured && state.rows[tile] > 0; }

void load(unsigned tile, const Instruction& i) {
  state.tiles[tile] = {};
  for (std::uintptr_t row = 0; row < state.rows[tile]; ++row)
    std::memcpy(state.tiles[tile].bytes[row], reinterpret_cast<const void*>(i.base + row * i.stride),
                state.column_bytes[tile]);
}
void store(unsigned tile, const Instruction& i) {
  for (std::uintptr_t row = 0; row < state.rows[tile]; ++row)
    std::memcpy(reinterpret_cast<void*>(i.base + row * i.stride), state.tiles[tile].bytes[row],
                state.column_bytes[tile]);
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }
float bf16(const std::uint8_t* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  return flushed(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

// Works on tiles alone, a thousand products an instruction: no need of the sanitizers, which make it ten
// times slower.
#if defined(__clang__)
#define QUIPU_UNCHECKED __attribute__((no_sanitize("address", "undefined")))
#else
#define QUIPU_UNCHECKED
#endif

/// A dword of the destination plus four products of bytes, or two of bfloat16s.
QUIPU_UNCHECKED std::uint32_t with_bytes(std::uint32_t sum, const std::uint8_t* a, const std::uint8_t* b,
                                         bool signed_a, bool signed_b) {
  for (int k = 0; k < 4; ++k) {
    const int x = signed_a ? static_cast<std::int8_t>(a[k]) : a[k];
    const int y = signed_b ? static_cast<std::int8_t>(b[k]) : b[k];
    sum += static_cast<std::uint32_t>(x * y);
  }
  return sum;
}

QUIPU_UNCHECKED bool multiply(const Instruction& i) {
  const unsigned to = i.reg, a = i.rm, b = i.vvvv;
  if (!usable(to) || !usable(a) || !usable(b) || to == a || to == b || a == b) return false;
  if (state.rows[to] != state.rows[a] || state.column_bytes[to] != state.column_bytes[b] ||
      state.column_bytes[a] != 4 * state.rows[b])
    return false;
  Tile& sums = state.tiles[to];
  for (std::size_t m = 0; m < 16; ++m)
    for (std::size_t n = 0; n < 16; ++n) {
      std::uint8_t* at = sums.bytes[m] + 4 * n;
      if (m >= state.rows[to] || 4 * n >= state.column_bytes[to]) {
        std::memset(at, 0, 4);
        continue;
      }
      std::uint32_t sum = 0;
      std::memcpy(&sum, at, 4);
      float even = 0, odd = 0;
      for (std::size_t k = 0; k < state.rows[b]; ++k) {
        const std::uint8_t* x = state.tiles[a].bytes[m] + 4 * k;
        const std::uint8_t* y = state.tiles[b].bytes[k] + 4 * n;
        if (i.opcode == 0x5E) {
          sum = with_bytes(sum, x, y, i.prefix >= 2, i.prefix == 3 || i.prefix == 1);
        } else {
          even = flushed(std::fma(bf16(x), bf16(y), even));
          odd = flushed(std::fma(bf16(x + 2), bf16(y + 2), odd));
        }
      }
      if (i.opcode == 0x5C)
        sum = std::bit_cast<std::uint32_t>(flushed(flushed(std::bit_cast<float>(sum)) + flushed(even + odd)));
      std::memcpy(at, &sum, 4);
    }
  return true;
}

/// The 256-bit registers of the interrupted code, in the form in which Linux saves them (SDM volume 1, 13.4).
class SavedRegisters {
 public:
  explicit SavedRegisters(void* area) : area_(static_cast<std::uint8_t*>(area)) {}
  bool there() const {
    std::uint32_t magic = 0;
    std::memcpy(&magic, area_ + 464, 4);
    return magic == 0x46505853;  // FP_XSTATE_MAGIC1: more than the legacy area was saved
  }
  void read(unsigned number, std::uint8_t* out) const {
    std::memcpy(out, area_ + 160 + 16 * number, 16);
    if ((area_[512] & 4) != 0)
      std::memcpy(out + 16, area_ + 576 + 16 * number, 16);
    else
      std::memset(out + 16, 0, 16);
  }
  void write(unsigned number, const std::uint8_t* value) {
    if ((area_[512] & 4) == 0) std::memset(area_ + 576, 0, 256);
    area_[512] |= 4;
    std::memcpy(area_ + 160 + 16 * number, value, 16);
    std::memcpy(area_ + 576 + 16 * number, value + 16, 16);
  }

 private:
  std::uint8_t* area_;
};

/// VPDPBUSD (50) and VPDPWSSD (52): dwords of the destination plus four or two products.
bool add_products(const Instruction& i, SavedRegisters registers) {
  if (!registers.there()) return false;
  std::uint8_t sums[32], a[32], b[32];
  registers.read(i.reg, sums);
  registers.read(i.vvvv, a);
  if (i.mod == 3)
    registers.read(i.rm, b);
  else
    std::memcpy(b, reinterpret_cast<const void*>(i.base + i.stride), 32);
  for (int at = 0; at < 32; at += 4) {
    std::uint32_t sum = 0;
    std::memcpy(&sum, sums + at, 4);
    if (i.opcode == 0x50) {
      sum = with_bytes(sum, a + at, b + at, false, true);
    } else {
      for (int k = 0; k < 4; k += 2) {
        std::int16_t x = 0, y = 0;
        std::memcpy(&x, a + at + k, 2);
        std::memcpy(&y, b + at + k, 2);
        sum += static_cast<std::uint32_t>(x * y);
      }
    }
    std::memcpy(sums + at, &sum, 4);
  }
  registers.write(i.reg, sums);
  return true;
}

bool carry_out(const Instruction& i, SavedRegisters registers) {
  const bool memory = i.mod != 3;
  if (i.wide) return (i.opcode == 0x50 || i.opcode == 0x52) && i.prefix == 1 && add_products(i, registers);
  switch (i.opcode) {
    case 0x49:
      if (i.prefix == 3) {  // TILEZERO
        if (memory || i.rm != 0 || !usable(i.reg)) return false;
        state.tiles[i.reg] = {};
        return true;
      }
      if (i.reg != 0) return false;
      if (i.prefix == 0 && memory) return load_configuration(reinterpret_cast<const std::uint8_t*>(i.base));
      if (i.prefix == 0 && i.rm == 0) {  // TILERELEASE
        state = {};
        return true;
      }
      if (i.prefix != 1 || !memory) return false;
      std::memcpy(reinterpret_cast<void*>(i.base), state.configuration, 64);
      return true;
    case 0x4B:
      if (!memory || i.rm != 4 || !usable(i.reg) || i.prefix == 0) return false;
      if (i.prefix == 2)
        store(i.reg, i);
      else
        load(i.reg, i);
      return true;
    case 0x5E:
      return !memory && multiply(i);
    case 0x5C:
      return !memory && i.prefix == 2 && multiply(i);
    default:
      return false;
  }
}

struct sigaction previous;

void on_illegal_instruction(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Instruction i{};
  void* saved = static_cast<ucontext_t*>(context)->uc_mcontext.fpregs;
  if (!decode(registers, i) || !carry_out(i, SavedRegisters(saved))) {
    // What the hardware would refuse: the instruction runs again, and ends the program as it would there.
    ::sigaction(SIGILL, &previous, nullptr);
    return;
  }
  ++carried_out;
  registers[REG_RIP] = static_cast<greg_t>(i.next);
}

}  // namespace

InstructionEmulation::InstructionEmulation() {
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGILL, &action, &previous);
}
InstructionEmulation::~InstructionEmulation() { ::sigaction(SIGILL, &previous, nullptr); }

long long InstructionEmulation::instructions() { return carried_out; }

}  // namespace quipu::backends

#endif

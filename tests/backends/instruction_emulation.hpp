// AMX for tests on x86-64 machines that lack it: tile instructions are illegal there, and a handler of SIGILL
// carries them out as Intel's manual defines them (SDM volume 2, "LDTILECFG" to "TDPBUUD"). So the kernels
// run unchanged, and the sanitizers see what their tiles read and write, which they do not see on the
// hardware.
#pragma once

namespace quipu::backends {

/// Carries out such instructions of this process while it lives. At most one at a time.
class InstructionEmulation {
 public:
  InstructionEmulation();
  ~InstructionEmulation();
  InstructionEmulation(const InstructionEmulation&) = delete;
  InstructionEmulation& operator=(const InstructionEmulation&) = delete;

  /// How many were carried out since the program's start.
  static long long instructions();
};

}  // namespace quipu::backends

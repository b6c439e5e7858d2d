// Ctrl-C as a flag that long work looks at, instead of the end of the program.
#pragma once

namespace quipu::app {

/// While one lives, SIGINT and SIGTERM only set the flag; the former handlers come back with its end. Nesting
/// is allowed, threads are not.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// True when a signal came since the outermost guard began or since the last `clear_interrupt`.
bool interrupted();
void clear_interrupt();
/// Ends the program with status 130 (as the shell reports SIGINT) when interrupted.
void exit_if_interrupted();

}  // namespace quipu::app

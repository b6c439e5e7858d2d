#include "interrupt.hpp"

#include <csignal>

#include "output.hpp"

namespace quipu::app {
namespace {

volatile std::sig_atomic_t pending = 0;
int depth = 0;
struct sigaction former_int, former_term;

void note_signal(int) { pending = 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  if (depth++ > 0) return;
  pending = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &former_int);
  sigaction(SIGTERM, &action, &former_term);
}

InterruptGuard::~InterruptGuard() {
  if (--depth > 0) return;
  sigaction(SIGINT, &former_int, nullptr);
  sigaction(SIGTERM, &former_term, nullptr);
}

bool interrupted() { return pending != 0; }
void clear_interrupt() { pending = 0; }
void exit_if_interrupted() {
  if (interrupted()) throw Exit{128 + SIGINT};
}

}  // namespace quipu::app

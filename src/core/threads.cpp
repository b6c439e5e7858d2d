#include "core/threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace quipu {
namespace {

using Counter = std::atomic<std::uint32_t>;

constexpr std::size_t kCacheLine = 64;
// Spinning saves a wake through the kernel, but only where the awaited thread runs on a CPU of its own. On a
// machine with other work it may be waiting for this very one; so each thread spins long after spins that
// paid, and briefly after spins that did not, but for a probe now and then: things may have changed.
// In pauses, of some 50 ns on Intel, 10 to 15 elsewhere. The shares of one op differ by tens of microseconds,
// so even the shortest spin covers that: a bound below it makes every barrier of a decode step a sleep, and
// the step three times as long (docs/performance.md).
constexpr int kLongestSpin = 10000;
constexpr int kShortestSpin = 1000;
constexpr int kWaitsPerProbe = 16;

struct SpinBudget {
  int pauses = kLongestSpin;
  int waits = 0;
};
thread_local SpinBudget spin_budget;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// Seconds of CPU time of this thread; negative when the system does not tell.
double thread_seconds() {
  std::timespec t{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return -1;
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

// Returns when `value` is no longer `old`: spins, then sleeps until notified.
void wait_while(const Counter& value, std::uint32_t old) {
  const bool probe = ++spin_budget.waits == kWaitsPerProbe;
  if (probe) spin_budget.waits = 0;
  const int pauses = probe ? kLongestSpin : spin_budget.pauses;
  for (int i = 0; i < pauses; ++i) {
    if (value.load(std::memory_order_acquire) != old) {
      spin_budget.pauses = std::min(2 * pauses, kLongestSpin);
      return;
    }
    pause_briefly();
  }
  spin_budget.pauses = std::max(spin_budget.pauses / 2, kShortestSpin);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): one cache line a counter
struct ThreadPool::State {
  State(int threads, std::vector<double> guess)
      : size(threads),
        speeds(std::move(guess)),
        used(threads),
        notes(static_cast<std::size_t>(threads)),
        rounds(notes.size()) {}

  struct Note {
    std::exception_ptr error;
    double idle = 0;
  };
  // One cache line each, as the counters below: spinning on one must not slow down writes to another.
  struct alignas(kCacheLine) OwnLine {
    Counter counter{0};
  };

  void call(int thread) noexcept {
    Note& note = notes[static_cast<std::size_t>(thread)];
    const double ran_before = thread_seconds();
    try {
      (*task)(thread);
    } catch (...) {
      note.error = std::current_exception();
    }
    const double all = seconds_since(began), ran = thread_seconds() - ran_before;
    note.idle = ran_before < 0 || all <= 0 ? 0 : std::clamp(1 - ran / all, 0.0, 1.0);
  }

  void work(int thread) {
    for (std::uint32_t seen = 0;; ++seen) {
      wait_while(rounds[static_cast<std::size_t>(thread)].counter, seen);
      if (task == nullptr) return;
      call(thread);
      if (workers_left.fetch_sub(1, std::memory_order_acq_rel) == 1) workers_left.notify_all();
    }
  }

  // Starts a round of the first `threads`: their workers see `next` (null: return for good).
  void start(const std::function<void(int)>* next, int threads) {
    task = next;
    used = threads;
    began = Clock::now();
    workers_left.store(static_cast<std::uint32_t>(threads - 1), std::memory_order_relaxed);
    for (std::size_t i = 1; i < static_cast<std::size_t>(threads); ++i) {
      rounds[i].counter.fetch_add(1, std::memory_order_release);
      rounds[i].counter.notify_one();
    }
  }

  void stop() {
    start(nullptr, static_cast<int>(workers.size()) + 1);
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }

  const int size;
  const std::vector<double> speeds;
  // Written between rounds only.
  int used;
  const std::function<void(int)>* task = nullptr;
  Clock::time_point began;
  std::vector<Note> notes;  // one a thread
  std::vector<std::thread> workers;
  std::atomic<bool> running{false};
  std::vector<OwnLine> rounds;  // one a worker, at its thread's number
  alignas(kCacheLine) Counter workers_left{0};
  alignas(kCacheLine) Counter arrived{0};     // threads at the barrier
  alignas(kCacheLine) Counter generation{0};  // barriers passed
};

ThreadPool::ThreadPool(int threads, std::vector<double> speeds) {
  if (threads < 1) fail(ErrorCode::invalid_argument, "thread count is {}; expected at least 1", threads);
  state_ = std::make_unique<State>(threads, std::move(speeds));
  State* state = state_.get();
  state->workers.reserve(static_cast<std::size_t>(threads) - 1);
  try {
    for (int thread = 1; thread < threads; ++thread)
      state->workers.emplace_back([state, thread] { state->work(thread); });
  } catch (const std::system_error& error) {
    const std::size_t started = state->workers.size() + 1;
    state->stop();
    fail(ErrorCode::out_of_memory, "cannot start {} threads: the system refused after {}: {}", threads,
         started, error.code().message());
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::size() const { return state_->size; }
std::span<const double> ThreadPool::speeds() const { return state_->speeds; }

double ThreadPool::run(const std::function<void(int thread)>& task, int threads) {
  State& state = *state_;
  if (state.running.exchange(true, std::memory_order_acquire))
    fail(ErrorCode::internal, "ThreadPool::run was called while another run of the same pool is under way");
  state.start(&task, std::clamp(threads, 1, state.size));
  state.call(0);
  for (std::uint32_t left; (left = state.workers_left.load(std::memory_order_acquire)) != 0;)
    wait_while(state.workers_left, left);
  std::exception_ptr first;
  double idle = 0;
  for (int i = 0; i < state.used; ++i) {
    State::Note& note = state.notes[static_cast<std::size_t>(i)];
    if (!first) first = note.error;
    idle = std::max(idle, note.idle);
    note = {};
  }
  state.running.store(false, std::memory_order_release);
  if (first) std::rethrow_exception(first);
  return idle;
}

void ThreadPool::barrier() {
  State& state = *state_;
  // The generation cannot change before this thread has arrived, so the order of these two is safe.
  const std::uint32_t generation = state.generation.load(std::memory_order_acquire);
  if (state.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(state.used)) {
    state.arrived.store(0, std::memory_order_relaxed);
    state.generation.fetch_add(1, std::memory_order_release);
    state.generation.notify_all();
  } else {
    wait_while(state.generation, generation);
  }
}

namespace {

/// Units `first` to `last` of `total` items in units of `grain`.
Range of_units(std::size_t total, std::size_t units, std::size_t grain, std::size_t first, std::size_t last) {
  // The last unit may be a part: its end is the total, which `units * grain` may exceed, even overflow.
  return {first == units ? total : first * grain, last == units ? total : last * grain};
}
std::size_t units_of(std::size_t total, std::size_t grain) {
  return total / grain + (total % grain != 0 ? 1 : 0);
}

}  // namespace

Range share(std::size_t total, int thread, int threads, std::size_t grain) {
  const std::size_t units = units_of(total, grain);
  const auto index = static_cast<std::size_t>(thread), count = static_cast<std::size_t>(threads);
  const std::size_t each = units / count, extra = units % count;
  const std::size_t first = index * each + std::min(index, extra);
  const std::size_t last = first + each + (index < extra ? 1 : 0);
  return of_units(total, units, grain, first, last);
}

Range share(std::size_t total, int thread, std::span<const double> bounds, std::size_t grain) {
  const std::size_t units = units_of(total, grain);
  const auto at = [&](std::size_t i) {
    return i + 1 == bounds.size() ? units
                                  : static_cast<std::size_t>(bounds[i] * static_cast<double>(units) + 0.5);
  };
  const auto index = static_cast<std::size_t>(thread);
  return of_units(total, units, grain, at(index), at(index + 1));
}

}  // namespace quipu

// Steps of decode take nothing from the heap, but where what was generated outgrows its room.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QUIPU_OWN_NEW 0  // TSan's operator new cannot be replaced
#endif
#endif
#ifndef QUIPU_OWN_NEW
#define QUIPU_OWN_NEW 1
#endif

#if QUIPU_OWN_NEW
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine_fixture.hpp"

namespace {
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace

// All of them, so that sanitizers do not see memory from one family in the hands of another. Not inlined, or
// the compiler sees that.
#define QUIPU_COUNTED [[gnu::noinline]]
QUIPU_COUNTED void* operator new(std::size_t bytes) { return counted(bytes, 1); }
QUIPU_COUNTED void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
QUIPU_COUNTED void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, 1);
}
QUIPU_COUNTED void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, 1);
}
QUIPU_COUNTED void* operator new(std::size_t bytes, std::align_val_t a) {
  return counted(bytes, std::size_t(a));
}
QUIPU_COUNTED void* operator new[](std::size_t bytes, std::align_val_t a) {
  return counted(bytes, std::size_t(a));
}
QUIPU_COUNTED void operator delete(void* memory) noexcept { std::free(memory); }
QUIPU_COUNTED void operator delete[](void* memory) noexcept { std::free(memory); }
QUIPU_COUNTED void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
QUIPU_COUNTED void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
QUIPU_COUNTED void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
QUIPU_COUNTED void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
QUIPU_COUNTED void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
QUIPU_COUNTED void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
QUIPU_COUNTED void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
QUIPU_COUNTED void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#undef QUIPU_COUNTED

namespace quipu::engine {
namespace {

using test::EngineSettings;
using test::make_engine;
using test::random_prompt;

struct Counts {
  std::int64_t steps = 0, allocating = 0;
};

/// Decodes 200 tokens in every sequence. Prompts are equally long, so that the lists of tokens grow in the
/// same steps: some four times each.
Counts count_decode(EngineSettings settings, const SamplingParams& sampling) {
  settings.context = 300;
  Engine engine = make_engine(settings);
  constexpr std::int64_t kTokens = 200;
  std::int64_t drawn = 0;
  for (std::int64_t i = 0; i < settings.sequences; ++i) {
    Request request;
    request.prompt = random_prompt(static_cast<std::uint64_t>(i) + 1, 20);
    request.sampling = sampling;
    request.max_tokens = kTokens;
    request.ignore_eos = true;
    request.on_token = [&drawn](const TokenEvent&) { ++drawn; };
    engine.submit(std::move(request));
  }
  Counts counts;
  for (std::int64_t step = 0;; ++step) {
    const std::int64_t before = allocations;
    const bool more = engine.step();
    const std::int64_t taken = allocations - before;
    if (!more) break;
    if (step < 20) continue;  // the prompts, and what grows to the size of a step
    ++counts.steps;
    if (taken > 0) ++counts.allocating;
  }
  EXPECT_EQ(drawn, kTokens * settings.sequences);
  return counts;
}

TEST(Allocations, StepsOfDecodeTakeNothingFromTheHeap) {
  ASSERT_GT(allocations.load(), 0) << "nothing is counted";
  SamplingParams greedy, chain, penalties;
  greedy.temperature = 0;
  penalties.repeat_penalty = 1.1;
  penalties.presence_penalty = 0.5;
  penalties.logit_bias = {{7, 1.5F}};
  for (const SamplingParams& sampling : {greedy, chain, penalties})
    for (const std::int64_t sequences : {1, 4})
      for (const bool prefix_cache : {false, true}) {
        EngineSettings settings;
        settings.sequences = sequences;
        settings.threads = 2;
        settings.prefix_cache = prefix_cache;
        const Counts counts = count_decode(settings, sampling);
        EXPECT_GE(counts.steps, 170);
        // With an allocation a step it would be all of them.
        EXPECT_LE(counts.allocating, 30) << "of " << counts.steps << " steps, sequences: " << sequences;
      }
}

}  // namespace
}  // namespace quipu::engine
#endif

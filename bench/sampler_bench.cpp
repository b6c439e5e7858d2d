// What drawing a token costs, by chain and vocabulary: microseconds of this thread, and as many times what
// copying the logits takes. Logits are normal, with a few likely tokens, as a model's are.
//
//   sampler_bench [VOCABULARY…]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/sampling/logprobs.hpp"
#include "engine/sampling/sampler.hpp"

namespace {

using quipu::engine::Sampler;
using quipu::engine::SamplingParams;

/// Median of 51 calls.
template <class F>
double microseconds(F&& f) {
  std::vector<double> times;
  for (int i = 0; i < 51; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 25, times.end());
  return times[25];
}

struct Chain {
  std::string name;
  SamplingParams params;
};

std::vector<Chain> chains() {
  SamplingParams greedy, standard, plain, nucleus, penalised;
  greedy.temperature = 0;
  plain.top_k = nucleus.top_k = 0;
  plain.top_p = 1;
  plain.min_p = nucleus.min_p = 0;
  nucleus.top_p = 0.9;
  penalised.repeat_penalty = 1.1;
  return {{"greedy", greedy},
          {"default (top-k 40, top-p, min-p, temperature)", standard},
          {"default with a repetition penalty", penalised},
          {"temperature alone", plain},
          {"top-p 0.9", nucleus}};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {49152, 151936, 262144};
  const std::vector<std::int32_t> history(100, 7);
  fmt::print("| vocabulary | chain | us | of a copy |\n| --: | --- | --: | --: |\n");
  for (const std::size_t size : sizes) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits(size), copy(size);
    for (float& x : logits) x = normal(random);
    for (int i = 0; i < 8; ++i) logits[random() % size] = 18 + normal(random) / 3;
    const double base = microseconds([&] {
      std::copy(logits.begin(), logits.end(), copy.begin());
      asm volatile("" : : "r"(copy.data()) : "memory");
    });
    const auto row = [&](const std::string& name, double us) {
      fmt::print("| {} | {} | {:.1f} | {:.1f} |\n", size, name, us, us / base);
    };
    for (const Chain& chain : chains()) {
      Sampler sampler(chain.params);
      row(chain.name, microseconds([&] { static_cast<void>(sampler.sample(logits, history)); }));
    }
    std::vector<std::uint64_t> few(size / 64 + 1), most(size / 64 + 1, ~std::uint64_t{0});
    for (std::size_t i = 0; i < 100; ++i) few[random() % few.size()] |= 2;
    most[0] = 0;
    Sampler sampler{SamplingParams{}};
    row("default, a mask of 100 tokens",
        microseconds([&] { static_cast<void>(sampler.sample(logits, history, few)); }));
    row("default, a mask of almost all",
        microseconds([&] { static_cast<void>(sampler.sample(logits, history, most)); }));
    float chosen = 0;
    row("log probabilities, 5 best",
        microseconds([&] { static_cast<void>(quipu::engine::top_log_probabilities(logits, 5, 0, chosen)); }));
  }
}

#include "engine/sampling/softmax.hpp"

#include "core/cpu_features.hpp"

namespace quipu::engine {

namespace {

// The same loop for several vector widths; its operations are rounded one by one, so their results do not
// depend on the width.
template <std::size_t lanes, class Logit>
[[gnu::always_inline]] inline void fill(const Logit& logit, double max, std::span<double> out) {
  typename Lanes<lanes>::Doubles x{};
  const std::size_t whole = out.size() / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) x[l] = static_cast<double>(logit(i + l)) - max;
    exp_nonpositive<lanes>(x);
    __builtin_memcpy(&out[i], &x, sizeof x);
  }
  if (whole == out.size()) return;
  for (std::size_t i = whole; i < out.size(); ++i) x[i - whole] = static_cast<double>(logit(i)) - max;
  exp_nonpositive<lanes>(x);
  for (std::size_t i = whole; i < out.size(); ++i) out[i] = x[i - whole];
}

template <class Logit>
void fill_baseline(const Logit& logit, double max, std::span<double> out) {
  fill<2>(logit, max, out);
}
#if defined(__x86_64__)
template <class Logit>
[[gnu::target("avx2")]] void fill_avx2(const Logit& logit, double max, std::span<double> out) {
  fill<4>(logit, max, out);
}
template <class Logit>
[[gnu::target("avx512f,avx512dq")]] void fill_avx512(const Logit& logit, double max, std::span<double> out) {
  fill<8>(logit, max, out);
}
#endif

template <class Logit>
void fill_widest(const Logit& logit, double max, std::span<double> out) {
#if defined(__x86_64__)
  static const Isa isa = selected_isa();
  if (isa >= Isa::avx512) return fill_avx512(logit, max, out);
  if (isa >= Isa::avx2) return fill_avx2(logit, max, out);
#endif
  fill_baseline(logit, max, out);
}

struct OfCandidates {
  const Candidate* items;
  [[gnu::always_inline]] float operator()(std::size_t i) const { return items[i].logit; }
};
struct OfLogits {
  const float* logits;
  [[gnu::always_inline]] float operator()(std::size_t i) const { return usable_logit(logits[i]); }
};

}  // namespace

void exp_differences(std::span<const Candidate> items, double max, std::span<double> out) {
  fill_widest(OfCandidates{items.data()}, max, out);
}
void exp_differences(std::span<const float> logits, double max, std::span<double> out) {
  fill_widest(OfLogits{logits.data()}, max, out);
}

}  // namespace quipu::engine

// Mixture of experts: a row's choice of experts, and the weighted sum of what they give.

namespace quipu::backends {
namespace {

/// Sets v[i] = exp(v[i] - max) and returns their sum.
inline float exponentials(float* v, std::size_t n) {
  V16 top = set1(-__builtin_inff());
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    float t[16];
    store(t, load_part(v + i, m));
    for (std::size_t j = m; j < 16; ++j) t[j] = -__builtin_inff();
    top = vmax(top, load(t));
  });
  const V16 most = set1(reduce_max(top));
  V16 sum = set1(0);
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    store_part(v + i, exp(load_part(v + i, m) - most), m);
    sum = sum + load_part(v + i, m);
  });
  return reduce_add(sum);
}
inline void divide(float* v, std::size_t n, float by) {
  const V16 d = set1(by);
  for_lanes(n, [&](std::size_t i, std::size_t m) { store_part(v + i, load_part(v + i, m) / d, m); });
}
/// The number of the largest value, the lower one when equal; n when none is above -infinity.
inline std::size_t largest(const float* v, std::size_t n) {
  float top = -__builtin_inff();
  std::size_t best = n;
  for (std::size_t i = 0; i < n; ++i)
    if (v[i] > top) {
      top = v[i];
      best = i;
    }
  return best;
}

/// What is chosen when no score is a number: any expert will do, but each once, so that numbers stay in
/// range.
inline std::size_t first_not_taken(const float* taken, std::size_t n) {
  std::size_t e = 0;
  for (std::size_t i = 0; i < n; ++i)
    if (taken[i] == static_cast<float>(e)) {
      ++e;
      i = SIZE_MAX;  // from the start again
    }
  return e;
}

/// The weight of the best of `left`, of which those chosen before are -infinity; `work` takes a value for
/// each.
inline float sparse_mixer_weight(const RouteArgs& a, const float* left, float* work, std::size_t best) {
  constexpr float kWithin = 0.02f;  // twice the routers' jitter
  const float top = left[best];
  for (std::size_t e = 0; e < a.experts; ++e) {
    const float size = left[e] < 0 ? -left[e] : left[e];
    const bool far = left[e] == -__builtin_inff() || (top - left[e]) / (size > top ? size : top) > kWithin;
    work[e] = far ? -__builtin_inff() : left[e];
  }
  const float sum = exponentials(work, a.experts);
  return work[best] / sum;
}

/// Experts outside the best groups become -infinity.
void keep_best_groups(const RouteArgs& a, float* choice, float* worth) {
  const std::size_t each = a.experts / a.groups;
  for (std::size_t g = 0; g < a.groups; ++g) {
    float taken[16];  // of the highest so far, put back afterwards
    std::size_t at[16];
    float sum = 0;
    std::size_t n = 0;
    for (; n < a.group_top && n < 16; ++n) {
      const std::size_t e = largest(choice + g * each, each);
      if (e == each) break;
      at[n] = g * each + e;
      taken[n] = choice[at[n]];
      sum = sum + taken[n];
      choice[at[n]] = -__builtin_inff();
    }
    for (std::size_t i = 0; i < n; ++i) choice[at[i]] = taken[i];
    worth[g] = sum;
  }
  for (std::size_t used = 0; used < a.groups_used; ++used) {
    const std::size_t g = largest(worth, a.groups);
    if (g == a.groups) break;
    worth[g] = -__builtin_inff();
  }
  for (std::size_t g = 0; g < a.groups; ++g)
    if (worth[g] != -__builtin_inff())
      for (std::size_t e = 0; e < each; ++e) choice[g * each + e] = -__builtin_inff();
}

void route(const RouteArgs& a) {
  float *scores = a.work, *choice = a.work + a.experts, *worth = choice + a.experts;
  __builtin_memcpy(scores, a.logits, a.experts * sizeof(float));
  if (a.gating == 0) divide(scores, a.experts, exponentials(scores, a.experts));
  if (a.gating == 1)
    for_lanes(a.experts, [&](std::size_t i, std::size_t m) {
      store_part(scores + i, sigmoid(load_part(scores + i, m)), m);
    });
  for (std::size_t e = 0; e < a.experts; ++e)
    choice[e] = a.bias != nullptr ? scores[e] + a.bias[e] : scores[e];
  if (a.groups > 1) keep_best_groups(a, choice, worth);

  float* weights = a.out + a.used;
  for (std::size_t j = 0; j < a.used; ++j) {
    std::size_t e = largest(choice, a.experts);
    if (e == a.experts) e = first_not_taken(a.out, j);
    a.out[j] = static_cast<float>(e);
    weights[j] = a.gating == 3 ? sparse_mixer_weight(a, choice, scores, e) : scores[e];
    choice[e] = -__builtin_inff();
  }
  if (a.gating == 2) divide(weights, a.used, exponentials(weights, a.used));
  if (a.renormalise) {
    V16 sum = set1(0);
    for_lanes(a.used, [&](std::size_t i, std::size_t m) { sum = sum + load_part(weights + i, m); });
    divide(weights, a.used, reduce_add(sum) + 1e-20f);
  }
  if (a.scale != 1) {
    const V16 f = set1(a.scale);
    for_lanes(a.used, [&](std::size_t i, std::size_t m) {
      store_part(weights + i, load_part(weights + i, m) * f, m);
    });
  }
  if (a.expert_scale != nullptr)
    for (std::size_t j = 0; j < a.used; ++j)
      weights[j] = weights[j] * a.expert_scale[static_cast<std::size_t>(a.out[j])];
}

void weighted_sum(const float* x, std::size_t stride, const float* weights, std::size_t count, float* y,
                  std::size_t n) {
  for_lanes(n, [&](std::size_t i, std::size_t m) {
    V16 sum = set1(weights[0]) * load_part(x + i, m);
    for (std::size_t j = 1; j < count; ++j)
      sum = fma(set1(weights[j]), load_part(x + j * stride + i, m), sum);
    store_part(y + i, sum, m);
  });
}

}  // namespace
}  // namespace quipu::backends

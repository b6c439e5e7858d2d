#include "tensor/codecs/fit.hpp"

#include <array>
#include <cmath>

namespace quipu::codecs {
namespace {

int affine_code(float x, float minimum, float inverse, int largest) {
  return std::clamp(nearest_int(inverse * (x - minimum)), 0, largest);
}

float total_loss(std::span<const float> x, std::span<const float> weights, Loss loss, float scale,
                 float offset, std::span<const std::uint8_t> codes) {
  float total = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float error = scale * static_cast<float>(codes[i]) + offset - x[i];
    total += weights[i] * (loss == Loss::absolute ? std::fabs(error) : error * error);
  }
  return total;
}

// Sums of the weighted least squares fit x = scale * q; `best` of several fits has the largest lx^2 / l2.
struct Moments {
  float lx = 0, l2 = 0;
  void add(float weight, float x, float q) {
    lx += weight * x * q;
    l2 += weight * q * q;
  }
};

int symmetric_code(float x, float inverse, int half) {
  return std::clamp(nearest_int(inverse * x), -half, half - 1);
}

std::uint8_t biased(int code, int half) { return static_cast<std::uint8_t>(code + half); }

}  // namespace

AffineFit fit_affine(std::span<const float> x, std::span<const float> weights, const AffineSearch& search,
                     std::span<std::uint8_t> codes) {
  float minimum = x[0], maximum = x[0];
  float sum_w = weights[0], sum_x = weights[0] * x[0];
  for (std::size_t i = 1; i < x.size(); ++i) {
    if (x[i] < minimum) minimum = x[i];
    if (x[i] > maximum) maximum = x[i];
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (minimum > 0) minimum = 0;  // the format cannot add a positive offset
  if (maximum == minimum) {
    std::fill(codes.begin(), codes.end(), std::uint8_t{0});
    return {0, -minimum};
  }

  const auto largest = static_cast<float>(search.largest);
  const float inverse = largest / (maximum - minimum);
  float scale = 1 / inverse;
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(affine_code(x[i], minimum, inverse, search.largest));
  float best = total_loss(x, weights, search.loss, scale, minimum, codes);

  std::array<std::uint8_t, 32> storage;
  const std::span<std::uint8_t> trial(storage.data(), x.size());
  for (int step = 0; step <= search.steps; ++step) {
    // The range is that of the best fit so far: it moves along with `minimum`.
    const float tried =
        (search.first + search.step * static_cast<float>(step) + largest) / (maximum - minimum);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int code = affine_code(x[i], minimum, tried, search.largest);
      trial[i] = static_cast<std::uint8_t>(code);
      const auto l = static_cast<float>(code);
      sum_l += weights[i] * l;
      sum_l2 += weights[i] * l * l;
      sum_xl += weights[i] * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float new_minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (new_minimum > 0) {
      new_minimum = 0;
      new_scale = sum_xl / sum_l2;
    }
    const float loss = total_loss(x, weights, search.loss, new_scale, new_minimum, trial);
    if (loss < best) {
      std::copy(trial.begin(), trial.end(), codes.begin());
      best = loss;
      scale = new_scale;
      minimum = new_minimum;
    }
  }
  return {scale, -minimum};
}

float fit_symmetric(std::span<const float> x, int half, std::span<std::uint8_t> codes) {
  const float peak = extreme(x);
  if (std::fabs(peak) < kZeroBlock) {
    std::fill(codes.begin(), codes.end(), std::uint8_t{0});
    return 0;
  }
  const auto moments = [&](float inverse) {
    Moments sums;
    for (const float v : x) sums.add(v * v, v, static_cast<float>(symmetric_code(v, inverse, half)));
    return sums;
  };
  const auto keep = [&](float inverse) {
    for (std::size_t i = 0; i < x.size(); ++i) codes[i] = biased(symmetric_code(x[i], inverse, half), half);
  };

  // The peak takes the code -half, the one of the largest magnitude.
  const float inverse = static_cast<float>(-half) / peak;
  keep(inverse);
  const Moments start = moments(inverse);
  float scale = start.l2 != 0 ? start.lx / start.l2 : 0.0F;
  float best = scale * start.lx;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    const float tried = -(static_cast<float>(half) + 0.1F * static_cast<float>(step)) / peak;
    const Moments sums = moments(tried);
    if (sums.l2 > 0 && sums.lx * sums.lx > best * sums.l2) {
      keep(tried);
      scale = sums.lx / sums.l2;
      best = scale * sums.lx;
    }
  }
  return scale;
}

float fit_symmetric_stepwise(std::span<const float> x, int half, std::span<std::uint8_t> codes) {
  const float peak = extreme(x);
  if (std::fabs(peak) < kZeroBlock) {
    std::fill(codes.begin(), codes.end(), std::uint8_t{0});
    return 0;
  }
  const float inverse = static_cast<float>(-half) / peak;
  std::array<int, 32> storage;
  const std::span<int> q(storage.data(), x.size());
  Moments sums;
  for (std::size_t i = 0; i < x.size(); ++i) {
    q[i] = symmetric_code(x[i], inverse, half);
    sums.add(x[i] * x[i], x[i], static_cast<float>(q[i]));
  }
  bool changed = true;
  for (int round = 0; round < 5 && changed; ++round) {
    changed = false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      // The best code for this element under the scale that all others ask for.
      const float weight = x[i] * x[i];
      const auto old = static_cast<float>(q[i]);
      Moments others{sums.lx - weight * x[i] * old, 0};
      if (!(others.lx > 0)) continue;
      others.l2 = sums.l2 - weight * old * old;
      const int code = std::clamp(nearest_int(x[i] * others.l2 / others.lx), -half, half - 1);
      if (code == q[i]) continue;
      others.add(weight, x[i], static_cast<float>(code));
      if (others.l2 > 0 && others.lx * others.lx * sums.l2 > sums.lx * sums.lx * others.l2) {
        q[i] = code;
        sums = others;
        changed = true;
      }
    }
  }
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = biased(q[i], half);
  return sums.l2 > 0 ? sums.lx / sums.l2 : 0.0F;
}

}  // namespace quipu::codecs

#include "engine/sampling/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/sampling/softmax.hpp"

namespace quipu::engine {

namespace {
constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
bool lower_token(const Candidate& a, const Candidate& b) { return a.token < b.token; }
}  // namespace

float Candidates::to_logit(double value) {
  if (!(value > -std::numeric_limits<double>::infinity())) return kForbidden;
  return static_cast<float>(std::clamp<double>(value, -kLargest, kLargest));
}

bool Candidates::assign(std::span<const float> logits) {
  items_.resize(logits.size());
  order_ = Order::by_token;
  bool any = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    float logit = logits[i];
    logit = logit > kLargest ? kLargest : logit;      // +inf
    logit = logit >= -kLargest ? logit : kForbidden;  // NaN
    any |= logit >= -kLargest;
    items_[i] = {static_cast<std::int32_t>(i), logit};
  }
  return any;
}

Candidate Candidates::best() const {
  if (order_ == Order::by_logit) return items_.front();
  Candidate best = items_.front();
  for (const Candidate& c : items_) {
    if (better(c, best)) best = c;
  }
  return best;
}

float Candidates::max_logit() const { return best().logit; }

bool Candidates::any_allowed() const { return max_logit() >= -kLargest; }

void Candidates::sort_by_logit() {
  if (order_ == Order::by_logit) return;
  std::sort(items_.begin(), items_.end(), better);
  order_ = Order::by_logit;
}

void Candidates::sort_by_token() {
  if (order_ == Order::by_token) return;
  std::sort(items_.begin(), items_.end(), lower_token);
  order_ = Order::by_token;
}

Candidate* Candidates::find(std::int32_t token) {
  const auto index = static_cast<std::size_t>(token);
  if (token >= 0 && index < items_.size() && items_[index].token == token) return &items_[index];
  const auto it = std::lower_bound(items_.begin(), items_.end(), Candidate{token, 0}, lower_token);
  return it != items_.end() && it->token == token ? &*it : nullptr;
}

void Candidates::keep_best(std::size_t count) {
  count = std::max<std::size_t>(count, 1);
  if (count < items_.size() && order_ != Order::by_logit) {
    select_best(items_, count, spare_);
    std::swap(items_, spare_);
    order_ = Order::by_logit;
    return;
  }
  sort_by_logit();
  if (count < items_.size()) items_.resize(count);
}

void Candidates::keep_only(std::span<const Candidate> chosen) {
  items_.assign(chosen.begin(), chosen.end());
  order_ = Order::none;
}

Candidates::Weights Candidates::weights() {
  const double max = max_logit();
  weights_.resize(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    weights_[i] = exp_nonpositive(static_cast<double>(items_[i].logit) - max);
  }
  return {weights_, lane_sum(weights_)};
}

void select_best(std::span<const Candidate> all, std::size_t count, std::vector<Candidate>& out) {
  count = std::min(count, all.size());
  out.clear();
  if (count == 0) return;
  // The buffer holds at least `count` entries more than asked for, so that the partial sorts that shrink it
  // again cost a constant per entry.
  const std::size_t capacity = 2 * count + 64;
  out.reserve(std::min(capacity, all.size()));
  bool full = false;
  Candidate worst{};
  for (const Candidate& c : all) {
    if (full && !better(c, worst)) continue;
    out.push_back(c);
    if (out.size() == capacity) {
      const auto last = out.begin() + static_cast<std::ptrdiff_t>(count) - 1;
      std::nth_element(out.begin(), last, out.end(), better);
      worst = *last;
      full = true;
      out.resize(count);
    }
  }
  if (out.size() > count) {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count) - 1, out.end(), better);
    out.resize(count);
  }
  std::sort(out.begin(), out.end(), better);
}

}  // namespace quipu::engine

#include "engine/sampling/candidates.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/sampling/softmax.hpp"

namespace quipu::engine {

namespace {
constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
bool lower_token(const Candidate& a, const Candidate& b) { return a.token < b.token; }

// Vocabularies are read in blocks whose inner loops become vector instructions.
constexpr std::size_t kBlock = 16;

float largest(std::span<const float> logits) {
  float lanes[kBlock];
  std::fill(std::begin(lanes), std::end(lanes), kForbidden);
  std::size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    for (std::size_t l = 0; l < kBlock; ++l) lanes[l] = logits[i + l] > lanes[l] ? logits[i + l] : lanes[l];
  }
  for (; i < logits.size(); ++i) lanes[0] = logits[i] > lanes[0] ? logits[i] : lanes[0];
  return usable_logit(*std::max_element(std::begin(lanes), std::end(lanes)));
}

/// Whether some logit of a block is at least `least` (NaN never is).
bool any_at_least(const float* block, float least) {
  int any = 0;
  for (std::size_t l = 0; l < kBlock; ++l) any |= block[l] >= least;
  return any != 0;
}

/// The lowest token whose logit is the largest one.
std::int32_t first_of(std::span<const float> logits, float largest) {
  std::size_t i = 0;
  while (i + kBlock <= logits.size() && !any_at_least(&logits[i], largest)) i += kBlock;
  while (i < logits.size() && !(logits[i] >= largest)) ++i;
  return static_cast<std::int32_t>(i);
}
}  // namespace

float Candidates::to_logit(double value) {
  if (!(value > -std::numeric_limits<double>::infinity())) return kForbidden;
  return static_cast<float>(std::clamp<double>(value, -kLargest, kLargest));
}

bool Candidates::assign(std::span<const float> logits) {
  logits_ = logits;
  listed_ = false;
  order_ = Order::by_token;
  largest_ = largest(logits);
  return largest_ >= -kLargest;
}

void Candidates::list() const {
  if (listed_) return;
  listed_ = true;
  items_.resize(logits_.size());
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    items_[i] = {static_cast<std::int32_t>(i), usable_logit(logits_[i])};
  }
}

Candidate Candidates::best() const {
  if (!listed_) return {first_of(logits_, largest_), largest_};
  if (order_ == Order::by_logit) return items_.front();
  Candidate best = items_.front();
  for (const Candidate& c : items_) {
    if (better(c, best)) best = c;
  }
  return best;
}

float Candidates::max_logit() const { return listed_ ? best().logit : largest_; }

bool Candidates::any_allowed() const { return max_logit() >= -kLargest; }

void Candidates::sort_by_logit() {
  list();
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
  list();
  const auto index = static_cast<std::size_t>(token);
  if (token >= 0 && index < items_.size() && items_[index].token == token) return &items_[index];
  const auto it = std::lower_bound(items_.begin(), items_.end(), Candidate{token, 0}, lower_token);
  return it != items_.end() && it->token == token ? &*it : nullptr;
}

void Candidates::keep_best(std::size_t count) {
  count = std::max<std::size_t>(count, 1);
  if (count < size() && order_ != Order::by_logit) {
    if (listed_)
      select_best(items_, count, spare_);
    else
      select_best(logits_, count, spare_);
    listed_ = true;
    std::swap(items_, spare_);
    order_ = Order::by_logit;
    return;
  }
  sort_by_logit();
  if (count < items_.size()) items_.resize(count);
}

bool Candidates::keep_allowed(std::span<const std::uint64_t> mask) {
  bool any = false;
  if (listed_) {
    keep_if([&](const Candidate& c) {
      const auto token = static_cast<std::size_t>(c.token);
      const bool may = token / 64 < mask.size() && ((mask[token / 64] >> (token % 64)) & 1) != 0;
      any |= may && c.logit >= -kLargest;
      return may;
    });
    return any;
  }
  items_.clear();
  listed_ = true;
  const std::size_t words = std::min(mask.size(), (logits_.size() + 63) / 64);
  for (std::size_t w = 0; w < words; ++w) {
    for (std::uint64_t bits = mask[w]; bits != 0; bits &= bits - 1) {
      const std::size_t token = w * 64 + static_cast<std::size_t>(std::countr_zero(bits));
      if (token >= logits_.size()) break;
      items_.push_back({static_cast<std::int32_t>(token), usable_logit(logits_[token])});
      any |= items_.back().logit >= -kLargest;
    }
  }
  return any;
}

void Candidates::keep_only(std::span<const Candidate> chosen) {
  items_.assign(chosen.begin(), chosen.end());
  listed_ = true;
  order_ = Order::none;
}

Candidates::Weights Candidates::weights() {
  const double max = max_logit();
  weights_.resize(size());
  if (listed_)
    exp_differences(items_, max, weights_);
  else
    exp_differences(logits_, max, weights_);
  return {weights_, lane_sum(weights_)};
}

namespace {

/// Takes candidates one by one and keeps the best.
class Selection {
 public:
  Selection(std::size_t count, std::size_t of, std::vector<Candidate>& out)
      : count_(count), capacity_(2 * count + 64), out_(&out) {
    out.clear();
    out.reserve(std::min(capacity_, of));
  }
  bool full() const { return full_; }
  /// No worse one is kept any more, once full.
  const Candidate& worst() const { return worst_; }

  void offer(const Candidate& c) {
    if (full_ && !better(c, worst_)) return;
    out_->push_back(c);
    if (out_->size() == capacity_) {
      shrink();
      worst_ = out_->back();
      full_ = true;
    }
  }
  void finish() {
    if (out_->size() > count_) shrink();
    std::sort(out_->begin(), out_->end(), better);
  }

 private:
  void shrink() {
    std::nth_element(out_->begin(), out_->begin() + static_cast<std::ptrdiff_t>(count_) - 1, out_->end(),
                     better);
    out_->resize(count_);
  }
  // The buffer holds at least `count` entries more than asked for, so that the partial sorts that shrink it
  // again cost a constant per entry.
  std::size_t count_, capacity_;
  std::vector<Candidate>* out_;
  bool full_ = false;
  Candidate worst_{};
};

}  // namespace

void select_best(std::span<const Candidate> all, std::size_t count, std::vector<Candidate>& out) {
  count = std::min(count, all.size());
  Selection selection(count, all.size(), out);
  if (count == 0) return;
  for (const Candidate& c : all) selection.offer(c);
  selection.finish();
}

void select_best(std::span<const float> logits, std::size_t count, std::vector<Candidate>& out) {
  count = std::min(count, logits.size());
  Selection selection(count, logits.size(), out);
  if (count == 0) return;
  for (std::size_t i = 0; i < logits.size();) {
    const std::size_t end = std::min(i + kBlock, logits.size());
    if (selection.full() && end - i == kBlock && !any_at_least(&logits[i], selection.worst().logit)) {
      i = end;
      continue;
    }
    for (; i < end; ++i) selection.offer({static_cast<std::int32_t>(i), usable_logit(logits[i])});
  }
  selection.finish();
}

}  // namespace quipu::engine

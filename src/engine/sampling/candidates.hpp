// The tokens that may still be drawn, with their logits: what the stages of the chain pass on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace quipu::engine {

struct Candidate {
  std::int32_t token;
  float logit;
};

/// The total order of all choices: higher logit first, equal logits by lower id.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// A model's logit as a candidate's: NaN counts as -inf, +inf as the largest float.
[[gnu::always_inline]] inline float usable_logit(float logit) {
  constexpr float largest = std::numeric_limits<float>::max();
  const float bounded = logit > largest ? largest : logit;
  return logit >= -largest ? bounded : -std::numeric_limits<float>::infinity();
}

/// Never empty. Logits are finite or -inf (forbidden), at least one is finite. Buffers are kept between
/// draws. As long as nothing but the best are asked for, the logits are read where they lie and no list is
/// made.
class Candidates {
 public:
  /// The whole vocabulary. NaN counts as -inf, +inf as the largest float. False when no logit is above -inf.
  /// The logits must stay until the next assign or the last use.
  bool assign(std::span<const float> logits);
  bool assign(std::vector<float>&& logits) = delete;

  std::size_t size() const { return listed_ ? items_.size() : logits_.size(); }
  std::span<const Candidate> items() const {
    list();
    return items_;
  }
  float max_logit() const;
  bool any_allowed() const;  ///< some logit is above -inf
  Candidate best() const;

  /// Best first.
  void sort_by_logit();
  /// Lower ids first: the order in which the final draw walks.
  void sort_by_token();
  /// The candidate of a token, or null; needs the order by token.
  Candidate* find(std::int32_t token);
  /// Logit of every candidate := f(candidate). The order by token stays.
  template <class F>
  void change_logits(F&& f) {
    list();
    for (Candidate& c : items_) c.logit = f(c);
    if (order_ == Order::by_logit) order_ = Order::none;
  }
  /// Keeps the `count` best, sorted; at least one.
  void keep_best(std::size_t count);
  /// Keeps what fulfils the predicate, in the same order. The caller makes sure that something does.
  template <class P>
  void keep_if(P&& predicate) {
    list();
    std::size_t kept = 0;
    for (const Candidate& c : items_) {
      if (predicate(c)) items_[kept++] = c;
    }
    items_.resize(kept);
  }
  /// Keeps the tokens of the mask, in the same order. False when none of them is above -inf: the candidates
  /// are then of no use.
  bool keep_allowed(std::span<const std::uint64_t> mask);
  /// Keeps exactly these (a subset), in any order.
  void keep_only(std::span<const Candidate> chosen);

  /// exp(logit - max) of each item in the present order, and their sum: softmax without the division. Valid
  /// until the next change.
  struct Weights {
    std::span<const double> values;
    double sum;
  };
  Weights weights();

  /// As a float: finite values stay finite (no penalty forbids), NaN and -inf give -inf.
  static float to_logit(double value);

 private:
  enum class Order : std::uint8_t { by_token, by_logit, none };
  void list() const;
  std::span<const float> logits_;  ///< of the whole vocabulary, as the model gave them
  float largest_ = 0;              ///< of them
  mutable bool listed_ = false;    ///< whether items_ holds the candidates
  mutable std::vector<Candidate> items_;
  std::vector<Candidate> spare_;
  std::vector<double> weights_;
  Order order_ = Order::by_token;
};

/// The `count` best of `all`, best first: one pass with a bounded buffer, so that a vocabulary of 150,000
/// costs little more than reading it. `out` is overwritten.
void select_best(std::span<const Candidate> all, std::size_t count, std::vector<Candidate>& out);
/// The same of a whole vocabulary, by the rules of Candidates::assign.
void select_best(std::span<const float> logits, std::size_t count, std::vector<Candidate>& out);

}  // namespace quipu::engine

// The shortest prefix of an ordering that holds a given probability, without sorting everything.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace quipu::engine {

/// A candidate with its probability and the stage's own rank value.
template <class Key>
struct Weighted {
  Key key;
  double p;
};

/// Reorders `items` so that its first n are those that come first by `less`, n the least count (at least
/// `min_keep`) for which `enough(sum of p)` holds, or all; returns n. `enough` must be monotone. The last of
/// the n stands at n - 1. Selection by halves: linear time.
template <class Key, class Less, class Enough>
std::size_t mass_prefix(std::vector<Weighted<Key>>& items, const Less& less, const Enough& enough,
                        std::size_t min_keep) {
  const auto at = [&](std::size_t i) { return items.begin() + static_cast<std::ptrdiff_t>(i); };
  std::size_t begin = 0, end = items.size();  // the prefix ends in (begin, end]; `mass` lies before begin
  double mass = 0;
  while (end - begin > 64) {
    const std::size_t middle = begin + (end - begin) / 2;
    std::nth_element(at(begin), at(middle), at(end), less);
    double half = 0;
    for (std::size_t i = begin; i < middle; ++i) half += items[i].p;
    if (enough(mass + half)) {
      end = middle;
    } else {
      mass += half;
      begin = middle;
    }
  }
  std::sort(at(begin), at(end), less);
  std::size_t count = begin;
  while (count < end) {
    mass += items[count++].p;
    if (enough(mass)) break;
  }
  min_keep = std::min(min_keep, items.size());
  if (count < min_keep) {
    std::nth_element(at(count), at(min_keep - 1), items.end(), less);
    count = min_keep;
  }
  return count;
}

}  // namespace quipu::engine

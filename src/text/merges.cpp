#include "text/merges.hpp"

#include <algorithm>

namespace quipu::text {

namespace {

constexpr std::uint32_t kEnd = 0xffffffff;
constexpr std::uint32_t kNoRank = 0xffffffff;
/// Up to here, looking for the lowest rank by eye beats a heap; words are seldom longer.
constexpr std::size_t kShort = 48;

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
  return (static_cast<std::uint64_t>(left) << 32) | right;
}

/// Finaliser of MurmurHash3 (public domain), a bijection that mixes all bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

std::uint32_t rank_of(const MergeTable& table, std::uint32_t left, std::uint32_t right) {
  const MergeTable::Merge* merge = table.find(left, right);
  return merge == nullptr ? kNoRank : merge->rank;
}

void merge_short(const MergeTable& table, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  std::vector<std::uint32_t>& ranks = scratch.ranks;  // ranks[i]: of the pair (i, i + 1)
  ranks.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
    ranks.push_back(rank_of(table, symbols[i].id, symbols[i + 1].id));
  scratch.steps += ranks.size();
  while (!ranks.empty()) {
    const auto lowest = std::min_element(ranks.begin(), ranks.end());
    if (*lowest == kNoRank) break;
    const auto i = static_cast<std::size_t>(lowest - ranks.begin());
    symbols[i].id = table.find(symbols[i].id, symbols[i + 1].id)->merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(lowest);
    if (i > 0) ranks[i - 1] = rank_of(table, symbols[i - 1].id, symbols[i].id);
    if (i < ranks.size()) ranks[i] = rank_of(table, symbols[i].id, symbols[i + 1].id);
    scratch.steps += 2;
  }
}

void merge_long(const MergeTable& table, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  using Candidate = MergeScratch::Candidate;
  auto& links = scratch.links;
  auto& heap = scratch.heap;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto candidate = [&](std::uint32_t left, std::uint32_t right) {
    const std::uint32_t rank = rank_of(table, symbols[left].id, symbols[right].id);
    ++scratch.steps;
    if (rank == kNoRank) return false;
    heap.push_back({rank, left, symbols[left].id, symbols[right].id});
    return true;
  };

  links.resize(count);
  heap.clear();
  for (std::uint32_t i = 0; i < count; ++i) links[i] = {i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1};
  for (std::uint32_t i = 0; i + 1 < count; ++i) candidate(i, i + 1);
  std::make_heap(heap.begin(), heap.end(), later);

  // A symbol that was merged away gets this id, so that candidates naming it are seen to be stale. Texts only
  // grow, so an id never comes back at a position.
  constexpr std::uint32_t kGone = MergeTable::kNoSymbol - 1;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    ++scratch.steps;
    const std::uint32_t left = best.left;
    const std::uint32_t right = links[left].next;
    if (right == kEnd || symbols[left].id != best.left_id || symbols[right].id != best.right_id) continue;
    symbols[left].id = table.find(best.left_id, best.right_id)->merged;
    symbols[right].id = kGone;
    const std::uint32_t next = links[right].next;
    links[left].next = next;
    if (next != kEnd) {
      links[next].previous = left;
      if (candidate(left, next)) std::push_heap(heap.begin(), heap.end(), later);
    }
    const std::uint32_t previous = links[left].previous;
    if (previous != kEnd && candidate(previous, left)) std::push_heap(heap.begin(), heap.end(), later);
  }
  symbols.erase(std::remove_if(symbols.begin(), symbols.end(), [](const Symbol& s) { return s.id == kGone; }),
                symbols.end());
}

}  // namespace

MergeTable::MergeTable(std::size_t most) { slots_.resize(most + most * 2 / 3 + 1); }

std::size_t MergeTable::home(std::uint64_t key) const {
  return static_cast<std::size_t>((static_cast<unsigned __int128>(mix(key)) * slots_.size()) >> 64);
}

void MergeTable::add(std::uint32_t left, std::uint32_t right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  std::size_t i = home(key);
  while (slots_[i].key != kFree) {
    if (slots_[i].key == key) return;
    i = next(i);
  }
  slots_[i] = {key, merge};
}

void MergeTable::prefetch(std::uint32_t left, std::uint32_t right) const {
  if (!slots_.empty()) __builtin_prefetch(&slots_[home(pair_key(left, right))]);
}

const MergeTable::Merge* MergeTable::find(std::uint32_t left, std::uint32_t right) const {
  if (slots_.empty()) return nullptr;
  const std::uint64_t key = pair_key(left, right);
  for (std::size_t i = home(key); slots_[i].key != kFree; i = next(i))
    if (slots_[i].key == key) return &slots_[i].merge;
  return nullptr;
}

void merge_symbols(const MergeTable& table, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  if (symbols.size() <= kShort)
    merge_short(table, symbols, scratch);
  else
    merge_long(table, symbols, scratch);
}

}  // namespace quipu::text

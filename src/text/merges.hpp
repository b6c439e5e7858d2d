// Byte-pair merging: the table of merges, and applying it in O(n log n).
#pragma once

#include <cstdint>
#include <vector>

namespace quipu::text {

/// (left symbol, right symbol) -> (rank, merged symbol): a flat hash table.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    std::uint32_t merged;
  };
  /// A symbol that takes part in no merge.
  static constexpr std::uint32_t kNoSymbol = 0xffffffff;

  MergeTable() = default;
  /// At most so many will be added.
  explicit MergeTable(std::size_t most);
  /// The first merge of a pair counts.
  void add(std::uint32_t left, std::uint32_t right, Merge merge);
  /// Asks for the memory that `add` and `find` will look at first.
  void prefetch(std::uint32_t left, std::uint32_t right) const;
  /// nullptr when the pair does not merge.
  const Merge* find(std::uint32_t left, std::uint32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge{0, 0};
  };
  static constexpr std::uint64_t kFree = 0xffffffffffffffff;
  std::size_t home(std::uint64_t key) const;
  std::size_t next(std::size_t slot) const { return slot + 1 == slots_.size() ? 0 : slot + 1; }

  std::vector<Slot> slots_;  // three of five are taken
};

struct Symbol {
  std::uint32_t id = MergeTable::kNoSymbol;
  std::uint32_t begin = 0;  ///< first byte in the piece; the symbol ends where the next one begins
};

/// Reusable memory of merge_symbols.
struct MergeScratch {
  struct Link {
    std::uint32_t previous, next;
  };
  struct Candidate {
    std::uint32_t rank, left, left_id, right_id;
  };
  std::vector<Link> links;
  std::vector<Candidate> heap;
  std::vector<std::uint32_t> ranks;
  std::uint64_t steps = 0;  ///< pairs looked up and heap entries handled so far: the work done
};

/// Merges neighbours, lowest rank first and leftmost among equals, until no pair merges.
void merge_symbols(const MergeTable& table, std::vector<Symbol>& symbols, MergeScratch& scratch);

}  // namespace quipu::text

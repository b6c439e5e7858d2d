// Full pages of finished work, found again by their tokens.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "memory/kv_cache.hpp"
#include "memory/page_store.hpp"

namespace quipu::memory {

/// A tree whose edges are the graph::kPagePositions token ids of a page: a page is found by all tokens up to
/// its end, and by the sequence's content key, so its keys and values are those that computing the tokens
/// again would give. Holds one reference to each page. One pool; not thread-safe.
class PrefixTree {
 public:
  /// `store`: takes the pages that are given up, and gives them back; null: none. It must outlive the tree.
  explicit PrefixTree(std::shared_ptr<PagePool> pool, PageStore* store = nullptr);
  /// The store gets all pages.
  ~PrefixTree();

  /// Adds the full pages of the sequence that are not known yet. Only for sequences whose content was
  /// computed here: what comes from a file must not reach others.
  void insert(const Sequence& sequence);
  /// Extends `sequence` by known pages as long as they hold its next tokens: `tokens` from its length on. The
  /// length must be a multiple of the page size, else nothing happens. Returns the number of tokens added.
  std::int64_t extend(Sequence& sequence, std::span<const std::int32_t> tokens);
  /// From now on at most about so many pages go to and from the store, until this is called again: files are
  /// slow, and whoever drives the tree has others waiting. Until the first call there is no limit.
  void allow_store(std::size_t pages) { allowance_ = pages; }
  /// Whether the last `extend` stopped at a page that the store has, because no more may be read now.
  bool more_is_stored() const { return more_is_stored_; }
  /// Whether `evict` may still write to the store. It does so in any case.
  bool may_store() const { return store_ == nullptr || allowance_ > 0; }
  /// How many of the first tokens are known to sequences of this content key; a multiple of the page size.
  std::int64_t known(std::span<const std::int32_t> tokens, std::uint64_t content_key = 0) const;
  /// Why no more of the first tokens are known, for people; empty when all whole pages are.
  std::string why_not(std::span<const std::int32_t> tokens) const;
  /// Frees the page that was used longest ago among those no sequence holds and none follows. False when
  /// there is none. Takes the logarithm of the number of chains, and a look at each held one.
  bool evict();
  std::size_t pages() const;

 private:
  struct Node;
  using Edge = std::vector<std::int32_t>;
  /// The tokens from the first to the end of the node's page.
  static std::vector<std::int32_t> path_of(const Node& node);
  void store(std::span<const std::int32_t> path, std::uint32_t page);
  Node* load(Node& parent, std::span<const std::int32_t> tokens);
  bool evict_older(std::uint64_t than);
  void touch(Node& node);
  Node& add_child(Node& parent, Edge edge, std::uint32_t page);
  const Node* deepest(std::span<const std::int32_t> tokens, std::uint64_t content_key,
                      std::size_t& length) const;
  std::shared_ptr<PagePool> pool_;
  std::unique_ptr<Node> root_;
  PageStore* store_;
  std::size_t allowance_ = SIZE_MAX;
  bool more_is_stored_ = false;
  std::uint64_t clock_ = 0;
  /// Pages that none follows, by their last use. Unique: what is used at the same time is one chain.
  std::map<std::uint64_t, Node*> leaves_;
  std::unordered_set<std::uint64_t> given_up_;  // hashes of paths, to say why; cleared now and then
  std::size_t pages_ = 0;
};

}  // namespace quipu::memory

// Pages of finished work, found again by their tokens.
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
/// again would give. The last page of a finished sequence has fewer tokens; none follows it. Whole pages are
/// shared, the first rows of others copied. Holds one reference to each page. One pool; not thread-safe.
class PrefixTree {
 public:
  /// Fewer rows are computed as soon as a page is copied, and a page is taken for them.
  static constexpr std::size_t kLeastCopied = 8;

  /// `store`: takes the pages that are given up, and gives them back; null: none. It must outlive the tree.
  explicit PrefixTree(std::shared_ptr<PagePool> pool, PageStore* store = nullptr);
  /// The store gets all pages.
  ~PrefixTree();

  /// Adds the full pages of the sequence that are not known yet. Only for sequences whose content was
  /// computed here: what comes from a file must not reach others.
  void insert(const Sequence& sequence) { insert_pages(sequence); }
  /// The same with the last page, however full. Whoever goes on with the sequence copies that page first.
  void insert_all(const Sequence& sequence);
  /// Extends `sequence`, which holds the first of `tokens`, by the known pages of the next ones, and by a
  /// copy of those rows of one more page whose tokens are the same (at least kLeastCopied). What it has of a
  /// page gives way to more of it. Returns the number of tokens added.
  std::int64_t extend(Sequence& sequence, std::span<const std::int32_t> tokens);
  /// From now on at most about so many pages go to and from the store, until this is called again: files are
  /// slow, and whoever drives the tree has others waiting. Until the first call there is no limit.
  void allow_store(std::size_t pages) { allowance_ = pages; }
  /// Whether the last `extend` stopped at a page that the store has, because no more may be read now.
  bool more_is_stored() const { return more_is_stored_; }
  /// Whether `evict` may still write to the store. It does so in any case.
  bool may_store() const { return store_ == nullptr || allowance_ > 0; }
  /// How many of the first tokens an empty sequence of this content key would get.
  std::int64_t known(std::span<const std::int32_t> tokens, std::uint64_t content_key = 0) const;
  /// Why no more of the first tokens are known, for people; empty when all whole pages are.
  std::string why_not(std::span<const std::int32_t> tokens) const;
  /// Gives up the page that was used longest ago among those that none follows and no sequence holds, or that
  /// are not full (whoever holds one then needs no copy to go on). False when there is none. Takes the
  /// logarithm of the number of chains, and a look at each held one.
  bool evict();
  std::size_t pages() const;

 private:
  struct Node;
  using Tokens = std::span<const std::int32_t>;
  using Edge = std::vector<std::int32_t>;
  struct Nearest {
    Node* node = nullptr;
    std::size_t same = 0;
  };
  Node& insert_pages(const Sequence& sequence);
  Node& insert_page(Node& parent, const Sequence& sequence, std::size_t page, std::size_t count);
  /// The tokens from the first to the end of the node's page.
  static std::vector<std::int32_t> path_of(const Node& node);
  void store(const Node& node);
  Node* load(Node& parent, std::span<const std::int32_t> tokens);
  bool make_room();
  bool evict_older(std::uint64_t than);
  void touch(Node& node);
  Node& add_child(Node& parent, Edge edge, std::size_t tokens, std::uint32_t page);
  void remove(Node& leaf);
  /// The child whose page begins with most of `tokens`, those from `position` on, and with how many.
  static Nearest nearest(const Node& parent, Tokens tokens, std::size_t position, std::uint64_t content_key);
  static Node* whole(const Node& parent, Tokens tokens, std::size_t position, std::uint64_t content_key);
  void copy_rows(Node& parent, Sequence& sequence, Tokens tokens, std::size_t position);
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

#include "memory/prefix_tree.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "core/error.hpp"

namespace quipu::memory {

namespace {
/// A page's tokens; those of a first page behind what else their keys and values depend on.
std::vector<std::int32_t> edge_of(std::span<const std::int32_t> tokens, std::size_t page,
                                  std::uint64_t content_key) {
  std::vector<std::int32_t> edge;
  if (page == 0 && content_key != 0)
    edge = {static_cast<std::int32_t>(content_key), static_cast<std::int32_t>(content_key >> 32)};
  edge.insert(edge.end(), tokens.begin(), tokens.end());
  return edge;
}

constexpr std::size_t kMostGivenUp = 1 << 16;
std::uint64_t hash_of(std::span<const std::int32_t> tokens) { return xxh64(std::as_bytes(tokens)); }
}  // namespace

struct PrefixTree::Node {
  std::uint32_t page = 0;
  std::uint64_t last_used = 0;
  Node* parent = nullptr;
  const Edge* edge = nullptr;  // from the parent; null: the root
  std::map<Edge, std::unique_ptr<Node>> children;
};

PrefixTree::PrefixTree(std::shared_ptr<PagePool> pool, PageStore* store)
    : pool_(std::move(pool)), root_(std::make_unique<Node>()), store_(store) {}

PrefixTree::~PrefixTree() {
  // Without recursion: a chain is as deep as the longest context has pages.
  std::vector<Node*> all{root_.get()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (auto& [edge, child] : all[i]->children) {
      store(path_of(*child), child->page);
      pool_->release(child->page);
      all.push_back(child.get());
    }
  }
  for (; all.size() > 1; all.pop_back()) all.back()->children.clear();
}

/// Only what depends on the tokens alone: a path with a content key is no whole number of pages.
void PrefixTree::store(std::span<const std::int32_t> path, std::uint32_t page) {
  if (store_ == nullptr || path.size() % kPage != 0) return;
  store_->put(path, page);
  if (allowance_ > 0) --allowance_;
}

std::vector<std::int32_t> PrefixTree::path_of(const Node& node) {
  std::vector<const Edge*> edges;
  for (const Node* at = &node; at->edge != nullptr; at = at->parent) edges.push_back(at->edge);
  std::vector<std::int32_t> tokens;
  tokens.reserve(edges.size() * kPage);
  for (auto it = edges.rbegin(); it != edges.rend(); ++it)
    tokens.insert(tokens.end(), (*it)->begin(), (*it)->end());
  return tokens;
}

/// The node is used now.
void PrefixTree::touch(Node& node) {
  if (node.children.empty()) {
    leaves_.erase(node.last_used);
    leaves_.emplace(clock_, &node);
  }
  node.last_used = clock_;
}

/// Takes over a reference to the page.
PrefixTree::Node& PrefixTree::add_child(Node& parent, Edge edge, std::uint32_t page) {
  if (parent.children.empty()) leaves_.erase(parent.last_used);  // the root, used at 0, is none
  const auto at = parent.children.emplace(std::move(edge), std::make_unique<Node>()).first;
  Node& node = *at->second;
  node.page = page;
  node.parent = &parent;
  node.edge = &at->first;
  node.last_used = clock_;
  leaves_.emplace(clock_, &node);
  ++pages_;
  return node;
}

void PrefixTree::insert(const Sequence& sequence) {
  ++clock_;
  Node* node = root_.get();
  const auto tokens = sequence.tokens();
  for (std::size_t i = 0; (i + 1) * kPage <= tokens.size(); ++i) {
    const auto part = tokens.subspan(i * kPage, kPage);
    Edge edge = edge_of(part, i, sequence.content_key());
    if (const auto known = node->children.find(edge); known != node->children.end()) {
      node = known->second.get();
      touch(*node);
      continue;
    }
    pool_->add_reference(sequence.pages()[i]);
    node = &add_child(*node, std::move(edge), sequence.pages()[i]);
  }
}

/// The page behind `parent`, from the store; `tokens` end with it. Null when it is not there.
PrefixTree::Node* PrefixTree::load(Node& parent, std::span<const std::int32_t> tokens) {
  if (store_ == nullptr || !store_->holds(tokens)) return nullptr;
  more_is_stored_ = allowance_ == 0;
  if (more_is_stored_) return nullptr;
  std::optional<std::uint32_t> page = pool_->take();
  if (!page && evict_older(clock_)) page = pool_->take();
  if (!page) return nullptr;
  if (allowance_ > 0) --allowance_;
  if (!store_->get(tokens, *page)) {
    pool_->release(*page);
    return nullptr;
  }
  const auto part = tokens.last(kPage);
  return &add_child(parent, Edge(part.begin(), part.end()), *page);  // with the reference it came with
}

std::int64_t PrefixTree::extend(Sequence& sequence, std::span<const std::int32_t> tokens) {
  more_is_stored_ = false;
  const auto length = static_cast<std::size_t>(sequence.length());
  if (length % kPage != 0) return 0;
  ++clock_;
  Node* node = root_.get();
  std::int64_t added = 0;
  for (std::size_t at = 0; at + kPage <= tokens.size(); at += kPage) {
    const auto part = tokens.subspan(at, kPage);
    const auto found = node->children.find(edge_of(part, at / kPage, sequence.content_key()));
    if (found != node->children.end()) {
      node = found->second.get();
    } else {
      node = at < length || sequence.content_key() != 0 ? nullptr : load(*node, tokens.first(at + kPage));
      if (node == nullptr) break;
    }
    touch(*node);
    if (at < length) continue;
    sequence.append_shared_page(node->page, part);
    added += static_cast<std::int64_t>(kPage);
  }
  return added;
}

const PrefixTree::Node* PrefixTree::deepest(std::span<const std::int32_t> tokens, std::uint64_t content_key,
                                            std::size_t& length) const {
  const Node* node = root_.get();
  for (length = 0; length + kPage <= tokens.size(); length += kPage) {
    const auto found =
        node->children.find(edge_of(tokens.subspan(length, kPage), length / kPage, content_key));
    if (found == node->children.end()) break;
    node = found->second.get();
  }
  return node;
}

std::int64_t PrefixTree::known(std::span<const std::int32_t> tokens, std::uint64_t content_key) const {
  std::size_t length = 0;
  deepest(tokens, content_key, length);
  return static_cast<std::int64_t>(length);
}

std::string PrefixTree::why_not(std::span<const std::int32_t> tokens) const {
  std::size_t length = 0;
  const Node* node = deepest(tokens, 0, length);
  if (length + kPage > tokens.size()) return {};
  if (given_up_.count(hash_of(tokens.first(length + kPage))) != 0)
    return fmt::format("tokens {} to {} were known and gave their memory to others", length,
                       length + kPage - 1);
  const auto next = tokens.subspan(length, kPage);
  std::size_t longest = 0;
  for (const auto& [edge, child] : node->children) {
    const auto same = std::mismatch(edge.begin(), edge.end(), next.begin(), next.end()).first - edge.begin();
    longest = std::max(longest, static_cast<std::size_t>(same));
  }
  if (longest > 0) return fmt::format("what is known differs from token {} on", length + longest);
  return length == 0 ? "nothing known begins so"
                     : fmt::format("nothing known goes on behind token {}", length - 1);
}

bool PrefixTree::evict() { return evict_older(UINT64_MAX); }

bool PrefixTree::evict_older(std::uint64_t than) {
  const auto oldest = std::find_if(leaves_.begin(), leaves_.end(), [&](const auto& leaf) {
    return leaf.first >= than || pool_->references(leaf.second->page) == 1;
  });
  if (oldest == leaves_.end() || oldest->first >= than) return false;
  Node& node = *oldest->second;
  const std::vector<std::int32_t> path = path_of(node);
  store(path, node.page);
  if (given_up_.size() >= kMostGivenUp) given_up_.clear();
  given_up_.insert(hash_of(path));
  pool_->release(node.page);
  leaves_.erase(oldest);
  Node& parent = *node.parent;
  parent.children.erase(parent.children.find(*node.edge));
  if (parent.children.empty() && parent.edge != nullptr) leaves_.emplace(parent.last_used, &parent);
  --pages_;
  return true;
}

std::size_t PrefixTree::pages() const { return pages_; }

}  // namespace quipu::memory

#include "memory/prefix_tree.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "core/error.hpp"

namespace quipu::memory {

namespace {
/// A page's tokens; those of a first page behind what else their keys and values depend on, and a number that
/// is no token.
std::vector<std::int32_t> edge_of(std::span<const std::int32_t> tokens, std::size_t position,
                                  std::uint64_t content_key) {
  std::vector<std::int32_t> edge;
  if (position == 0 && content_key != 0)
    edge = {-1, static_cast<std::int32_t>(content_key), static_cast<std::int32_t>(content_key >> 32)};
  edge.insert(edge.end(), tokens.begin(), tokens.end());
  return edge;
}

constexpr std::size_t kMostGivenUp = 1 << 16;
std::uint64_t hash_of(std::span<const std::int32_t> tokens) { return xxh64(std::as_bytes(tokens)); }
}  // namespace

struct PrefixTree::Node {
  std::uint32_t page = 0;
  std::size_t tokens = 0;  // that the page holds; fewer than kPage: a leaf for good
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
      store(*child);
      pool_->release(child->page);
      all.push_back(child.get());
    }
  }
  for (; all.size() > 1; all.pop_back()) all.back()->children.clear();
}

/// Whole pages, and only what depends on the tokens alone: a path with a content key is no whole number of
/// pages.
void PrefixTree::store(const Node& node) {
  if (store_ == nullptr || node.tokens < kPage) return;
  const std::vector<std::int32_t> path = path_of(node);
  if (path.size() % kPage != 0) return;
  store_->put(path, node.page);
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
PrefixTree::Node& PrefixTree::add_child(Node& parent, Edge edge, std::size_t tokens, std::uint32_t page) {
  if (parent.children.empty()) leaves_.erase(parent.last_used);  // the root, used at 0, is none
  const auto at = parent.children.emplace(std::move(edge), std::make_unique<Node>()).first;
  Node& node = *at->second;
  node.page = page;
  node.tokens = tokens;
  node.parent = &parent;
  node.edge = &at->first;
  node.last_used = clock_;
  leaves_.emplace(clock_, &node);
  ++pages_;
  return node;
}

/// Takes the leaf out and gives its page back.
void PrefixTree::remove(Node& leaf) {
  pool_->release(leaf.page);
  leaves_.erase(leaf.last_used);
  Node& parent = *leaf.parent;
  parent.children.erase(parent.children.find(*leaf.edge));
  if (parent.children.empty() && parent.edge != nullptr) leaves_.emplace(parent.last_used, &parent);
  --pages_;
}

PrefixTree::Node& PrefixTree::insert_pages(const Sequence& sequence) {
  ++clock_;
  Node* node = root_.get();
  for (std::size_t page = 0; page < sequence.tokens().size() / kPage; ++page)
    node = &insert_page(*node, sequence, page, kPage);
  return *node;
}

void PrefixTree::insert_all(const Sequence& sequence) {
  Node& parent = insert_pages(sequence);
  const std::size_t rest = sequence.tokens().size() % kPage;
  if (rest >= kLeastCopied) insert_page(parent, sequence, sequence.tokens().size() / kPage, rest);
}

/// The page with that number of the sequence, which has so many tokens in it, behind `parent`.
PrefixTree::Node& PrefixTree::insert_page(Node& parent, const Sequence& sequence, std::size_t page,
                                          std::size_t count) {
  const std::size_t position = page * kPage;
  const Tokens tokens = sequence.tokens().subspan(position, count);
  const Nearest known = nearest(parent, tokens, position, sequence.content_key());
  if (known.same == count) {
    touch(*known.node);
    return *known.node;
  }
  pool_->add_reference(sequence.pages()[page]);
  Node& added =
      add_child(parent, edge_of(tokens, position, sequence.content_key()), count, sequence.pages()[page]);
  // Beside a page that goes on, one that holds only less of the same is of no use.
  if (known.node != nullptr && known.node->tokens == known.same) remove(*known.node);
  return added;
}

PrefixTree::Nearest PrefixTree::nearest(const Node& parent, Tokens tokens, std::size_t position,
                                        std::uint64_t content_key) {
  const Edge wanted = edge_of(tokens, position, content_key);
  const std::size_t key_size = wanted.size() - tokens.size();
  // In the order of edges those with the longest common beginning stand beside it.
  const auto behind = parent.children.lower_bound(wanted);
  Nearest best;
  const auto look_at = [&](const auto& child) {
    const Edge& edge = child.first;
    const auto end = std::mismatch(edge.begin(), edge.end(), wanted.begin(), wanted.end()).first;
    const auto same = static_cast<std::size_t>(end - edge.begin());
    if (same > key_size + best.same) best = {child.second.get(), same - key_size};
  };
  if (behind != parent.children.end()) look_at(*behind);
  if (behind != parent.children.begin()) look_at(*std::prev(behind));
  return best;
}

/// The child whose page holds all of these tokens; null: none.
PrefixTree::Node* PrefixTree::whole(const Node& parent, Tokens tokens, std::size_t position,
                                    std::uint64_t content_key) {
  const Nearest found = nearest(parent, tokens, position, content_key);
  return found.same == tokens.size() ? found.node : nullptr;
}

/// The page behind `parent`, from the store; `tokens` end with it. Null when it is not there.
PrefixTree::Node* PrefixTree::load(Node& parent, std::span<const std::int32_t> tokens) {
  if (store_ == nullptr || !store_->holds(tokens)) return nullptr;
  more_is_stored_ = allowance_ == 0;
  if (more_is_stored_) return nullptr;
  if (!make_room()) return nullptr;
  const std::optional<std::uint32_t> page = pool_->take();
  if (allowance_ > 0) --allowance_;
  if (!store_->get(tokens, *page)) {
    pool_->release(*page);
    return nullptr;
  }
  const auto part = tokens.last(kPage);
  return &add_child(parent, Edge(part.begin(), part.end()), kPage, *page);  // with the reference it came with
}

std::int64_t PrefixTree::extend(Sequence& sequence, std::span<const std::int32_t> tokens) {
  more_is_stored_ = false;
  const auto length = static_cast<std::size_t>(sequence.length());
  ++clock_;
  Node* node = root_.get();
  std::size_t at = 0;
  for (; at + kPage <= tokens.size(); at += kPage) {
    const Tokens part = tokens.subspan(at, kPage);
    const bool has_it = at + kPage <= length;
    Node* next = whole(*node, part, at, sequence.content_key());
    if (next == nullptr && !has_it && sequence.content_key() == 0)
      next = load(*node, tokens.first(at + kPage));
    if (next == nullptr) break;
    node = next;
    touch(*node);
    if (has_it) continue;
    sequence.truncate(static_cast<std::int64_t>(at));
    sequence.append_shared_page(node->page, part);
  }
  if (!more_is_stored_) copy_rows(*node, sequence, tokens, at);
  return sequence.length() - static_cast<std::int64_t>(length);
}

/// `position`: of the first token behind the parent's page.
void PrefixTree::copy_rows(Node& parent, Sequence& sequence, Tokens tokens, std::size_t position) {
  const auto length = static_cast<std::size_t>(sequence.length());
  if (length < position || length - position >= kPage) return;  // its own pages go on where the tree ends
  const Tokens rest = tokens.subspan(position, std::min(kPage - 1, tokens.size() - position));
  const Nearest source = nearest(parent, rest, position, sequence.content_key());
  if (source.same < length - position + kLeastCopied) return;
  touch(*source.node);
  if (!make_room()) return;
  sequence.truncate(static_cast<std::int64_t>(position));
  sequence.append_copied_page(source.node->page, rest.first(source.same));
}

const PrefixTree::Node* PrefixTree::deepest(std::span<const std::int32_t> tokens, std::uint64_t content_key,
                                            std::size_t& length) const {
  const Node* node = root_.get();
  for (length = 0; length + kPage <= tokens.size(); length += kPage) {
    const Node* next = whole(*node, tokens.subspan(length, kPage), length, content_key);
    if (next == nullptr) break;
    node = next;
  }
  return node;
}

std::int64_t PrefixTree::known(std::span<const std::int32_t> tokens, std::uint64_t content_key) const {
  std::size_t length = 0;
  const Node* node = deepest(tokens, content_key, length);
  const Tokens rest = tokens.subspan(length, std::min(kPage - 1, tokens.size() - length));
  const std::size_t same = nearest(*node, rest, length, content_key).same;
  return static_cast<std::int64_t>(same < kLeastCopied ? length : length + same);
}

std::string PrefixTree::why_not(std::span<const std::int32_t> tokens) const {
  std::size_t length = 0;
  const Node* node = deepest(tokens, 0, length);
  if (length + kPage > tokens.size()) return {};
  if (given_up_.count(hash_of(tokens.first(length + kPage))) != 0)
    return fmt::format("tokens {} to {} were known and gave their memory to others", length,
                       length + kPage - 1);
  const std::size_t longest = nearest(*node, tokens.subspan(length, kPage), length, 0).same;
  if (longest > 0) return fmt::format("what is known differs from token {} on", length + longest);
  return length == 0 ? "nothing known begins so"
                     : fmt::format("nothing known goes on behind token {}", length - 1);
}

/// A free page, at the cost of what is older than the work at hand.
bool PrefixTree::make_room() {
  while (pool_->free_pages() == 0)
    if (!evict_older(clock_)) return false;
  return true;
}

bool PrefixTree::evict() { return evict_older(UINT64_MAX); }

bool PrefixTree::evict_older(std::uint64_t than) {
  const auto oldest = std::find_if(leaves_.begin(), leaves_.end(), [&](const auto& leaf) {
    return leaf.first >= than || leaf.second->tokens < kPage || pool_->references(leaf.second->page) == 1;
  });
  if (oldest == leaves_.end() || oldest->first >= than) return false;
  Node& node = *oldest->second;
  store(node);
  if (node.tokens == kPage) {
    if (given_up_.size() >= kMostGivenUp) given_up_.clear();
    given_up_.insert(hash_of(path_of(node)));
  }
  remove(node);
  return true;
}

std::size_t PrefixTree::pages() const { return pages_; }

}  // namespace quipu::memory

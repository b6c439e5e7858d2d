#include "memory/prefix_tree.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace quipu::memory {

namespace {
using Edge = std::vector<std::int32_t>;
}  // namespace

struct PrefixTree::Node {
  std::uint32_t page = 0;
  std::uint64_t last_used = 0;
  std::map<Edge, std::unique_ptr<Node>> children;
};

PrefixTree::PrefixTree(std::shared_ptr<PagePool> pool)
    : pool_(std::move(pool)), root_(std::make_unique<Node>()) {}

PrefixTree::~PrefixTree() {
  // Without recursion: a chain is as deep as the longest context has pages.
  std::vector<std::unique_ptr<Node>> open;
  open.push_back(std::move(root_));
  while (!open.empty()) {
    const std::unique_ptr<Node> node = std::move(open.back());
    open.pop_back();
    for (auto& [edge, child] : node->children) {
      pool_->release(child->page);
      open.push_back(std::move(child));
    }
  }
}

void PrefixTree::insert(const Sequence& sequence) {
  ++clock_;
  Node* node = root_.get();
  const auto tokens = sequence.tokens();
  for (std::size_t i = 0; (i + 1) * kPage <= tokens.size(); ++i) {
    const auto part = tokens.subspan(i * kPage, kPage);
    std::unique_ptr<Node>& child = node->children[Edge(part.begin(), part.end())];
    if (child == nullptr) {
      child = std::make_unique<Node>();
      child->page = sequence.pages()[i];
      pool_->add_reference(child->page);
      ++pages_;
    }
    child->last_used = clock_;
    node = child.get();
  }
}

std::int64_t PrefixTree::extend(Sequence& sequence, std::span<const std::int32_t> tokens) {
  const auto length = static_cast<std::size_t>(sequence.length());
  if (length % kPage != 0) return 0;
  ++clock_;
  Node* node = root_.get();
  std::int64_t added = 0;
  for (std::size_t at = 0; at + kPage <= tokens.size(); at += kPage) {
    const auto part = tokens.subspan(at, kPage);
    const auto found = node->children.find(Edge(part.begin(), part.end()));
    if (found == node->children.end()) break;
    node = found->second.get();
    node->last_used = clock_;
    if (at < length) continue;
    sequence.append_shared_page(node->page, part);
    added += static_cast<std::int64_t>(kPage);
  }
  return added;
}

std::int64_t PrefixTree::known(std::span<const std::int32_t> tokens) const {
  const Node* node = root_.get();
  std::size_t at = 0;
  for (; at + kPage <= tokens.size(); at += kPage) {
    const auto part = tokens.subspan(at, kPage);
    const auto found = node->children.find(Edge(part.begin(), part.end()));
    if (found == node->children.end()) break;
    node = found->second.get();
  }
  return static_cast<std::int64_t>(at);
}

bool PrefixTree::evict() {
  Node* parent_of_oldest = nullptr;
  std::map<Edge, std::unique_ptr<Node>>::iterator oldest;
  std::vector<Node*> open{root_.get()};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (auto it = node->children.begin(); it != node->children.end(); ++it) {
      Node* child = it->second.get();
      if (!child->children.empty()) {
        open.push_back(child);
      } else if (pool_->references(child->page) == 1 &&
                 (parent_of_oldest == nullptr || child->last_used < oldest->second->last_used)) {
        parent_of_oldest = node;
        oldest = it;
      }
    }
  }
  if (parent_of_oldest == nullptr) return false;
  pool_->release(oldest->second->page);
  parent_of_oldest->children.erase(oldest);
  --pages_;
  return true;
}

std::size_t PrefixTree::pages() const { return pages_; }

}  // namespace quipu::memory

#include "text/byte_trie.hpp"

#include <algorithm>

namespace quipu::text {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, Value>> entries) {
  root_.fill(kNone);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  entries.erase(std::unique(entries.begin(), entries.end(),
                            [](const auto& a, const auto& b) { return a.first == b.first; }),
                entries.end());

  // Breadth first: a node's children are made together and so lie side by side.
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges;
  const auto add_children = [&](Range parent) {
    std::uint16_t count = 0;
    std::size_t i = parent.begin;
    while (i < parent.end) {
      const auto byte = static_cast<unsigned char>(entries[i].first[parent.depth]);
      std::size_t j = i + 1;
      while (j < parent.end && static_cast<unsigned char>(entries[j].first[parent.depth]) == byte) ++j;
      Node node;
      node.byte = byte;
      std::size_t first = i;
      if (entries[i].first.size() == parent.depth + 1) {  // the shortest key sorts first
        node.value = entries[i].second;
        ++first;
      }
      nodes_.push_back(node);
      ranges.push_back({first, j, parent.depth + 1});
      ++count;
      i = j;
    }
    return count;
  };
  add_children({0, entries.size(), 0});
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (ranges[i].depth == 1) root_[nodes_[i].byte] = static_cast<std::uint32_t>(i);
    const auto first = static_cast<std::uint32_t>(nodes_.size());
    const std::uint16_t count = add_children(ranges[i]);
    nodes_[i].first_child = first;
    nodes_[i].children = count;
  }
  nodes_.shrink_to_fit();
}

std::uint32_t ByteTrie::next(std::uint32_t node, unsigned char byte) const {
  std::uint32_t low = nodes_[node].first_child;
  std::uint32_t high = low + nodes_[node].children;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (nodes_[middle].byte < byte)
      low = middle + 1;
    else
      high = middle;
  }
  const std::uint32_t end = nodes_[node].first_child + nodes_[node].children;
  return low < end && nodes_[low].byte == byte ? low : kNone;
}

ByteTrie::Match ByteTrie::longest(std::string_view text, std::size_t position) const {
  Match best;
  std::uint32_t node = start(static_cast<unsigned char>(text[position]));
  std::size_t length = 1;
  while (node != kNone) {
    if (nodes_[node].value >= 0) best = {nodes_[node].value, length};
    if (position + length == text.size()) break;
    node = next(node, static_cast<unsigned char>(text[position + length]));
    ++length;
  }
  return best;
}

}  // namespace quipu::text

#include "text/grammar/free_text.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "core/error.hpp"

namespace quipu::text::grammar {

namespace {

/// The longest control token that a text begins with.
std::string_view control_at(std::string_view text, std::span<const std::string> controls) {
  std::string_view best;
  for (const std::string& name : controls)
    if (name.size() > best.size() && text.substr(0, name.size()) == name) best = name;
  return best;
}

/// Aho, Corasick, "Efficient string matching: an aid to bibliographic search", 1975: places are the
/// beginnings of the tags, in the order in which they were added.
class TagMachine {
 public:
  void add(std::string_view text, std::int32_t number) {
    std::size_t at = 0;
    for (const char c : text) {
      const auto [it, fresh] = next_[at].emplace(static_cast<unsigned char>(c), next_.size());
      at = it->second;
      if (!fresh) continue;
      next_.emplace_back();
      found_.push_back(-1);
    }
    if (found_[at] < 0) found_[at] = number;
  }

  /// `at_start`: the trie alone, tags do not begin later.
  std::vector<Tags::Place> places(bool at_start) {
    std::vector<std::size_t> fallback(next_.size(), 0);
    std::deque<std::size_t> queue;
    for (const auto& [byte, child] : next_[0])
      if (!at_start) queue.push_back(child);
    while (!queue.empty()) {
      const std::size_t at = queue.front();
      queue.pop_front();
      if (found_[at] < 0) found_[at] = found_[fallback[at]];
      for (const auto& [byte, child] : next_[at]) {
        const auto it = next_[fallback[at]].find(byte);
        fallback[child] = it == next_[fallback[at]].end() ? 0 : it->second;
        queue.push_back(child);
      }
      for (const auto& [byte, child] : next_[fallback[at]]) next_[at].emplace(byte, child);
    }
    std::vector<Tags::Place> places(next_.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      places[i].found = found_[i];
      for (const auto& [byte, child] : next_[i])
        places[i].next.emplace_back(byte, static_cast<std::uint32_t>(child));
    }
    return places;
  }

 private:
  std::deque<std::map<unsigned char, std::size_t>> next_{1};
  std::vector<std::int32_t> found_{-1};
};

}  // namespace

Id marked_literal(Store& store, std::string_view text, std::span<const std::string> controls) {
  std::vector<Id> parts;
  while (!text.empty()) {
    const std::string_view control = control_at(text, controls);
    if (control.empty()) {
      parts.push_back(store.byte(static_cast<unsigned char>(text.front())));
      text.remove_prefix(1);
    } else {
      parts.push_back(store.special(control));
      text.remove_prefix(control.size());
    }
  }
  Id id = kEmpty;
  for (std::size_t i = parts.size(); i-- > 0;) id = store.concat(parts[i], id);
  return id;
}

Id free_text(Store& store, const FreeText& options) {
  if (options.budget > 0 && options.tags.size() != 1)
    fail(ErrorCode::invalid_argument, "a free text with a budget has {} tags, expected 1",
         options.tags.size());
  TagMachine machine;
  Tags tags;
  tags.may_end = options.may_end;
  tags.budget = options.budget;
  for (const Tag& tag : options.tags) {
    if (tag.text.empty()) fail(ErrorCode::invalid_argument, "the tag that ends a free text is empty");
    const std::string_view control = control_at(tag.text, options.controls);
    if (!control.empty()) {
      // A tag of several tokens: the first one decides.
      const std::string_view rest = std::string_view(tag.text).substr(control.size());
      const Id then = store.concat(marked_literal(store, rest, options.controls), tag.then);
      tags.special.emplace_back(store.node(store.special(control)).a, then);
    } else {
      machine.add(tag.text, static_cast<std::int32_t>(tags.then.size()));
      tags.then.push_back(tag.then);
    }
  }
  if (options.at_start) tags.otherwise = free_text(store, {.tags = {}, .may_end = options.may_end});
  tags.places = machine.places(options.at_start);
  if (options.budget > 0) {
    const Tag& tag = options.tags.front();
    for (std::size_t i = 0; i < tags.places.size(); ++i)
      tags.forced.push_back(store.concat(
          marked_literal(store, std::string_view(tag.text).substr(i), options.controls), tag.then));
  }
  return store.until(std::move(tags));
}

}  // namespace quipu::text::grammar

// Stop strings in a stream of text, whatever its pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::engine {

/// Holds text back while it may still become a stop string. The match that is complete first wins (of those
/// that end at the same byte the longest), so that the outcome depends on the text and not on how it was cut
/// into tokens. One Knuth-Morris-Pratt automaton a string: time is linear in the text.
class StopMatcher {
 public:
  /// The strings are not empty.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Takes the next piece and returns what can no longer be part of a match. After a match: the text before
  /// it, and from then on nothing.
  std::string push(std::string_view text);
  bool matched() const { return matched_; }
  /// The string that was found; empty when there is none.
  const std::string& found() const { return found_; }
  /// Bytes of text before the match; all bytes pushed when there is none.
  std::size_t text_bytes() const { return released_ + held_.size(); }
  /// What is still held back: no match came of it.
  std::string finish();

 private:
  struct Automaton {
    std::string stop;
    std::vector<std::size_t> fallback;  // length of the longest proper border of each prefix
    std::size_t state = 0;              // bytes of the stop matched by the end of the text
  };
  std::vector<Automaton> automata_;
  std::string held_, found_;
  std::size_t released_ = 0;
  bool matched_ = false;
};

}  // namespace quipu::engine

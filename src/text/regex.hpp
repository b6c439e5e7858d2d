// PCRE2 for the split expressions of pre-tokenizers: UTF-8, Unicode properties, JIT, bounded work.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace quipu::text {

/// A compiled expression; may be used from several threads, each with its own RegexScratch.
class Regex {
 public:
  /// Throws `Error` (internal) when the expression does not compile: expressions are part of quipu.
  explicit Regex(const std::string& pattern);

 private:
  friend class RegexScratch;
  struct Code;
  std::shared_ptr<const Code> code_;
};

/// What matching needs beside the expression, one per thread. The machine stack in use is small and does not
/// depend on the text: the backtracking stack is on the heap.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

  struct Match {
    std::size_t begin = 0, end = 0;
    bool found = false;
  };
  /// First match at or after `start`. `text` must be valid UTF-8. Throws `Error` (unsupported) when the
  /// expression gives up: more than some 10 million + 16 * size backtracking steps, or its stack is full.
  Match find(const Regex& regex, std::string_view text, std::size_t start);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quipu::text

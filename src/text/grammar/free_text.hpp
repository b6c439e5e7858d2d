// Free text that ends at a tag, and literals with control tokens in them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/expression.hpp"

namespace quipu::text::grammar {

/// A literal in which the names of control tokens stand for these tokens; the rest is bytes.
Id marked_literal(Store& store, std::string_view text, std::span<const std::string> controls);

struct Tag {
  std::string text;  ///< bytes, or the name of a control token
  Id then = kEmpty;  ///< what follows it
};

struct FreeText {
  std::vector<Tag> tags = {};
  bool may_end = false;      ///< the text may end without any tag
  bool at_start = false;     ///< tags count only where the text begins
  std::uint32_t budget = 0;  ///< most tokens before the (only) tag is forced; 0: no limit
  std::vector<std::string> controls =
      {};  ///< names of the vocabulary's control tokens that tags may be made of
};

/// Any text, control tokens too, up to and with the first tag, then what follows that tag.
Id free_text(Store& store, const FreeText& options);

}  // namespace quipu::text::grammar

// Names a user may have meant.
#pragma once

#include <string_view>
#include <vector>

namespace quipu {

/// Of `names` those that share a beginning with `name` (three letters at least) or are a few edits away, best
/// first, at most five.
std::vector<std::string_view> near_matches(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace quipu

// Models in several files: MODEL-00001-of-00003.gguf and so on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace quipu::gguf {

/// The parts of a shard's file name.
struct SplitName {
  std::string stem;                     ///< what stands before "-00001-of-00003.gguf"
  std::uint32_t number = 0, count = 0;  ///< from 1
};

/// Nothing when `file_name` does not follow the pattern, or its numbers contradict each other.
std::optional<SplitName> parse_split_name(std::string_view file_name);
/// "STEM-00002-of-00003.gguf".
std::string split_file_name(std::string_view stem, std::uint32_t number, std::uint32_t count);

inline constexpr char kSplitNumberKey[] = "split.no";  ///< from 0
inline constexpr char kSplitCountKey[] = "split.count";
inline constexpr char kSplitTensorsKey[] = "split.tensors.count";  ///< of all shards

}  // namespace quipu::gguf

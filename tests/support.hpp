// Helpers shared by the test programs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace quipu::test {

/// Folder of the shared test data (`QUIPU_SHARED_DATA`, default `../shared/data` beside the checkout).
inline std::filesystem::path shared_data() {
  if (const char* dir = std::getenv("QUIPU_SHARED_DATA")) return dir;
  return std::filesystem::path(QUIPU_SOURCE_DIR) / ".." / "shared" / "data";
}

/// A file of the repository, by its path below the root.
inline std::filesystem::path source_path(const std::string& relative) {
  return std::filesystem::path(QUIPU_SOURCE_DIR) / relative;
}

}  // namespace quipu::test

/// Skips a test, loudly, when a file or folder of the shared data is absent.
#define QUIPU_REQUIRE_SHARED(path)                                               \
  do {                                                                           \
    if (!std::filesystem::exists(path))                                          \
      GTEST_SKIP() << "SKIPPED: shared test data is absent: " << (path).string() \
                   << " (set QUIPU_SHARED_DATA)";                                \
  } while (false)

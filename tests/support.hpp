// Helpers shared by the test programs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace quipu::test {

/// Sanitizers make the longest tests some twenty times longer: those take this much less there.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define QUIPU_SANITIZED 1
#endif
#endif
#if defined(QUIPU_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSanitizerShare = 4;
#else
inline constexpr int kSanitizerShare = 1;
#endif

/// Folder of the shared test data (`QUIPU_SHARED_DATA`, default `../shared/data` beside the checkout).
std::filesystem::path shared_data();

/// A file of the repository, by its path below the root.
std::filesystem::path source_path(const std::string& relative);

}  // namespace quipu::test

/// Skips a test, loudly, when a file or folder of the shared data is absent.
#define QUIPU_REQUIRE_SHARED(path)                                               \
  do {                                                                           \
    if (!std::filesystem::exists(path))                                          \
      GTEST_SKIP() << "SKIPPED: shared test data is absent: " << (path).string() \
                   << " (set QUIPU_SHARED_DATA)";                                \
  } while (false)

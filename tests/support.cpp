#include "support.hpp"

namespace quipu::test {

std::filesystem::path shared_data() {
  if (const char* dir = std::getenv("QUIPU_SHARED_DATA")) return dir;
  return std::filesystem::path(QUIPU_SOURCE_DIR) / ".." / "shared" / "data";
}

std::filesystem::path source_path(const std::string& relative) {
  return std::filesystem::path(QUIPU_SOURCE_DIR) / relative;
}

}  // namespace quipu::test

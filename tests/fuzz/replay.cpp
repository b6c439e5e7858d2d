// Runs a fuzz target over the files of a folder, and over their beginnings, where libFuzzer is not at hand.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  std::size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
      const std::size_t step = std::max<std::size_t>(1, bytes.size() / 64);
      for (std::size_t length = bytes.size() % step; length <= bytes.size(); length += step) {
        const std::vector<std::uint8_t> part(bytes.begin(),
                                             bytes.begin() + static_cast<std::ptrdiff_t>(length));
        LLVMFuzzerTestOneInput(part.data(), part.size());
      }
      ++files;
    }
  }
  std::printf("%zu seeds replayed\n", files);
  return files > 0 ? 0 : 1;
}

// Any bytes given as a state file are restored or an Error, and an Error changes nothing. Any bytes in the
// place of a stored page are that page or none.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "../memory/page_fixture.hpp"
#include "../tiny_model.hpp"
#include "core/checksum.hpp"
#include "core/log.hpp"
#include "memory/page_store.hpp"
#include "memory/state_file.hpp"

namespace {

using namespace quipu;

constexpr std::uint64_t kFingerprint = 7;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Keys and values of one byte pair a position: a page has 256 bytes.
test::PoolSettings settings() {
  test::PoolSettings s;
  s.pages = 4;
  s.k = s.v = DType::f16;
  s.kv_heads = {1};
  s.key_dim = s.value_dim = 1;
  s.vocab = 100;
  return s;
}

void restore(memory::Sequence& sequence, std::span<const std::byte> bytes) {
  const std::vector<std::int32_t> before(sequence.tokens().begin(), sequence.tokens().end());
  const std::uint32_t free = sequence.pool()->free_pages();
  try {
    sequence.restore(bytes, "fuzz", kFingerprint);
    require(sequence.pages().size() == (sequence.tokens().size() + 63) / 64);
    for (const std::int32_t token : sequence.tokens()) require(token >= 0 && token < 100);
    require(sequence.pool()->free_pages() + sequence.pages().size() == 4);
  } catch (const Error&) {
    require(std::equal(before.begin(), before.end(), sequence.tokens().begin(), sequence.tokens().end()));
    require(sequence.pool()->free_pages() == free);
  }
}

std::uint64_t number(const std::vector<std::byte>& bytes, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

void seal(std::vector<std::byte>& bytes, std::size_t begin, std::size_t size, std::size_t at,
          std::uint64_t seed) {
  if (begin > bytes.size() || size > bytes.size() - begin || at + 8 > bytes.size()) return;
  const std::uint64_t checksum = xxh64(std::span<const std::byte>(bytes).subspan(begin, size), seed);
  std::memcpy(bytes.data() + at, &checksum, sizeof checksum);
}

/// Makes the checksums right, so that mutations reach what lies behind them.
void seal_all(std::vector<std::byte>& bytes) {
  if (bytes.size() < memory::kStateHeaderBytes) return;
  memory::StateLayout layout;
  if (memory::state_layout(test::make_pool(settings())->shape(), 256, number(bytes, 56), layout) &&
      layout.file_bytes <= bytes.size()) {
    seal(bytes, layout.heads_offset, layout.heads_bytes, 72, 0);
    seal(bytes, layout.tokens_offset, layout.tokens_bytes, 80, 0);
    for (std::uint64_t i = 0; i < layout.pages; ++i) {
      const std::uint64_t at = layout.pages_offset + i * layout.page_stride;
      seal(bytes, at, 256, at + 256, i);
    }
  }
  seal(bytes, 0, 120, 120, 0);
}

/// One page in a file of a folder of its own.
struct StoredPage {
  test::TemporaryFolder folder;
  std::shared_ptr<memory::PagePool> pool = test::make_pool(settings());
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(64, 3);
  std::vector<std::byte> content, bytes;
  std::filesystem::path path;

  StoredPage() {
    log::set_level(log::Level::off);
    memory::Sequence sequence(pool);
    require(test::extend(sequence, tokens));
    memory::PageStore(*pool, options()).put(tokens, sequence.pages()[0]);
    const auto page = pool->page(sequence.pages()[0]);
    content.assign(page.begin(), page.end());
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder.path())) path = item.path();
    const MappedFile file(path, MappedFile::Mode::read);
    bytes.assign(file.bytes().begin(), file.bytes().end());
  }
  memory::PageStoreOptions options() const { return {folder.path(), 1 << 20, kFingerprint}; }

  void replace(std::span<const std::byte> by) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(by.data()), static_cast<std::streamsize>(by.size()));
    memory::PageStore store(*pool, options());
    const std::uint32_t page = *pool->take();
    if (store.get(tokens, page)) require(std::ranges::equal(pool->page(page), content));
    pool->release(page);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  memory::Sequence sequence(test::make_pool(settings()));
  require(test::extend(sequence, {1, 2, 3}));
  restore(sequence, input);
  std::vector<std::byte> sealed(input.begin(), input.end());
  seal_all(sealed);
  restore(sequence, sealed);
  static StoredPage stored;
  stored.replace(input);
  std::vector<std::byte> altered = stored.bytes;
  if (size >= 2)
    altered[(data[0] * 256u + data[1]) % altered.size()] ^= static_cast<std::byte>(size % 255 + 1);
  stored.replace(altered);
  return 0;
}

#include "memory/page_store.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/checksum.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/mapped_file.hpp"

namespace quipu::memory {

namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kPageMagic{'q', 'u', 'i', 'p', 'u', '-', 'p', 'g'};
constexpr std::uint32_t kPageVersion = 1;
constexpr std::string_view kPageSuffix = ".page";

/// Bytes 0-47 of a file; then the tokens, then the page.
struct PageHeader {
  std::array<char, 8> magic;
  std::uint32_t version, reserved;
  std::uint64_t fingerprint;
  std::uint64_t tokens;
  std::uint64_t page_bytes;
  std::uint64_t checksum;  // of what follows, with that of the bytes before as its seed
};
static_assert(sizeof(PageHeader) == 48);

std::uint64_t checksum_of(const PageHeader& header, std::span<const std::byte> body) {
  const auto head = std::as_bytes(std::span(&header, 1)).first(offsetof(PageHeader, checksum));
  return xxh64(body, xxh64(head));
}

/// The cache types and head counts belong to what decides the bytes.
std::uint64_t with_shape(std::uint64_t fingerprint, const PageShape& shape) {
  std::vector<std::uint32_t> numbers{static_cast<std::uint32_t>(shape.k_dtype),
                                     static_cast<std::uint32_t>(shape.v_dtype), shape.key_dim,
                                     shape.value_dim, static_cast<std::uint32_t>(graph::kPagePositions)};
  numbers.insert(numbers.end(), shape.kv_heads.begin(), shape.kv_heads.end());
  for (const graph::KvShape& layer : shape.layers)  // where head sizes differ
    if (layer.key_dim != shape.key_dim || layer.value_dim != shape.value_dim)
      numbers.insert(numbers.end(), {static_cast<std::uint32_t>(layer.key_dim),
                                     static_cast<std::uint32_t>(layer.value_dim)});
  return xxh64(std::as_bytes(std::span(numbers)), fingerprint);
}

}  // namespace

PageStore::PageStore(PagePool& pool, const PageStoreOptions& options)
    : pool_(pool),
      max_bytes_(options.max_bytes),
      fingerprint_(with_shape(options.fingerprint, pool.shape())) {
  folder_ = options.folder / fmt::format("{:016x}", fingerprint_);
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!fs::is_directory(folder_))
    fail(ErrorCode::io, "{} is no folder and cannot become one: {}", printable(folder_.string()),
         error.message());
  struct Found {
    fs::file_time_type used;
    std::string name;
    std::uint64_t bytes;
  };
  std::vector<Found> found;
  for (const auto& item : fs::directory_iterator(folder_, error)) {
    if (!item.is_regular_file(error)) continue;
    std::string name = item.path().filename().string();
    if (item.path().extension() == kPageSuffix) {
      found.push_back({item.last_write_time(error), std::move(name), item.file_size(error)});
    } else {
      fs::remove(item.path(), error);  // left by a process that died while it wrote
    }
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.used < b.used; });
  for (Found& file : found) remember(std::move(file.name), file.bytes);
}

std::string PageStore::name_of(std::span<const std::int32_t> tokens) const {
  const auto bytes = std::as_bytes(tokens);
  return fmt::format("{:016x}{:016x}{}", xxh64(bytes, fingerprint_), xxh64(bytes, ~fingerprint_),
                     kPageSuffix);
}

bool PageStore::holds(std::span<const std::int32_t> tokens) const {
  return !index_.empty() && index_.find(name_of(tokens)) != index_.end();
}

void PageStore::remember(std::string name, std::uint64_t bytes) {
  files_.push_back({name, bytes});
  index_[std::move(name)] = std::prev(files_.end());
  ++stats_.pages;
  stats_.bytes += bytes;
  while (stats_.bytes > max_bytes_ && !files_.empty()) forget(std::string(files_.front().name));
}

void PageStore::forget(const std::string& name) {
  const auto it = index_.find(name);
  if (it == index_.end()) return;
  --stats_.pages;
  stats_.bytes -= it->second->bytes;
  files_.erase(it->second);
  index_.erase(it);
  std::error_code ignored;
  fs::remove(folder_ / name, ignored);
}

void PageStore::put(std::span<const std::int32_t> tokens, std::uint32_t page) {
  std::string name = name_of(tokens);
  if (const auto it = index_.find(name); it != index_.end()) {
    files_.splice(files_.end(), files_, it->second);
    return;
  }
  const auto ids = std::as_bytes(tokens);
  const std::size_t bytes = sizeof(PageHeader) + ids.size() + pool_.page_bytes();
  if (bytes > max_bytes_) return;
  buffer_.resize(bytes);
  std::memcpy(buffer_.data() + sizeof(PageHeader), ids.data(), ids.size());
  std::ranges::copy(std::as_const(pool_).page(page), buffer_.data() + sizeof(PageHeader) + ids.size());
  PageHeader header{kPageMagic, kPageVersion, 0, fingerprint_, tokens.size(), pool_.page_bytes(), 0};
  header.checksum = checksum_of(header, std::span(buffer_).subspan(sizeof header));
  std::memcpy(buffer_.data(), &header, sizeof header);
  // Not synced: what a crash cuts short has the wrong checksum.
  const fs::path temporary = folder_ / (name + ".new");
  std::error_code error;
  bool written = false;
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(buffer_.data()), static_cast<std::streamsize>(bytes));
    out.close();
    written = out.good();
  }
  if (written) fs::rename(temporary, folder_ / name, error);
  if (!written || error) {
    if (!std::exchange(told_, true))
      log::warning("the cache in {} cannot be written; pages are given up", printable(folder_.string()));
    fs::remove(temporary, error);
    return;
  }
  remember(std::move(name), bytes);
}

bool PageStore::read(const fs::path& path, std::span<const std::int32_t> tokens, std::uint32_t page) {
  const auto ids = std::as_bytes(tokens);
  const MappedFile file(path, MappedFile::Mode::read);
  const auto bytes = file.bytes();
  PageHeader header{};
  if (bytes.size() != sizeof header + ids.size() + pool_.page_bytes()) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kPageMagic || header.version != kPageVersion || header.fingerprint != fingerprint_ ||
      header.tokens != tokens.size() || header.page_bytes != pool_.page_bytes())
    return false;
  const auto body = bytes.subspan(sizeof header);
  if (!std::equal(ids.begin(), ids.end(), body.begin()) || header.checksum != checksum_of(header, body))
    return false;
  std::ranges::copy(body.subspan(ids.size()), pool_.page(page).data());
  return true;
}

bool PageStore::get(std::span<const std::int32_t> tokens, std::uint32_t page) {
  const std::string name = name_of(tokens);
  const auto it = index_.find(name);
  if (it == index_.end()) return false;
  bool good = false;
  try {
    good = read(folder_ / name, tokens, page);
  } catch (const Error&) {  // gone, or unreadable
  }
  if (!good) {
    ++stats_.damaged;
    log::warning("{} of the cache is damaged and not used", printable((folder_ / name).string()));
    forget(name);
    return false;
  }
  ++stats_.loaded;
  files_.splice(files_.end(), files_, it->second);
  std::error_code ignored;
  fs::last_write_time(folder_ / name, fs::file_time_type::clock::now(), ignored);
  return true;
}

}  // namespace quipu::memory

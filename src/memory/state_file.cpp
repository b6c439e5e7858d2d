#include "memory/state_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "core/checksum.hpp"
#include "core/error.hpp"

namespace quipu::memory {

static_assert(std::endian::native == std::endian::little,
              "state files hold little-endian numbers as they are");

namespace {

/// Bytes 0-127 of a file. Plain numbers at their natural alignment: no padding inside.
struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t file_bytes;
  std::uint64_t fingerprint;
  std::uint32_t k_dtype, v_dtype;  // GGUF type numbers
  std::uint32_t key_dim, value_dim;
  std::uint32_t layers;
  std::uint32_t page_positions;
  std::uint64_t tokens;
  std::uint64_t page_bytes;
  std::uint64_t heads_checksum, tokens_checksum;
  std::array<std::uint64_t, 4> reserved;
  std::uint64_t checksum;  // of the bytes before it
};
static_assert(sizeof(Header) == kStateHeaderBytes);

std::uint64_t header_checksum(const Header& header) {
  return xxh64(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
}

std::uint64_t align_up(std::uint64_t n) {
  return (n + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
}

[[noreturn]] void bad(std::string_view name, std::string_view what) {
  fail(ErrorCode::bad_file, "{}: {}", name, what);
}

void check_padding(std::span<const std::byte> bytes, std::uint64_t begin, std::uint64_t end,
                   std::string_view name) {
  for (std::uint64_t i = begin; i < end; ++i) {
    if (bytes[i] != std::byte{0}) bad(name, fmt::format("byte {} between two sections is not zero", i));
  }
}

Header read_header(std::span<const std::byte> bytes, std::string_view name) {
  Header header{};
  if (bytes.size() < sizeof header) {
    bad(name,
        fmt::format("{} bytes are too few for a state file, its header has {}", bytes.size(), sizeof header));
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kStateMagic)
    bad(name, "not a quipu state file (the first 8 bytes are not \"quipu-kv\")");
  if (header.version != kStateVersion) {
    bad(name, fmt::format("state file version {}, expected {}", header.version, kStateVersion));
  }
  if (header.header_bytes != kStateHeaderBytes) {
    bad(name, fmt::format("header size {}, expected {}", header.header_bytes, kStateHeaderBytes));
  }
  if (header.checksum != header_checksum(header)) {
    fail(ErrorCode::checksum, "{}: the header is damaged (checksum {:016x}, recorded {:016x})", name,
         header_checksum(header), header.checksum);
  }
  if (header.reserved != std::array<std::uint64_t, 4>{}) bad(name, "reserved header bytes are not zero");
  return header;
}

std::string dtype_name(std::uint32_t number) {
  const DTypeInfo* info = find_dtype(number);
  return info ? std::string(info->name) : fmt::format("type {}", number);
}

/// The header describes the pages this pool has; anything else belongs to another model or other settings.
void check_match(const Header& header, std::string_view name, const PageShape& shape,
                 std::uint64_t page_bytes, std::uint64_t fingerprint) {
  if (header.fingerprint != fingerprint) {
    fail(ErrorCode::invalid_argument,
         "{}: saved by another model or with other adapters (fingerprint {:016x}, here it is {:016x})", name,
         header.fingerprint, fingerprint);
  }
  if (header.k_dtype != static_cast<std::uint32_t>(shape.k_dtype) ||
      header.v_dtype != static_cast<std::uint32_t>(shape.v_dtype)) {
    fail(ErrorCode::invalid_argument, "{}: saved with cache types {} and {}, this engine has {} and {}", name,
         dtype_name(header.k_dtype), dtype_name(header.v_dtype), to_string(shape.k_dtype),
         to_string(shape.v_dtype));
  }
  const auto expect = [&](std::string_view what, std::uint64_t found, std::uint64_t expected) {
    if (found != expected) bad(name, fmt::format("{} is {}, expected {}", what, found, expected));
  };
  expect("the key size", header.key_dim, shape.key_dim);
  expect("the value size", header.value_dim, shape.value_dim);
  expect("the number of layers", header.layers, shape.kv_heads.size());
  expect("the number of positions per page", header.page_positions, graph::kPagePositions);
  expect("the page size", header.page_bytes, page_bytes);
}

}  // namespace

bool state_layout(const PageShape& shape, std::uint64_t page_bytes, std::uint64_t tokens,
                  StateLayout& layout) {
  constexpr auto page = static_cast<std::uint64_t>(graph::kPagePositions);
  if (tokens > UINT64_MAX / 16) return false;
  layout.heads_offset = kStateHeaderBytes;
  layout.heads_bytes = shape.kv_heads.size() * 4;
  layout.tokens_offset = align_up(layout.heads_offset + layout.heads_bytes);
  layout.tokens_bytes = tokens * 4;
  layout.pages_offset = align_up(layout.tokens_offset + layout.tokens_bytes);
  layout.page_stride = page_bytes + 8;
  layout.pages = (tokens + page - 1) / page;
  std::uint64_t pages_bytes = 0;
  return !__builtin_mul_overflow(layout.page_stride, layout.pages, &pages_bytes) &&
         !__builtin_add_overflow(layout.pages_offset, pages_bytes, &layout.file_bytes);
}

std::vector<std::byte> encode_state_head(const PageShape& shape, const StateLayout& layout,
                                         std::uint64_t fingerprint, std::span<const std::int32_t> tokens) {
  std::vector<std::byte> out(layout.pages_offset);
  const auto heads = std::as_bytes(std::span(shape.kv_heads));
  std::copy(heads.begin(), heads.end(), out.begin() + static_cast<std::ptrdiff_t>(layout.heads_offset));
  const auto ids = std::as_bytes(tokens);
  std::copy(ids.begin(), ids.end(), out.begin() + static_cast<std::ptrdiff_t>(layout.tokens_offset));
  Header header{};
  header.magic = kStateMagic;
  header.version = kStateVersion;
  header.header_bytes = kStateHeaderBytes;
  header.file_bytes = layout.file_bytes;
  header.fingerprint = fingerprint;
  header.k_dtype = static_cast<std::uint32_t>(shape.k_dtype);
  header.v_dtype = static_cast<std::uint32_t>(shape.v_dtype);
  header.key_dim = shape.key_dim;
  header.value_dim = shape.value_dim;
  header.layers = static_cast<std::uint32_t>(shape.kv_heads.size());
  header.page_positions = static_cast<std::uint32_t>(graph::kPagePositions);
  header.tokens = tokens.size();
  header.page_bytes = layout.page_stride - 8;
  header.heads_checksum = xxh64(heads);
  header.tokens_checksum = xxh64(ids);
  header.checksum = header_checksum(header);
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

ParsedState parse_state(std::span<const std::byte> bytes, std::string_view name, const PageShape& shape,
                        std::uint64_t page_bytes, std::uint64_t fingerprint) {
  const Header header = read_header(bytes, name);
  check_match(header, name, shape, page_bytes, fingerprint);
  ParsedState state;
  state.bytes = bytes;
  StateLayout& at = state.layout;
  if (!state_layout(shape, page_bytes, header.tokens, at) || header.file_bytes != at.file_bytes) {
    bad(name,
        fmt::format("{} tokens do not give the recorded file size {}", header.tokens, header.file_bytes));
  }
  if (bytes.size() != at.file_bytes) {
    bad(name, fmt::format("the file has {} bytes, its header says {}", bytes.size(), at.file_bytes));
  }
  const auto section = [&](std::string_view what, std::uint64_t offset, std::uint64_t size,
                           std::uint64_t recorded, std::uint64_t seed) {
    const auto part = bytes.subspan(offset, size);
    if (const std::uint64_t found = xxh64(part, seed); found != recorded) {
      fail(ErrorCode::checksum, "{}: {} at byte {} are damaged (checksum {:016x}, recorded {:016x})", name,
           what, offset, found, recorded);
    }
    return part;
  };
  const auto heads = section("the head counts", at.heads_offset, at.heads_bytes, header.heads_checksum, 0);
  if (!std::equal(heads.begin(), heads.end(), std::as_bytes(std::span(shape.kv_heads)).begin())) {
    bad(name, "the head counts per layer differ from the model's");
  }
  check_padding(bytes, at.heads_offset + at.heads_bytes, at.tokens_offset, name);
  const auto ids = section("the token ids", at.tokens_offset, at.tokens_bytes, header.tokens_checksum, 0);
  check_padding(bytes, at.tokens_offset + at.tokens_bytes, at.pages_offset, name);
  state.tokens.resize(header.tokens);
  if (!ids.empty()) std::memcpy(state.tokens.data(), ids.data(), ids.size());
  for (std::size_t i = 0; i < state.tokens.size(); ++i) {
    const std::int32_t token = state.tokens[i];
    if (token < 0 || static_cast<std::uint32_t>(token) >= shape.vocab) {
      bad(name,
          fmt::format("token {} at position {} is outside the vocabulary of {}", token, i, shape.vocab));
    }
  }
  for (std::uint64_t page = 0; page < at.pages; ++page) {
    const std::uint64_t offset = at.pages_offset + page * at.page_stride;
    std::uint64_t recorded = 0;
    std::memcpy(&recorded, bytes.data() + offset + page_bytes, sizeof recorded);
    section(fmt::format("the keys and values of page {}", page), offset, page_bytes, recorded, page);
  }
  return state;
}

}  // namespace quipu::memory

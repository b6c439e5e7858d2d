// State files: what is saved comes back, and nothing else is believed.
#include "memory/state_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "core/checksum.hpp"
#include "core/error.hpp"
#include "page_fixture.hpp"
#include "tiny_model.hpp"

namespace quipu::memory {
namespace {

using test::extend;
using test::make_pool;
using test::numbers;
using test::wrong_rows;

constexpr std::uint64_t kFingerprint = 0x1122334455667788;

std::vector<std::byte> read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

template <class T>
T number_at(const std::vector<std::byte>& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}
template <class T>
void put(std::vector<std::byte>& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}
/// Makes a changed header pass its own checksum (bytes 120-127 cover 0-119).
void seal_header(std::vector<std::byte>& bytes) {
  put(bytes, 120, xxh64(std::span<const std::byte>(bytes).first(120)));
}

class StateFile : public ::testing::Test {
 protected:
  std::vector<std::byte> saved(std::size_t tokens) {
    Sequence sequence(pool);
    EXPECT_TRUE(extend(sequence, numbers(0, tokens)));
    sequence.save(folder / "state", kFingerprint);
    return read_all(folder / "state");
  }
  /// Code and message of the refusal; the sequence must be as before.
  std::pair<ErrorCode, std::string> refusal(std::span<const std::byte> bytes,
                                            std::uint64_t fingerprint = kFingerprint) {
    Sequence sequence(pool);
    EXPECT_TRUE(extend(sequence, numbers(40, 5)));
    const std::uint32_t free = pool->free_pages();
    try {
      sequence.restore(bytes, "state", fingerprint);
      ADD_FAILURE() << "accepted";
      return {ErrorCode::internal, "accepted"};
    } catch (const Error& error) {
      EXPECT_EQ(sequence.length(), 5);
      EXPECT_EQ(wrong_rows(sequence), 0);
      EXPECT_EQ(pool->free_pages(), free);
      return {error.code(), error.message()};
    }
  }
  test::TemporaryFolder folder;
  std::shared_ptr<PagePool> pool = make_pool();
};

TEST_F(StateFile, ContentSurvivesSavingAndRestoring) {
  for (const std::size_t length : {0, 1, 63, 64, 65, 200}) {
    const auto bytes = saved(length);
    test::PoolSettings other;
    other.scatter = true;
    Sequence back(make_pool(other));
    ASSERT_TRUE(extend(back, numbers(9, 77)));  // replaced
    back.restore(folder / "state", kFingerprint);
    const auto expected = numbers(0, length);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), back.tokens().begin(), back.tokens().end()));
    EXPECT_EQ(wrong_rows(back), 0);
    // The same content gives the same bytes, whatever the page numbers and leftovers.
    back.save(folder / "again", kFingerprint);
    EXPECT_EQ(read_all(folder / "again"), bytes) << length;
  }
}

TEST_F(StateFile, LayoutIsTheDocumentedOne) {
  const auto bytes = saved(70);
  EXPECT_EQ(std::memcmp(bytes.data(), "quipu-kv", 8), 0);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 8), 1u);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 12), 128u);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 16), bytes.size());
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 24), kFingerprint);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 32), 0u);  // F32
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 36), 1u);  // F16
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 40), 8u);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 44), 4u);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 48), 2u);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 52), 64u);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 56), 70u);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 64), 7680u);
  // Head counts 2 and 1 at 128, tokens at 192, pages at 192 + 280 rounded up to 512; two pages and their
  // checksums.
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 128), 2u);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 132), 1u);
  EXPECT_EQ(number_at<std::int32_t>(bytes, 192 + 4 * 69), 69);
  ASSERT_EQ(bytes.size(), 512u + 2 * (7680 + 8));
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 512 + 7680 + 8 + 7680),
            xxh64(std::span<const std::byte>(bytes).subspan(512 + 7688, 7680), 1));
  // Layer 0, keys of head 1 at position 2 of page 0; positions from 70 on are zeros.
  const auto row = test::row_content(32, 0, false, 1, 2, 2);
  EXPECT_EQ(std::memcmp(bytes.data() + 512 + (64 + 2) * 32, row.data(), 32), 0);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 512 + 7688 + 6 * 32), 0u);
}

TEST_F(StateFile, EveryTruncationIsRefused) {
  const auto bytes = saved(3);
  for (std::size_t size = 0; size < bytes.size(); size += size < 600 ? 1 : 97) {
    EXPECT_EQ(refusal(std::span(bytes).first(size)).first, ErrorCode::bad_file) << size;
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(refusal(longer).second,
            fmt::format("state: the file has {} bytes, its header says {}", bytes.size() + 1, bytes.size()));
}

TEST_F(StateFile, EveryDamagedByteIsFound) {
  const auto bytes = saved(66);
  for (std::size_t at = 0; at < bytes.size(); at += at < 600 ? 1 : 41) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{0x10};
    const ErrorCode code = refusal(damaged).first;
    EXPECT_TRUE(code == ErrorCode::checksum || code == ErrorCode::bad_file) << at;
  }
}

TEST_F(StateFile, SwappedPagesAreFound) {
  auto bytes = saved(128);
  const std::size_t at = 128 + 64 + 512;
  std::swap_ranges(bytes.begin() + at, bytes.begin() + at + 7688, bytes.begin() + at + 7688);
  EXPECT_EQ(refusal(bytes).first, ErrorCode::checksum);
}

TEST_F(StateFile, AnotherModelOrCacheTypeIsRefusedWithBothValues) {
  const auto bytes = saved(5);
  EXPECT_EQ(refusal(bytes, 5),
            std::pair(ErrorCode::invalid_argument,
                      std::string("state: saved by another model or with other adapters (fingerprint "
                                  "1122334455667788, here it is 0000000000000005)")));
  test::PoolSettings other;
  other.v = DType::bf16;
  pool = make_pool(other);
  EXPECT_EQ(refusal(bytes),
            std::pair(ErrorCode::invalid_argument,
                      std::string("state: saved with cache types F32 and F16, this engine has F32 "
                                  "and BF16")));
}

TEST_F(StateFile, HostileHeadersWithRightChecksumsAreRefused) {
  const auto bytes = saved(5);
  struct Change {
    std::size_t offset;
    std::uint64_t value;
    int width;
  };
  for (const Change& c : std::vector<Change>{{8, 2, 4},    // version
                                             {12, 64, 4},  // header size
                                             {16, 0, 8},   // file size
                                             {40, 0, 4},   // key size
                                             {44, 0xFFFFFFFF, 4},
                                             {48, 0xFFFFFFFF, 4},  // layers
                                             {52, 1, 4},
                                             {56, UINT64_MAX, 8},  // tokens
                                             {56, UINT64_MAX / 4 + 2, 8},
                                             {56, UINT64_MAX / 7688, 8},
                                             {56, 6, 8},
                                             {56, 65, 8},
                                             {64, UINT64_MAX - 7, 8},  // page bytes
                                             {88, 1, 8}}) {            // reserved
    auto hostile = bytes;
    if (c.width == 4) {
      put(hostile, c.offset, static_cast<std::uint32_t>(c.value));
    } else {
      put(hostile, c.offset, c.value);
    }
    seal_header(hostile);
    const ErrorCode code = refusal(hostile).first;
    EXPECT_TRUE(code == ErrorCode::bad_file || code == ErrorCode::checksum) << c.offset << " = " << c.value;
  }
}

TEST_F(StateFile, TokensOutsideTheVocabularyAreRefused) {
  for (const std::int32_t token : {-1, 1000, INT32_MIN}) {
    auto hostile = saved(5);
    put(hostile, 192 + 4 * 3, token);
    put(hostile, 80, xxh64(std::span<const std::byte>(hostile).subspan(192, 20)));
    seal_header(hostile);
    EXPECT_EQ(
        refusal(hostile),
        std::pair(ErrorCode::bad_file,
                  fmt::format("state: token {} at position 3 is outside the vocabulary of 1000", token)));
  }
}

TEST_F(StateFile, TooFewFreePagesLeaveEverythingAsItWas) {
  const auto bytes = saved(64 * 5);
  Sequence other(pool);
  ASSERT_TRUE(extend(other, numbers(0, 64 * 4)));
  EXPECT_EQ(refusal(bytes), std::pair(ErrorCode::out_of_memory,
                                      std::string("state: 320 tokens need 5 cache pages, 4 are free")))
      << "the one page of the sequence itself counts as free";
}

TEST_F(StateFile, OwnPagesMakeRoomForTheRestoredOnes) {
  const auto bytes = saved(64 * 6);
  Sequence sequence(pool);
  ASSERT_TRUE(extend(sequence, numbers(100, 64 * 7)));
  sequence.restore(bytes, "state", kFingerprint);
  EXPECT_EQ(sequence.length(), 64 * 6);
  EXPECT_EQ(wrong_rows(sequence), 0);
}

TEST_F(StateFile, UnusablePathsAreErrorsAndLeaveNothing) {
  Sequence sequence(pool);
  ASSERT_TRUE(extend(sequence, numbers(0, 5)));
  EXPECT_THROW(sequence.save(folder / "missing/state", 1), Error);
  EXPECT_THROW(sequence.save(folder.path(), 1), Error);
  EXPECT_THROW(sequence.restore(folder / "none", 1), Error);
  EXPECT_THROW(sequence.restore(folder.path(), 1), Error);
  std::ofstream(folder / "empty").flush();
  EXPECT_THROW(sequence.restore(folder / "empty", 1), Error);
  EXPECT_EQ(sequence.length(), 5);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++entries;
  EXPECT_EQ(entries, 1);
}

}  // namespace
}  // namespace quipu::memory

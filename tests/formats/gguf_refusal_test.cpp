// Every rule of the format, broken once, and the words of the refusal.
#include <gtest/gtest.h>

#include "formats/gguf/gguf.hpp"
#include "gguf_bytes.hpp"
#include "messages.hpp"

namespace quipu::gguf {
namespace {

using test::expect_words;
using test::GgufBytes;

std::string refusal_of(std::span<const std::byte> bytes, ErrorCode expected = ErrorCode::bad_file) {
  const std::string message = test::message_of([&] { File::parse(bytes, "bad.gguf"); }, expected);
  EXPECT_NE(message.find("bad.gguf"), std::string::npos) << "no file name in: " << message;
  return message;
}

void expect_refused(const GgufBytes& bytes, std::initializer_list<std::string_view> words) {
  expect_words(refusal_of(bytes.span()), words);
}

// ---- header ----

TEST(GgufRefusal, NamesWhatAFileIsThatIsNoGguf) {
  expect_words(refusal_of({}), {"not a GGUF file", "empty"});
  expect_refused(GgufBytes().text("GGUX").zeros(60), {"not a GGUF file", "\"GGUX\"", "\"GGUF\""});
  expect_refused(GgufBytes().text("version https://git-lfs.github.com/spec/v1\n"), {"Git LFS pointer"});
  expect_refused(GgufBytes().text("tjgg").zeros(60), {"older than GGUF"});
  expect_refused(GgufBytes().text("PK\x03\x04").zeros(60), {"archive"});
  expect_refused(GgufBytes().put(std::uint64_t{40}).text("{\"a\":{\"dtype\":\"F32\"}}"), {"safetensors"});
  expect_refused(GgufBytes().text("<!DOCTYPE html><title>404"), {"web page"});
  expect_refused(GgufBytes().text("\x1b[31mred"), {"not a GGUF file", "\\x1B[31"});
}

TEST(GgufRefusal, NamesVersionsAndByteOrdersItDoesNotRead) {
  for (const std::uint32_t version : {0u, 1u, 4u, 99u})
    expect_words(refusal_of(GgufBytes::header(0, 0, version).span(), ErrorCode::unsupported),
                 {"version " + std::to_string(version), "2 and 3"});
  expect_words(refusal_of(GgufBytes::header(0, 0, 0x03000000).span(), ErrorCode::unsupported),
               {"big-endian"});
}

TEST(GgufRefusal, RefusesCountsThatTheFileCannotHold) {
  for (const std::uint64_t count :
       {UINT64_MAX, std::uint64_t{1} << 62, std::uint64_t{1} << 32, std::uint64_t{2}}) {
    expect_refused(GgufBytes::header(count, 0),
                   {"number of tensors", "offset 8", std::to_string(count), "24 bytes"});
    expect_refused(GgufBytes::header(0, count),
                   {"number of keys", "offset 16", std::to_string(count), "24 bytes"});
  }
}

// ---- keys ----

TEST(GgufRefusal, RefusesAnEmptyKeyWithItsOffset) {
  // 37 bytes: a key of length 0 with a bool (llama.cpp#24884).
  GgufBytes bytes = GgufBytes::header(0, 1);
  bytes.key("", test::kBool, std::uint8_t{1});
  ASSERT_EQ(bytes.size(), 37u);
  expect_refused(bytes, {"key", "offset 24", "empty"});
}

TEST(GgufRefusal, RefusesKeysThatAreTooLongOrNoText) {
  expect_refused(GgufBytes::header(0, 1).key(std::string(65536, 'k'), "v"), {"65536 bytes", "at most 65535"});
  for (const std::string& key :
       {std::string("a\0b", 3), std::string("a\nb"), std::string("a\x7F"), std::string("\xFF\xFE"),
        std::string("\xC0\x80"), std::string("\xED\xA0\x80"), std::string("\xE2\x82"),
        std::string("\xF4\x90\x80\x80"), std::string("\xF0\x80\x80\x80")})
    expect_refused(GgufBytes::header(0, 1).key(key, "v"),
                   {"offset 24", "control characters or is not UTF-8"});
}

TEST(GgufRefusal, AcceptsKeysInAnyScript) {
  for (const char* key : {"schlüssel", "鍵", "🔑", "a b"}) {
    GgufBytes bytes = GgufBytes::header(0, 1);
    bytes.key(key, "v");
    EXPECT_EQ(File::parse(bytes.span(), "good").metadata().get_string(key), "v");
  }
}

TEST(GgufRefusal, RefusesDuplicateKeysEvenWhenEqual) {
  GgufBytes bytes = GgufBytes::header(0, 3);
  bytes.key("a", "x").key("b", "x").key("a", "x");
  expect_refused(bytes, {"duplicate key", "\"a\"", "offset 68"});  // 24 + 2 * (8 + 1 + 4 + 8 + 1)
}

TEST(GgufRefusal, RefusesLengthsPastTheEnd) {
  for (const std::uint64_t length :
       {UINT64_MAX, std::uint64_t{1} << 63, std::uint64_t{1} << 40, std::uint64_t{1000}}) {
    GgufBytes key = GgufBytes::header(0, 1);
    key.put(length).text("general.name").zeros(100);
    expect_refused(key, {"key", "offset 24", std::to_string(length), "cut off"});
    GgufBytes value = GgufBytes::header(0, 1);
    value.string("general.name").put(std::uint32_t{test::kString}).put(length).zeros(100);
    expect_refused(value, {"\"general.name\"", "offset 48", std::to_string(length), "cut off"});
  }
}

TEST(GgufRefusal, RefusesUnknownValueTypes) {
  for (const std::uint32_t type : {13u, 99u, UINT32_MAX}) {
    expect_refused(GgufBytes::header(0, 1).key("x.y", type, std::uint64_t{0}),
                   {"\"x.y\"", "value type " + std::to_string(type), "offset 35"});
    expect_refused(GgufBytes::header(0, 1).array("x.y", type, 0),
                   {"\"x.y\"", "element type " + std::to_string(type), "offset 39"});
  }
}

TEST(GgufRefusal, RefusesBoolsThatAreNeitherZeroNorOne) {
  expect_refused(GgufBytes::header(0, 1).key("x", test::kBool, std::uint8_t{2}),
                 {"\"x\"", "bool", "2", "0 or 1"});
  GgufBytes array = GgufBytes::header(0, 1);
  array.array("x", test::kBool, 2).put(std::uint8_t{1}).put(std::uint8_t{255});
  expect_refused(array, {"\"x\"", "bool", "255", "0 or 1"});
}

TEST(GgufRefusal, RefusesArrayCountsThatTheFileCannotHold) {
  // Counts whose byte size wraps in 64 bits, and one that is merely too large, for every element type.
  const std::uint64_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  for (std::uint32_t type = 0; type <= 12; ++type)
    for (const std::uint64_t count :
         {UINT64_MAX, sizes[type] == 1 ? UINT64_MAX - 1 : UINT64_MAX / sizes[type] + 2,
          std::uint64_t{1} << 40, 64 / sizes[type] + 1}) {
      GgufBytes bytes = GgufBytes::header(0, 1);
      bytes.array("x.a", type, count).zeros(64);
      expect_refused(bytes, {"\"x.a\"", "array", "offset 43", std::to_string(count), "cut off"});
    }
}

TEST(GgufRefusal, RefusesArraysNestedTooDeep) {
  for (const int depth : {9, 500, 100000}) {
    GgufBytes bytes = GgufBytes::header(0, 1);
    bytes.array("x", test::kArray, 1);
    for (int i = 2; i < depth; ++i) bytes.put(std::uint32_t{test::kArray}).put(std::uint64_t{1});
    bytes.put(std::uint32_t{test::kU8}).put(std::uint64_t{0});
    expect_refused(bytes, {"\"x\"", "nested", "8"});
  }
}

TEST(GgufRefusal, RefusesMoreArrayElementsThanAnyModelHas) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 24;
  GgufBytes bytes = GgufBytes::header(0, 2);
  bytes.array("a", test::kU8, kLimit).zeros(kLimit);
  bytes.array("b", test::kU8, 1).zeros(1);
  expect_refused(bytes, {"\"b\"", "16777217", "limit of 16777216"});
}

// ---- alignment ----

TEST(GgufRefusal, RefusesAlignmentsThatAreNoPowerOfTwoOrTooSmall) {
  for (const std::uint32_t alignment : {0u, 1u, 3u, 4u, 12u, 33u, UINT32_MAX})
    expect_refused(GgufBytes::header(0, 1).key("general.alignment", test::kU32, alignment),
                   {"\"general.alignment\"", " " + std::to_string(alignment), "power of two"});
  expect_refused(GgufBytes::header(0, 1).key("general.alignment", test::kU64, std::uint64_t{1} << 40),
                 {"\"general.alignment\"", "power of two"});
  expect_refused(GgufBytes::header(0, 1).key("general.alignment", "32"), {"\"general.alignment\"", "string"});
  expect_refused(GgufBytes::header(0, 1).key("general.alignment", test::kI32, std::int32_t{-32}),
                 {"\"general.alignment\"", "-32"});
}

TEST(GgufRefusal, BlamesTheAlignmentThatPutsTheDataPastTheEnd) {
  GgufBytes bytes = GgufBytes::header(1, 1);
  bytes.key("general.alignment", test::kU32, std::uint32_t{1} << 31).tensor("a", {1}, 0, 0).pad().zeros(64);
  expect_refused(bytes, {"\"a\"", "general.alignment is 2147483648"});
}

// ---- tensor infos ----

GgufBytes one_tensor(std::string_view name, std::initializer_list<std::uint64_t> dimensions,
                     std::uint32_t type, std::uint64_t offset, std::size_t data = 4096) {
  GgufBytes bytes = GgufBytes::header(1, 0);
  bytes.tensor(name, dimensions, type, offset).pad().zeros(data);
  return bytes;
}

TEST(GgufRefusal, RefusesTensorNamesOfTheWrongLength) {
  expect_refused(one_tensor("", {1}, 0, 0), {"tensor 1 of 1", "offset 24", "empty"});
  expect_refused(one_tensor(std::string(65, 't'), {1}, 0, 0), {"65 bytes", "at most 64"});
  GgufBytes bytes = GgufBytes::header(1, 0);
  bytes.put(std::uint64_t{1} << 63).zeros(100);
  expect_refused(bytes, {"tensor name", "9223372036854775808"});
}

TEST(GgufRefusal, RefusesNumbersOfDimensionsOtherThanOneToFour) {
  expect_refused(one_tensor("t", {}, 0, 0), {"\"t\"", "0 dimensions", "shape"});
  expect_refused(one_tensor("t", {1, 1, 1, 1, 1}, 0, 0), {"\"t\"", "5 dimensions"});
  GgufBytes bytes = GgufBytes::header(1, 0);
  bytes.string("t").put(std::uint32_t{1} << 31).zeros(100);
  expect_refused(bytes, {"\"t\"", "2147483648 dimensions"});
}

TEST(GgufRefusal, RefusesShapesWhoseSizeIsNoNumberOf63Bits) {
  const std::uint64_t big = std::uint64_t{1} << 32;
  expect_refused(one_tensor("t", {16, 0}, 0, 0), {"\"t\"", "dimension 1", "shape", "is 0"});
  expect_refused(one_tensor("t", {16, UINT64_MAX - 15}, 0, 0),
                 {"\"t\"", "dimension 1", "18446744073709551600"});
  expect_refused(one_tensor("t", {std::uint64_t{1} << 63, 2}, 0, 0), {"\"t\"", "dimension 0"});
  expect_refused(one_tensor("t", {big, big}, 0, 0), {"\"t\"", "4294967296x4294967296", "2^63 - 1 elements"});
  expect_refused(one_tensor("t", {std::uint64_t{1} << 62}, 0, 0), {"\"t\"", "2^63 - 1 bytes"});
}

TEST(GgufRefusal, RefusesASizeThatWouldWrapWhenPadded) {
  // Two F32 tensors; the second takes 2^64 - 16 bytes (llama.cpp#26978).
  GgufBytes bytes = GgufBytes::header(2, 0);
  bytes.tensor("a", {64}, 0, 0).tensor("b", {4, 1073741823, 1073741825, 1}, 0, 256).pad();
  bytes.zeros(384 - bytes.size());
  expect_refused(bytes, {"\"b\"", "4x1073741823x1073741825", "2^63 - 1 bytes"});
}

TEST(GgufRefusal, RefusesUnknownAndWithdrawnTypes) {
  for (const std::uint32_t type : {999u, UINT32_MAX})
    expect_words(refusal_of(one_tensor("t", {1}, type, 0).span(), ErrorCode::unsupported),
                 {"\"t\"", "type " + std::to_string(type)});
  for (const std::uint32_t type : {4u, 5u, 31u, 36u})
    expect_words(refusal_of(one_tensor("t", {32}, type, 0).span(), ErrorCode::unsupported),
                 {"\"t\"", "withdrawn"});
}

TEST(GgufRefusal, RefusesRowsThatAreNoWholeNumberOfBlocks) {
  expect_refused(one_tensor("t", {16, 16}, 2, 0),
                 {"\"t\"", "Q4_0", "16x16", "multiple of its block size 32"});
  expect_refused(one_tensor("t", {128, 2}, 12, 0),
                 {"\"t\"", "Q4_K", "128x2", "multiple of its block size 256"});
}

TEST(GgufRefusal, RefusesDataOutsideTheFile) {
  expect_refused(one_tensor("t", {16}, 0, 3), {"\"t\"", "offset 3", "alignment 32"});
  expect_refused(one_tensor("t", {16}, 0, 16), {"\"t\"", "offset 16", "alignment 32"});
  expect_refused(one_tensor("t", {1024}, 0, 32), {"\"t\"", "4096 bytes", "cut off"});
  expect_refused(one_tensor("t", {1}, 0, 4096), {"\"t\"", "cut off"});
  expect_refused(one_tensor("t", {1}, 0, std::uint64_t{1} << 63), {"\"t\"", "cut off"});
  expect_refused(one_tensor("t", {16}, 0, UINT64_MAX - 31), {"\"t\"", "18446744073709551584", "cut off"});
  expect_refused(one_tensor("t", {1 << 20, 1 << 20}, 1, 0), {"\"t\"", "2199023255552 bytes", "cut off"});
  EXPECT_NO_THROW(File::parse(one_tensor("t", {1024}, 0, 0).span(), "good"));
}

TEST(GgufRefusal, RefusesTensorsThatShareBytes) {
  for (const std::uint64_t offset : {0, 32, 64}) {
    GgufBytes bytes = GgufBytes::header(2, 0);
    bytes.tensor("a", {17}, 0, 0).tensor("b", {1}, 0, offset).pad().zeros(200);  // a: 68 bytes
    expect_refused(bytes, {"\"b\"", "overlaps", "\"a\""});
  }
  GgufBytes apart = GgufBytes::header(2, 0);
  apart.tensor("a", {17}, 0, 0).tensor("b", {1}, 0, 96).pad().zeros(200);
  EXPECT_NO_THROW(File::parse(apart.span(), "good"));
}

TEST(GgufRefusal, RefusesTwoTensorsOfOneName) {
  GgufBytes bytes = GgufBytes::header(3, 0);
  bytes.tensor("a", {1}, 0, 0).tensor("b", {1}, 0, 32).tensor("a", {1}, 0, 64).pad().zeros(200);
  expect_refused(bytes, {"duplicate tensor \"a\"", "1 and 3"});
}

// ---- truncation ----

TEST(GgufRefusal, RefusesEveryProperPrefixOfAFile) {
  GgufBytes bytes = GgufBytes::header(2, 4);
  bytes.key("general.name", "n").key("flag", test::kBool, std::uint8_t{1});
  bytes.array("names", test::kString, 2).string("a").string("bc");
  bytes.array("numbers", test::kF64, 2).put(1.0).put(2.0);
  bytes.tensor("a", {3}, 0, 0).tensor("b", {2, 2}, 1, 32).pad().zeros(32 + 8);
  ASSERT_NO_THROW(File::parse(bytes.span(), "whole"));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    // A copy of the exact size: a sanitizer sees a read past its end.
    const std::vector<std::byte> prefix(bytes.span().begin(),
                                        bytes.span().begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_NE(refusal_of(prefix), "(accepted)") << length << " bytes";
  }
}

TEST(GgufRefusal, SurvivesAnyChangeOfAnySingleByte) {
  GgufBytes bytes = GgufBytes::header(2, 3);
  bytes.key("general.alignment", test::kU32, std::uint32_t{32});
  bytes.array("names", test::kString, 2).string("a").string("bc");
  bytes.array("deep", test::kArray, 1)
      .put(std::uint32_t{test::kBool})
      .put(std::uint64_t{1})
      .put(std::uint8_t{1});
  bytes.tensor("a", {3}, 0, 0).tensor("b", {2, 2}, 1, 32).pad().zeros(32 + 8);
  std::vector<std::byte> changed(bytes.span().begin(), bytes.span().end());
  int refused = 0;
  for (std::byte& byte : changed) {
    const std::byte kept = byte;
    for (const int value : {0x00, 0x01, 0x02, 0x09, 0x20, 0x7F, 0x80, 0xFF}) {
      byte = static_cast<std::byte>(value);
      try {
        const File file = File::parse(changed, "changed");
        for (const TensorView& tensor : file.tensors()) {
          ASSERT_GE(tensor.data, changed.data());
          ASSERT_LE(tensor.data + tensor.bytes(), changed.data() + changed.size());
        }
      } catch (const Error&) {
        ++refused;
      }
    }
    byte = kept;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace quipu::gguf

// What the reader makes of well-formed bytes. Expected values are those written by hand or by the gguf
// package.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "gguf_bytes.hpp"
#include "support.hpp"

namespace quipu::gguf {
namespace {

using test::GgufBytes;

File parse(const GgufBytes& bytes) { return File::parse(bytes.span(), "hand-made"); }

TEST(GgufReader, ReadsAScalarOfEveryType) {
  GgufBytes bytes = GgufBytes::header(0, 14);
  bytes.key("u8", test::kU8, std::uint8_t{250});
  bytes.key("i8", test::kI8, std::int8_t{-100});
  bytes.key("u16", test::kU16, std::uint16_t{65000});
  bytes.key("i16", test::kI16, std::int16_t{-30000});
  bytes.key("u32", test::kU32, std::uint32_t{4000000000});
  bytes.key("i32", test::kI32, std::int32_t{-2000000000});
  bytes.key("f32", test::kF32, 0.1f);
  bytes.key("true", test::kBool, std::uint8_t{1});
  bytes.key("false", test::kBool, std::uint8_t{0});
  bytes.key("string", std::string_view("a\0b", 3));
  bytes.key("empty", "");
  bytes.key("u64", test::kU64, std::uint64_t{UINT64_MAX});
  bytes.key("i64", test::kI64, std::int64_t{INT64_MIN});
  bytes.key("f64", test::kF64, 0.1);
  const File file = parse(bytes);
  const Metadata& m = file.metadata();
  EXPECT_EQ(m.get_uint("u8"), 250u);
  EXPECT_EQ(m.get_int("i8"), -100);
  EXPECT_EQ(m.get_uint("u16"), 65000u);
  EXPECT_EQ(m.get_int("i16"), -30000);
  EXPECT_EQ(m.get_uint("u32"), 4000000000u);
  EXPECT_EQ(m.get_int("i32"), -2000000000);
  EXPECT_EQ(m.get_float("f32"), double{0.1f});
  EXPECT_TRUE(m.get_bool("true"));
  EXPECT_FALSE(m.get_bool("false"));
  EXPECT_EQ(m.get_string("string"), std::string("a\0b", 3));
  EXPECT_EQ(m.get_string("empty"), "");
  EXPECT_EQ(m.get_uint("u64"), UINT64_MAX);
  EXPECT_EQ(m.get_int("i64"), INT64_MIN);
  EXPECT_EQ(m.get_float("f64"), 0.1);
  EXPECT_EQ(m.entries().size(), 14u);
  EXPECT_EQ(m.entries()[4].key, "u32");
  EXPECT_EQ(m.entries()[4].value.type, ValueType::u32);
}

TEST(GgufReader, ReadsNestedArraysToADepthOfEight) {
  GgufBytes bytes = GgufBytes::header(0, 1);
  bytes.array("x", test::kArray, 1);
  for (int depth = 2; depth < 8; ++depth) bytes.put(std::uint32_t{test::kArray}).put(std::uint64_t{1});
  bytes.put(std::uint32_t{test::kU16}).put(std::uint64_t{2}).put(std::uint16_t{3}).put(std::uint16_t{4});
  const File file = parse(bytes);
  const Array* array = &file.metadata().get_array("x");
  for (int depth = 1; depth < 8; ++depth) {
    ASSERT_EQ(array->element_type, ValueType::array);
    array = &std::get<std::vector<Array>>(array->items).at(0);
  }
  EXPECT_EQ(std::get<std::vector<std::uint64_t>>(array->items), (std::vector<std::uint64_t>{3, 4}));
}

TEST(GgufReader, ReadsEmptyArraysOfEveryType) {
  GgufBytes bytes = GgufBytes::header(0, 13);
  for (std::uint32_t type = 0; type <= 12; ++type) bytes.array("a" + std::to_string(type), type, 0);
  const File file = parse(bytes);
  for (std::uint32_t type = 0; type <= 12; ++type) {
    const Array& array = file.metadata().get_array("a" + std::to_string(type));
    EXPECT_EQ(array.size(), 0u);
    EXPECT_EQ(static_cast<std::uint32_t>(array.element_type), type);
  }
  EXPECT_NE(file.metadata().try_strings("a8"), nullptr);
  EXPECT_TRUE(file.metadata().try_floats("a6").has_value());
  EXPECT_TRUE(file.metadata().try_ints("a5").has_value());
}

TEST(GgufReader, ReadsVersionTwoLikeVersionThree) {
  GgufBytes bytes = GgufBytes::header(0, 1, 2);
  bytes.key("k", "v");
  const File file = parse(bytes);
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.metadata().get_string("k"), "v");
}

TEST(GgufReader, PointsTensorsAtTheirBytesWhateverTheirOrderAndGaps) {
  GgufBytes bytes = GgufBytes::header(3, 0);
  bytes.tensor("later", {3}, 0, 64);
  bytes.tensor("first", {2, 2}, 1, 0);
  bytes.tensor("last", {32, 1, 1, 2}, 8, 128);
  bytes.pad();
  const std::size_t data = bytes.size();
  bytes.zeros(128 + 68);
  const File file = parse(bytes);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].data, bytes.span().data() + data + 64);
  const TensorView* first = file.find_tensor("first");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->data, bytes.span().data() + data);
  EXPECT_EQ(first->shape, (std::array<std::int64_t, 4>{2, 2, 1, 1}));
  EXPECT_EQ(first->dtype, DType::f16);
  const TensorView* last = file.find_tensor("last");
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last->bytes(), 68u);  // two Q8_0 blocks of 34
  EXPECT_EQ(last->shape, (std::array<std::int64_t, 4>{32, 1, 1, 2}));
  EXPECT_EQ(file.find_tensor("firs"), nullptr);
  EXPECT_EQ(file.find_tensor(""), nullptr);
  EXPECT_EQ(file.file_bytes(), bytes.size());
}

TEST(GgufReader, AlignsDataByGeneralAlignment) {
  GgufBytes bytes = GgufBytes::header(2, 1);
  bytes.key("general.alignment", test::kU32, std::uint32_t{8});
  bytes.tensor("a1234567890", {1}, 0, 0).tensor("b", {1}, 0, 8);
  bytes.pad(8);
  const std::size_t data = bytes.size();
  ASSERT_NE(data % 32, 0u) << "the case must differ from the default alignment";
  bytes.zeros(12);
  const File file = parse(bytes);
  EXPECT_EQ(file.find_tensor("b")->data, bytes.span().data() + data + 8);
}

TEST(GgufReader, AllowsAnythingBehindTheLastTensor) {
  GgufBytes bytes = GgufBytes::header(1, 0);
  bytes.tensor("a", {1}, 0, 0).pad().put(1.0f).text("something else");
  EXPECT_EQ(parse(bytes).tensors().size(), 1u);
}

TEST(GgufReader, AcceptsNamesOfTheGreatestLength) {
  const std::string key(65535, 'k'), name(64, 't');
  GgufBytes bytes = GgufBytes::header(1, 1);
  bytes.key(key, "v").tensor(name, {1}, 0, 0).pad().put(1.0f);
  const File file = parse(bytes);
  EXPECT_EQ(file.metadata().get_string(key), "v");
  EXPECT_NE(file.find_tensor(name), nullptr);
}

TEST(GgufReader, KeepsTensorNamesThatAreNoText) {
  const std::string name("a\0\xFF", 3);
  GgufBytes bytes = GgufBytes::header(1, 0);
  bytes.tensor(name, {1}, 0, 0).pad().put(1.0f);
  const File file = parse(bytes);
  EXPECT_NE(file.find_tensor(name), nullptr);
  EXPECT_EQ(file.find_tensor("a"), nullptr);
}

TEST(GgufReader, ReadsTwoHundredThousandKeys) {
  constexpr std::uint32_t kKeys = 200000;
  GgufBytes bytes = GgufBytes::header(0, kKeys);
  for (std::uint32_t i = 0; i < kKeys; ++i) bytes.key("key." + std::to_string(i), test::kU32, i);
  const File file = parse(bytes);
  EXPECT_EQ(file.metadata().entries().size(), kKeys);
  EXPECT_EQ(file.metadata().get_uint("key.199999"), 199999u);
}

TEST(GgufReader, ReadsAVocabularyOfHalfAMillionStrings) {
  constexpr std::uint32_t kTokens = 500000;
  GgufBytes bytes = GgufBytes::header(0, 2);
  bytes.array("tokens", test::kString, kTokens);
  for (std::uint32_t i = 0; i < kTokens; ++i) bytes.string("token-" + std::to_string(i));
  bytes.array("scores", test::kF32, kTokens);
  for (std::uint32_t i = 0; i < kTokens; ++i) bytes.put(-static_cast<float>(i));
  const File file = parse(bytes);
  const auto* tokens = file.metadata().try_strings("tokens");
  ASSERT_NE(tokens, nullptr);
  ASSERT_EQ(tokens->size(), 500000u);
  EXPECT_EQ((*tokens)[499999], "token-499999");
  EXPECT_EQ(file.metadata().try_floats("scores")->at(7), -7.0f);
}

TEST(GgufReader, ReadsWhatTheGgufPackageWrote) {
  const File file = File::open(test::source_path("tests/goldens/formats/every-type.gguf"));
  const Metadata& m = file.metadata();
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(m.get_string("general.architecture"), "golden");
  EXPECT_EQ(m.get_string("general.name"), "golden");
  EXPECT_EQ(m.get_uint("t.u8"), 250u);
  EXPECT_EQ(m.get_int("t.i8"), -100);
  EXPECT_EQ(m.get_uint("t.u16"), 65000u);
  EXPECT_EQ(m.get_int("t.i16"), -30000);
  EXPECT_EQ(m.get_uint("t.u32"), 4000000000u);
  EXPECT_EQ(m.get_int("t.i32"), -2000000000);
  EXPECT_EQ(m.get_float("t.f32"), double{0.1f});
  EXPECT_TRUE(m.get_bool("t.bool"));
  EXPECT_FALSE(m.get_bool("t.no"));
  EXPECT_EQ(m.get_string("t.string"), "z\u00fcrich \u25c6");
  EXPECT_EQ(m.get_uint("t.u64"), UINT64_MAX);
  EXPECT_EQ(m.get_int("t.i64"), INT64_MIN);
  EXPECT_EQ(m.get_float("t.f64"), 0.1);
  EXPECT_EQ(*m.try_ints("a.u8"), (std::vector<std::int64_t>{0, 255}));
  EXPECT_EQ(*m.try_ints("a.i8"), (std::vector<std::int64_t>{-128, 127}));
  EXPECT_EQ(*m.try_ints("a.u16"), (std::vector<std::int64_t>{0, 65535}));
  EXPECT_EQ(*m.try_ints("a.i16"), (std::vector<std::int64_t>{-32768, 32767}));
  EXPECT_EQ(*m.try_ints("a.u32"), (std::vector<std::int64_t>{0, UINT32_MAX}));
  EXPECT_EQ(*m.try_ints("a.i32"), (std::vector<std::int64_t>{INT32_MIN, INT32_MAX}));
  EXPECT_EQ(*m.try_ints("a.i64"), (std::vector<std::int64_t>{INT64_MIN, INT64_MAX}));
  EXPECT_EQ(*m.try_floats("a.f32"), (std::vector<float>{0.5f, -1.25f, 3.0f}));
  EXPECT_EQ(std::get<std::vector<double>>(m.get_array("a.f64").items), (std::vector<double>{1e300, -0.1}));
  EXPECT_EQ(std::get<std::vector<std::uint64_t>>(m.get_array("a.u64").items),
            (std::vector<std::uint64_t>{0, UINT64_MAX}));
  EXPECT_EQ(std::get<std::vector<std::uint64_t>>(m.get_array("a.bool").items),
            (std::vector<std::uint64_t>{1, 0, 1}));
  EXPECT_EQ(m.try_strings("a.string")->strings(), (std::vector<std::string>{"", "a", "\u2581the"}));

  // every-type.json, as the package's own reader lists it: name, type, shape, offset in the file, bytes.
  struct Expected {
    const char* name;
    const char* type;
    std::array<std::int64_t, 4> shape;
    std::ptrdiff_t offset;
    std::size_t bytes;
  };
  const Expected expected[] = {
      {"f32", "F32", {5, 3, 1, 1}, 1376, 60},       {"f16", "F16", {7, 2, 1, 1}, 1440, 28},
      {"f64", "F64", {3, 1, 1, 1}, 1472, 24},       {"i32", "I32", {3, 2, 1, 1}, 1504, 24},
      {"four", "F32", {5, 4, 3, 2}, 1536, 480},     {"bf16", "BF16", {5, 3, 1, 1}, 2016, 30},
      {"q4_0", "Q4_0", {64, 3, 1, 1}, 2048, 108},   {"q8_0", "Q8_0", {64, 3, 1, 1}, 2176, 204},
      {"q6_k", "Q6_K", {512, 3, 1, 1}, 2400, 1260}, {"iq4_xs", "IQ4_XS", {512, 3, 1, 1}, 3680, 816},
      {"mxfp4", "MXFP4", {64, 3, 1, 1}, 4512, 102},
  };
  const std::byte* base = file.shards().at(0)->bytes().data();
  ASSERT_EQ(file.tensors().size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const TensorView& tensor = file.tensors()[i];
    EXPECT_EQ(tensor.name, expected[i].name);
    EXPECT_EQ(to_string(tensor.dtype), expected[i].type) << tensor.name;
    EXPECT_EQ(tensor.shape, expected[i].shape) << tensor.name;
    EXPECT_EQ(tensor.data - base, expected[i].offset) << tensor.name;
    EXPECT_EQ(tensor.bytes(), expected[i].bytes) << tensor.name;
  }
}

TEST(GgufReader, GivesTheSameBytesMappedAndRead) {
  const auto path = test::source_path("tests/goldens/formats/every-type.gguf");
  const File mapped = File::open(path);
  const File read = File::open(path, {.mode = MappedFile::Mode::read});
  ASSERT_EQ(mapped.tensors().size(), read.tensors().size());
  for (std::size_t i = 0; i < mapped.tensors().size(); ++i) {
    const TensorView &a = mapped.tensors()[i], &b = read.tensors()[i];
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << a.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data) % 32, 0u) << b.name;
  }
}

}  // namespace
}  // namespace quipu::gguf

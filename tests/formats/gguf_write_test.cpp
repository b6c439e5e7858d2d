// The writer: bytes that the gguf package agrees with, values that survive a round trip, refusals.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "formats/gguf/gguf.hpp"
#include "gguf_bytes.hpp"
#include "gguf_shards.hpp"
#include "messages.hpp"
#include "support.hpp"

namespace quipu::gguf {
namespace {

namespace fs = std::filesystem;
using test::expect_words;
using test::message_of;

class GgufWriter : public ::testing::Test {
 protected:
  TensorView tensor(const std::string& name, std::int64_t width = 3) {
    return {name, DType::f32, {width, 1, 1, 1}, reinterpret_cast<const std::byte*>(values)};
  }
  std::size_t files_in_folder() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()));
  }
  test::TemporaryFolder folder;
  float values[64] = {1, 2, 3};
};

TEST_F(GgufWriter, GivesTheBytesOfTheGgufPackage) {
  for (const char* name : {"every-type.gguf", "split-00001-of-00003.gguf", "split-00003-of-00003.gguf"}) {
    const fs::path golden = test::source_path(std::string("tests/goldens/formats/") + name);
    const File file = File::open(golden, {.follow_splits = false});
    write(folder / "out.gguf", file.metadata(), file.tensors());
    EXPECT_EQ(test::read_bytes(folder / "out.gguf"), test::read_bytes(golden)) << name;
  }
  const fs::path golden = test::source_path("tests/goldens/formats/alignment-64.gguf");
  const File file = File::open(golden);
  write(folder / "out.gguf", file.metadata(), file.tensors(), 64);
  EXPECT_EQ(test::read_bytes(folder / "out.gguf"), test::read_bytes(golden));
}

TEST_F(GgufWriter, WritesTheBytesOfTheFormatDescription) {
  Metadata metadata;
  metadata.set("general.name", Value::of_string("n"));
  write(folder / "out.gguf", metadata, std::vector{tensor("a")});
  test::GgufBytes expected = test::GgufBytes::header(1, 1);
  expected.key("general.name", "n").tensor("a", {3}, 0, 0).pad().put(1.0f).put(2.0f).put(3.0f).pad();
  const std::string bytes = test::read_bytes(folder / "out.gguf");
  ASSERT_EQ(bytes.size(), expected.size());
  EXPECT_EQ(std::memcmp(bytes.data(), expected.span().data(), bytes.size()), 0);
}

TEST_F(GgufWriter, KeepsExtremeValuesEmptyArraysAndNesting) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  Metadata metadata;
  metadata.set("nan", Value{ValueType::f32, nan});
  metadata.set("inf", Value{ValueType::f32, -infinity});
  metadata.set("denormal", Value{ValueType::f64, 5e-324});
  metadata.set("empty", Value::of_strings({}));
  metadata.set("nul", Value::of_string(std::string("\0\xFF", 2)));
  const Array inner{ValueType::i8, std::vector<std::int64_t>{-128, 127}};
  metadata.set("nested", {ValueType::array, Array{ValueType::array, std::vector<Array>{inner, inner}}});
  write(folder / "out.gguf", metadata, {});
  const File file = File::open(folder / "out.gguf");
  EXPECT_TRUE(std::isnan(file.metadata().get_float("nan")));
  EXPECT_EQ(file.metadata().get_float("inf"), -infinity);
  EXPECT_EQ(file.metadata().get_float("denormal"), 5e-324);
  EXPECT_TRUE(file.metadata().try_strings("empty")->empty());
  EXPECT_EQ(file.metadata().get_string("nul"), std::string("\0\xFF", 2));
  EXPECT_EQ(std::get<std::vector<Array>>(file.metadata().get_array("nested").items).at(1), inner);
  EXPECT_EQ(file.metadata().entries().size(), 6u);
}

TEST_F(GgufWriter, BringsTheAlignmentKeyIntoLine) {
  Metadata metadata;
  metadata.set("general.alignment", Value::of_u32(64));
  metadata.set("last", Value::of_bool(true));
  const std::vector tensors{tensor("a"), tensor("b")};
  write(folder / "default.gguf", metadata, tensors);
  EXPECT_EQ(File::open(folder / "default.gguf").metadata().get_uint("general.alignment"), 32u);
  write(folder / "large.gguf", Metadata{}, tensors, 4096);
  const File large = File::open(folder / "large.gguf");
  EXPECT_EQ(large.metadata().get_uint("general.alignment"), 4096u);
  EXPECT_EQ(large.tensors()[1].data - large.tensors()[0].data, 4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.tensors()[0].data) % 4096, 0u);
}

TEST_F(GgufWriter, TakesATensorInParts) {
  {
    Writer writer(folder / "out.gguf", Metadata{},
                  {{"a", DType::f32, {4, 1, 1, 1}}, {"b", DType::f32, {1, 1, 1, 1}}});
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    writer.append(bytes.first(5));
    writer.append(bytes.subspan(5, 11));
    EXPECT_FALSE(fs::exists(folder / "out.gguf")) << "the file must not appear before it is whole";
    writer.append(bytes.subspan(4, 4));
    writer.finish();
  }
  const File file = File::open(folder / "out.gguf");
  EXPECT_EQ(std::memcmp(file.tensors()[0].data, values, 16), 0);
  EXPECT_EQ(std::memcmp(file.tensors()[1].data, &values[1], 4), 0);
}

TEST_F(GgufWriter, LeavesNothingBehindWithoutFinish) {
  test::write_bytes(folder / "out.gguf", "old");
  {
    Writer writer(folder / "out.gguf", Metadata{}, {{"a", DType::f32, {64, 1, 1, 1}}});
    writer.append(std::as_bytes(std::span(values)));
  }
  EXPECT_EQ(test::read_bytes(folder / "out.gguf"), "old");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(GgufWriter, RefusesWhatTheReaderWouldRefuse) {
  const auto with_key = [&](const std::string& key, Value value) {
    return message_of(
        [&] {
          Metadata metadata;
          metadata.set(key, std::move(value));
          write(folder / "out.gguf", metadata, {});
        },
        ErrorCode::invalid_argument);
  };
  expect_words(with_key("", Value::of_bool(true)), {"\"\"", "0 bytes"});
  expect_words(with_key(std::string(65536, 'k'), Value::of_bool(true)), {"65536 bytes"});
  expect_words(with_key("a\n", Value::of_bool(true)), {"\"a\\n\"", "control"});
  expect_words(with_key("k", {ValueType::u8, std::uint64_t{256}}), {"\"k\"", "256", "8 bits"});
  expect_words(with_key("k", {ValueType::i16, std::int64_t{-32769}}), {"\"k\"", "-32769", "16 bits"});
  expect_words(with_key("k", {ValueType::f32, 1e39}), {"\"k\"", "f32"});
  expect_words(with_key("k", {ValueType::u8, true}), {"\"k\"", "does not match its type u8"});
  expect_words(with_key("k", {ValueType::array, Array{ValueType::u8, std::vector<double>{1}}}),
               {"\"k\"", "type u8"});
  expect_words(with_key("k", {ValueType::array, Array{ValueType::boolean, std::vector<std::uint64_t>{2}}}),
               {"\"k\"", "bool"});
  Array deep{ValueType::u8, std::vector<std::uint64_t>{}};
  for (int i = 0; i < 8; ++i) deep = Array{ValueType::array, std::vector<Array>{deep}};
  expect_words(with_key("k", {ValueType::array, deep}), {"\"k\"", "nested"});

  const auto with_tensors = [&](std::vector<TensorView> tensors, std::uint32_t alignment = 32) {
    return message_of([&] { write(folder / "out.gguf", Metadata{}, tensors, alignment); },
                      ErrorCode::invalid_argument);
  };
  expect_words(with_tensors({tensor("")}), {"0 bytes"});
  expect_words(with_tensors({tensor(std::string(65, 't'))}), {"65 bytes"});
  expect_words(with_tensors({tensor("a"), tensor("a")}), {"\"a\"", "twice"});
  expect_words(with_tensors({tensor("a", 0)}), {"\"a\"", "dimensions"});
  TensorView blocks = tensor("a", 33);
  blocks.dtype = DType::q8_0;
  expect_words(with_tensors({blocks}), {"\"a\"", "33", "Q8_0", "multiple of 32"});
  for (const std::uint32_t alignment : {0u, 4u, 24u})
    expect_words(with_tensors({}, alignment), {"alignment", std::to_string(alignment), "power of two"});
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(GgufWriter, SaysThatAFolderIsMissing) {
  const std::string message =
      message_of([&] { write(folder / "no/such.gguf", Metadata{}, {}); }, ErrorCode::not_found);
  expect_words(message, {"no/such.gguf"});
}

}  // namespace
}  // namespace quipu::gguf

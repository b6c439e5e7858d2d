// The safetensors reader: files of the reference implementation (tools/goldens/make_safetensors_goldens.py),
// and every refusal with a file made by hand.
#include "formats/safetensors/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "core/error.hpp"
#include "safetensors_bytes.hpp"
#include "support.hpp"
#include "temporary_folder.hpp"

namespace quipu {
namespace {

using safetensors::File;
using safetensors::Tensor;
using test::safetensors_bytes;

std::filesystem::path golden(const std::string& name) {
  return test::source_path("tests/goldens/formats") / name;
}

template <class T>
std::vector<T> values(const Tensor* tensor) {
  std::vector<T> result(tensor->bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor->bytes.data(), tensor->bytes.size());
  return result;
}

template <class T>
std::vector<T> counting(std::size_t n) {
  std::vector<T> result;
  for (std::size_t i = 0; i < n; ++i) result.push_back(static_cast<T>(i));
  return result;
}

std::vector<float> floats(const Tensor* tensor) {
  std::vector<float> result(static_cast<std::size_t>(tensor->elements()));
  info(*tensor->type->dtype).decode(tensor->bytes.data(), result.data(), result.size());
  return result;
}

TEST(Safetensors, ReadsEveryTypeOfTheReferenceImplementation) {
  const File file = File::open(golden("every-type.safetensors"));
  EXPECT_EQ(file.tensors().size(), 18u);
  EXPECT_EQ(values<double>(file.find("f64")), counting<double>(6));
  EXPECT_EQ(values<float>(file.find("f32")), counting<float>(6));
  EXPECT_EQ(floats(file.find("f16")), counting<float>(6));
  EXPECT_EQ(floats(file.find("bf16")), counting<float>(6));
  EXPECT_EQ(values<std::int64_t>(file.find("i64")), counting<std::int64_t>(6));
  EXPECT_EQ(values<std::int32_t>(file.find("i32")), counting<std::int32_t>(6));
  EXPECT_EQ(values<std::int16_t>(file.find("i16")), counting<std::int16_t>(6));
  EXPECT_EQ(values<std::int8_t>(file.find("i8")), counting<std::int8_t>(6));
  EXPECT_EQ(values<std::uint8_t>(file.find("u8")), counting<std::uint8_t>(6));
  EXPECT_EQ(values<std::uint16_t>(file.find("u16")), counting<std::uint16_t>(6));
  EXPECT_EQ(values<std::uint64_t>(file.find("u64")), counting<std::uint64_t>(6));
  EXPECT_EQ(values<std::uint8_t>(file.find("bool")), (std::vector<std::uint8_t>{0, 1, 0}));
  EXPECT_EQ(file.find("f8_e4m3")->type->name, "F8_E4M3");
  EXPECT_EQ(file.find("f8_e5m2")->type->dtype, std::nullopt);
  EXPECT_EQ(file.find("bf16")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(values<float>(file.find("scalar")), std::vector<float>{7});
  EXPECT_EQ(file.find("empty")->shape, (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(file.find("deep")->shape, (std::vector<std::int64_t>{2, 1, 3, 2}));
  EXPECT_EQ(file.find("absent"), nullptr);
  ASSERT_EQ(file.metadata().size(), 2u);
  for (const auto& entry : file.metadata())
    EXPECT_EQ(entry.value, entry.key == "note" ? "caf\xC3\xA9 \"quoted\"" : "pt");
}

TEST(Safetensors, ReadsTheShardsOfAFolderAsOne) {
  const File file = File::open_folder(golden("sharded"));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a.weight");
  EXPECT_EQ(values<float>(file.find("a.weight")), counting<float>(4));
  EXPECT_EQ(floats(file.find("b.weight")), counting<float>(2));
  EXPECT_NE(file.file_of(*file.find("b.weight")).find("model-00002-of-00002"), std::string::npos);
  EXPECT_EQ(file.shards().size(), 2u);
}

std::string refusal(const std::string& bytes) {
  try {
    File::parse(test::as_bytes(bytes), "x.safetensors");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.message();
  }
  return "accepted";
}

/// The header of one tensor "a" with these fields, and eight bytes of data.
std::string refusal_of(const std::string& fields) {
  return refusal(safetensors_bytes("{\"a\":{" + fields + "}}", 8));
}

#define EXPECT_SAYS(message, words) EXPECT_NE((message).find(words), std::string::npos) << (message)

TEST(Safetensors, AcceptsAHeaderPaddedWithSpaces) {
  const std::string bytes =
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}      )", 8);
  EXPECT_EQ(File::parse(test::as_bytes(bytes), "x").tensors().size(), 1u);
}

TEST(Safetensors, RefusesWhatIsNoSafetensorsFile) {
  EXPECT_SAYS(refusal(""), "it has 0 bytes");
  EXPECT_SAYS(refusal("version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer");
  EXPECT_SAYS(refusal(std::string("PK\x03\x04\0\0\0\0\0\0\0\0", 12)), "pickled");
  EXPECT_SAYS(refusal("GGUF\x03____________"), "GGUF file");
  EXPECT_SAYS(refusal(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), "length of the header");
  EXPECT_SAYS(refusal(std::string("\x40\0\0\0\0\0\0\0{}", 10)), "cut off in its header: expected 64 bytes");
}

TEST(Safetensors, RefusesHeadersThatAreNotTheFormats) {
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[2])"), "has no \"data_offsets\"");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","data_offsets":[0,8])"), "has no \"shape\"");
  EXPECT_SAYS(refusal_of(R"("shape":[2],"data_offsets":[0,8])"), "has no \"dtype\"");
  EXPECT_SAYS(refusal_of(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), "dtype \"F31\"");
  EXPECT_SAYS(refusal_of(R"("dtype":4,"shape":[2],"data_offsets":[0,8])"), "key \"dtype\": found 4");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "found -2");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"), "a whole number");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), "an array");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "1 data_offsets, expected 2");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8])"), "occurs twice");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"), "array");
  EXPECT_SAYS(refusal_of(R"("dtype":{},"shape":[2],"data_offsets":[0,8])"), "found an object");
  EXPECT_SAYS(refusal(safetensors_bytes("{\"a\":1}", 0)), "found 1");
  EXPECT_SAYS(refusal(safetensors_bytes("{\"__metadata__\":{\"a\":1}}", 0)), "__metadata__");
  EXPECT_SAYS(refusal(safetensors_bytes("{\"a\":", 0)), "no JSON object");
  EXPECT_SAYS(refusal(safetensors_bytes("{} {}", 0)), "goes on after its JSON object");
  const std::string one = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_SAYS(refusal(safetensors_bytes("{" + one + "," + one + "}", 4)), "names tensor \"a\" twice");
}

TEST(Safetensors, RefusesOffsetsThatContradictTheFile) {
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "takes 8 bytes");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "expected begin <= end");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "leave a gap");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"), "cut off in tensor \"a\"");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "4 bytes of data follow");
  EXPECT_SAYS(refusal_of(R"("dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,8])"), "63 bits");
  EXPECT_SAYS(refusal_of(R"("dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8])"), "63 bits");
  EXPECT_SAYS(refusal(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
                                        R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                                        8)),
              "tensor \"b\" begins at 4 of the data, expected 6: tensors overlap");
}

class Folder : public ::testing::Test {
 protected:
  std::string refusal() {
    try {
      File::open_folder(folder.path());
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  }
  void write_index(const std::string& map) {
    folder.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  }
  void write_shard(const std::string& name, const std::string& tensor) {
    folder.write(
        name, safetensors_bytes("{\"" + tensor + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  }
  test::TemporaryFolder folder;
};

TEST_F(Folder, WithPickledWeightsOnlyIsRefusedByName) {
  EXPECT_SAYS(refusal(), "found no weights");
  folder.write("pytorch_model.bin", "PK");
  EXPECT_SAYS(refusal(), "pickled (pytorch_model.bin)");
  write_shard("model.safetensors", "a");
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(Folder, WhoseIndexDoesNotHoldIsRefused) {
  folder.write("model.safetensors.index.json", "[1]");
  EXPECT_SAYS(refusal(), "weight_map");
  folder.write("model.safetensors.index.json", "{");
  EXPECT_SAYS(refusal(), "not JSON");
  write_index(R"("a":3)");
  EXPECT_SAYS(refusal(), "weight_map[\"a\"] is no string");
  write_index(R"("a":"1.safetensors")");
  EXPECT_SAYS(refusal(), "the shard \"1.safetensors\" is missing");
  write_shard("1.safetensors", "b");
  EXPECT_SAYS(refusal(), "tensor \"a\" should be in \"1.safetensors\", found in no shard");
  write_index(R"("a":"1.safetensors","b":"2.safetensors")");
  write_shard("1.safetensors", "a");
  write_shard("2.safetensors", "a");
  EXPECT_SAYS(refusal(), "both hold tensor \"a\"");
}

TEST_F(Folder, ShardsMayNotLieElsewhere) {
  for (const char* name : {"../1.safetensors", "/etc/1.safetensors", "sub/1.safetensors",
                           "..\\\\1.safetensors", "", "..", "1.bin", "a\\u0000.safetensors"}) {
    write_index("\"a\":\"" + std::string(name) + "\"");
    EXPECT_SAYS(refusal(), "in the same folder");
  }
}

TEST_F(Folder, WithATruncatedShardNamesTheShardAndTheTensor) {
  write_index(R"("a":"1.safetensors")");
  write_shard("1.safetensors", "a");
  std::filesystem::resize_file(folder / "1.safetensors",
                               std::filesystem::file_size(folder / "1.safetensors") - 1);
  const std::string message = refusal();
  EXPECT_SAYS(message, "1.safetensors: the file is cut off in tensor \"a\"");
  EXPECT_SAYS(message, "found 3 bytes");
}

}  // namespace
}  // namespace quipu

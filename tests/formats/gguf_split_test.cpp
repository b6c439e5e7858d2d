// Models in several files: what is found, and what is said when something is wrong.
#include <gtest/gtest.h>

#include <cstring>

#include "formats/gguf/gguf.hpp"
#include "gguf_shards.hpp"
#include "messages.hpp"
#include "support.hpp"

namespace quipu::gguf {
namespace {

namespace fs = std::filesystem;
using test::expect_words;

/// Nine small F32 tensors with values that tell them apart.
struct Model {
  explicit Model(const std::string& prefix = "t", float base = 0) {
    metadata.set("general.architecture", Value::of_string("llama"));
    metadata.set("general.name", Value::of_string("model " + prefix));
    for (int i = 0; i < 9; ++i) values.push_back(std::vector<float>(5, base + static_cast<float>(i)));
    for (int i = 0; i < 9; ++i) {
      TensorView tensor;
      tensor.name = prefix + std::to_string(i);
      tensor.shape = {5, 1, 1, 1};
      tensor.data = reinterpret_cast<const std::byte*>(values[static_cast<std::size_t>(i)].data());
      tensors.push_back(tensor);
    }
  }
  Metadata metadata;
  std::vector<std::vector<float>> values;
  std::vector<TensorView> tensors;
};

std::string refusal_to_open(const fs::path& path, ErrorCode expected = ErrorCode::bad_file) {
  return test::message_of([&] { File::open(path); }, expected);
}

class GgufSplit : public ::testing::Test {
 protected:
  test::TemporaryFolder folder;
  Model model;
};

TEST_F(GgufSplit, GivesTheTensorsOfAllShardsWhicheverIsOpened) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  for (const fs::path& path : paths)
    for (const auto mode : {MappedFile::Mode::map, MappedFile::Mode::read}) {
      const File file = File::open(path, {.mode = mode});
      EXPECT_EQ(file.metadata().get_string("general.name"), "model t");
      EXPECT_EQ(file.shards().size(), 3u);
      ASSERT_EQ(file.tensors().size(), 9u);
      for (std::size_t i = 0; i < 9; ++i) {
        EXPECT_EQ(file.tensors()[i].name, model.tensors[i].name);
        EXPECT_EQ(std::memcmp(file.tensors()[i].data, model.tensors[i].data, 20), 0);
        EXPECT_EQ(file.find_tensor(model.tensors[i].name), &file.tensors()[i]);
      }
      EXPECT_EQ(file.file_bytes(),
                fs::file_size(paths[0]) + fs::file_size(paths[1]) + fs::file_size(paths[2]));
    }
}

TEST_F(GgufSplit, ReadsTheShardsThatTheGgufPackageWrote) {
  const File whole = File::open(test::source_path("tests/goldens/formats/every-type.gguf"));
  const File split = File::open(test::source_path("tests/goldens/formats/split-00002-of-00003.gguf"));
  EXPECT_EQ(split.metadata().get_string("general.name"), "golden");
  ASSERT_EQ(split.tensors().size(), whole.tensors().size());
  for (std::size_t i = 0; i < whole.tensors().size(); ++i) {
    const TensorView &a = whole.tensors()[i], &b = split.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << a.name;
  }
}

TEST_F(GgufSplit, FindsAShardWithoutTensors) {
  test::write_shard(folder / "m-00001-of-00002.gguf", model.metadata, {}, 0, 2, 9);
  test::write_shard(folder / "m-00002-of-00002.gguf", model.metadata, model.tensors, 1, 2, 9);
  EXPECT_EQ(File::open(folder / "m-00001-of-00002.gguf").tensors().size(), 9u);
}

TEST_F(GgufSplit, NamesTheMissingShard) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  fs::remove(paths[2]);
  for (int i : {0, 1})
    expect_words(refusal_to_open(paths[static_cast<std::size_t>(i)], ErrorCode::not_found),
                 {"3 files", "m-00003-of-00003.gguf\" is missing"});
  fs::remove(paths[0]);
  expect_words(refusal_to_open(paths[1], ErrorCode::not_found),
               {"m-00001-of-00003.gguf\" is missing", "1 more"});
}

TEST_F(GgufSplit, ReadsOneShardAloneWhenAsked) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  fs::remove(paths[0]);
  const File file = File::open(paths[1], {.follow_splits = false});
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().get_uint("split.no"), 1u);
}

TEST_F(GgufSplit, SaysThatShardsWereJoinedWithCat) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  const std::string joined =
      test::read_bytes(paths[0]) + test::read_bytes(paths[1]) + test::read_bytes(paths[2]);
  test::write_bytes(folder / "joined.gguf", joined);
  expect_words(refusal_to_open(folder / "joined.gguf"), {"joined.gguf", "joined byte by byte", "`cat`"});
  test::write_bytes(paths[0], joined);
  expect_words(refusal_to_open(paths[0]), {"joined byte by byte"});
  expect_words(refusal_to_open(paths[1]), {"joined byte by byte", "m-00001-of-00003.gguf"});
  // A first shard without tensors, then the rest.
  test::write_shard(folder / "e-00001-of-00002.gguf", model.metadata, {}, 0, 2, 9);
  test::write_shard(folder / "e-00002-of-00002.gguf", model.metadata, model.tensors, 1, 2, 9);
  test::write_bytes(folder / "empty-first.gguf", test::read_bytes(folder / "e-00001-of-00002.gguf") +
                                                     test::read_bytes(folder / "e-00002-of-00002.gguf"));
  expect_words(refusal_to_open(folder / "empty-first.gguf"), {"joined byte by byte"});
}

TEST_F(GgufSplit, SaysThatARenamedShardHidesItsSiblings) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  fs::rename(paths[0], folder / "model.gguf");
  expect_words(refusal_to_open(folder / "model.gguf"),
               {"model.gguf", "shard 1 of 3", "NAME-00001-of-00003.gguf"});
}

TEST_F(GgufSplit, RefusesNamesThatContradictTheSplitKeys) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  fs::rename(paths[2], folder / "spare");
  fs::copy(paths[1], paths[2]);
  expect_words(refusal_to_open(paths[0]),
               {"m-00003-of-00003.gguf", "name says shard 3 of 3", "keys say 2 of 3"});
  fs::copy(paths[1], folder / "m-00002-of-00004.gguf");
  expect_words(refusal_to_open(folder / "m-00002-of-00004.gguf"),
               {"name says shard 2 of 4", "keys say 2 of 3"});
}

TEST_F(GgufSplit, RefusesSplitKeysThatMakeNoSense) {
  test::write_shard(folder / "m-00001-of-00002.gguf", model.metadata, model.tensors, 0, 2, 9);
  test::write_shard(folder / "m-00002-of-00002.gguf", model.metadata, {}, 5, 2, 9);
  expect_words(refusal_to_open(folder / "m-00002-of-00002.gguf"), {"\"split.no\" is 5", "below 2"});
  Metadata text = model.metadata;
  text.set("split.count", Value::of_string("3"));
  write(folder / "text.gguf", text, model.tensors);
  expect_words(refusal_to_open(folder / "text.gguf"), {"\"split.count\"", "string"});
  Metadata huge = model.metadata;
  huge.set("split.count", {ValueType::u64, UINT64_MAX});
  write(folder / "huge.gguf", huge, model.tensors);
  expect_words(refusal_to_open(folder / "huge.gguf"), {"\"split.count\"", "18446744073709551615", "65535"});
}

TEST_F(GgufSplit, TakesACountOfZeroOrOneForAWholeModel) {
  for (const std::uint64_t count : {0, 1}) {
    Metadata whole = model.metadata;
    whole.set("split.count", test::split_value(count));
    write(folder / "whole.gguf", whole, model.tensors);
    EXPECT_EQ(File::open(folder / "whole.gguf").tensors().size(), 9u);
  }
}

// ---- shards of two models ----

TEST_F(GgufSplit, RefusesShardsOfModelsWithOtherTensorCounts) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  const Model other("u");
  test::write_shard(paths[1], other.metadata, std::span(other.tensors).subspan(0, 4), 1, 3, 8);
  expect_words(refusal_to_open(paths[0]),
               {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "not shards of one model",
                "\"split.tensors.count\" is 9 in the first, 8 in the second"});
}

TEST_F(GgufSplit, RefusesShardsOfModelsWithOtherShardCounts) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  test::write_shard(paths[1], model.metadata, std::span(model.tensors).subspan(3, 3), 1, 2, 9);
  expect_words(refusal_to_open(paths[0]),
               {"not shards of one model", "\"split.count\" is 3 in the first, 2 in the second"});
}

TEST_F(GgufSplit, RefusesAWholeModelInTheNameOfAShard) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  write(paths[1], model.metadata, model.tensors);
  expect_words(refusal_to_open(paths[0]),
               {"not shards of one model", "\"split.count\" is 3 in the first, absent in the second"});
}

TEST_F(GgufSplit, RefusesShardsCutAtOtherPlaces) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  test::write_shard(paths[1], model.metadata, std::span(model.tensors).subspan(2, 4), 1, 3, 9);
  expect_words(refusal_to_open(paths[0]), {"not shards of one model", "both hold tensor \"t2\""});
  test::write_shard(paths[1], model.metadata, std::span(model.tensors).subspan(4, 2), 1, 3, 9);
  expect_words(refusal_to_open(paths[0]),
               {"not shards of one model", "is 9, but the 3 shards hold 8 tensors"});
}

TEST_F(GgufSplit, RefusesShardsThatNameOtherModels) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  for (const char* key : {"general.architecture", "general.name"}) {
    Metadata own;
    own.set(key, Value::of_string("other"));
    own.set("split.no", test::split_value(1));
    own.set("split.count", test::split_value(3));
    own.set("split.tensors.count", {ValueType::i32, std::int64_t{9}});
    write(paths[1], own, std::span(model.tensors).subspan(3, 3));
    expect_words(refusal_to_open(paths[0]), {"not shards of one model", key, "\"other\" in the second"});
  }
}

TEST_F(GgufSplit, NamesTheShardThatIsBad) {
  const auto paths = test::write_shards(folder.path(), "m", model.metadata, model.tensors, 3);
  fs::resize_file(paths[2], fs::file_size(paths[2]) - 40);
  expect_words(refusal_to_open(paths[0]), {"m-00003-of-00003.gguf", "t8", "cut off"});
}

TEST(GgufSplitName, FollowsThePattern) {
  const auto name = parse_split_name("some-model-Q4_K_M-00012-of-00345.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->stem, "some-model-Q4_K_M");
  EXPECT_EQ(name->number, 12u);
  EXPECT_EQ(name->count, 345u);
  EXPECT_EQ(split_file_name(name->stem, 13, 345), "some-model-Q4_K_M-00013-of-00345.gguf");
  for (const char* other :
       {"m.gguf", "-00001-of-00002.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf",
        "m-0001-of-0002.gguf", "m-00001-of-00002.bin", "m-00001-OF-00002.gguf", "m-0000a-of-00002.gguf", ""})
    EXPECT_FALSE(parse_split_name(other).has_value()) << other;
}

}  // namespace
}  // namespace quipu::gguf

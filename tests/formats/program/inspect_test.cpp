// `quipu inspect` against what the gguf package says of the same file, and its errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "formats/gguf_bytes.hpp"
#include "program.hpp"
#include "support.hpp"

namespace quipu {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using test::run_quipu;
using test::shell_quoted;

/// Equal in structure and text; numbers in value (1e-12 apart: neither parser rounds the last bit alike).
void expect_same(const json::value& expected, const json::value& found, const std::string& where) {
  if (expected.is_object()) {
    ASSERT_TRUE(found.is_object()) << where;
    ASSERT_EQ(expected.as_object().size(), found.as_object().size()) << where;
    for (const auto& item : expected.as_object()) {
      ASSERT_TRUE(found.as_object().contains(item.key())) << where << "." << item.key();
      expect_same(item.value(), found.as_object().at(item.key()), where + "." + std::string(item.key()));
    }
  } else if (expected.is_array()) {
    ASSERT_TRUE(found.is_array()) << where;
    ASSERT_EQ(expected.as_array().size(), found.as_array().size()) << where;
    for (std::size_t i = 0; i < expected.as_array().size(); ++i)
      expect_same(expected.as_array()[i], found.as_array()[i], where + "[" + std::to_string(i) + "]");
  } else if (expected.is_double()) {
    ASSERT_TRUE(found.is_number()) << where;
    const double value = expected.as_double();
    EXPECT_NEAR(found.to_number<double>(), value, 1e-12 * std::fabs(value)) << where;
  } else {
    EXPECT_EQ(expected, found) << where;
  }
}

TEST(Inspect, JsonSaysWhatTheGgufPackageSays) {
  const fs::path folder = test::source_path("tests/goldens/formats");
  const auto run = run_quipu("inspect --json " + shell_quoted(folder / "every-type.gguf"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const json::value expected = json::parse(test::read_bytes(folder / "every-type.json"));
  expect_same(expected, json::parse(run.out), "");
}

TEST(Inspect, TableShowsMetadataTensorsAndTotals) {
  const auto run =
      run_quipu("inspect " + shell_quoted(test::source_path("tests/goldens/formats/every-type.gguf")));
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* words : {"GGUF version 3", "\"golden\"", "[3 strings: \"\", \"a\", \"\u2581the\"]", "q4_0",
                            "64x3", "Q6_K", "1,260", "t.f32", "0.1", "18446744073709551615"})
    EXPECT_NE(run.out.find(words), std::string::npos) << words << " in:\n" << run.out;
}

TEST(Inspect, ShortensLongArraysUnlessAskedNotTo) {
  const test::TemporaryFolder folder;
  test::GgufBytes bytes = test::GgufBytes::header(0, 1);
  bytes.array("tokens", test::kString, 100);
  for (int i = 0; i < 100; ++i) bytes.string("tok" + std::to_string(i));
  test::write_bytes(folder / "m.gguf", {reinterpret_cast<const char*>(bytes.span().data()), bytes.size()});
  const std::string path = shell_quoted(folder / "m.gguf");
  EXPECT_NE(run_quipu("inspect " + path)
                .out.find("[100 strings: \"tok0\", \"tok1\", \"tok2\", \"tok3\", \"tok4\", \u2026]"),
            std::string::npos);
  EXPECT_NE(run_quipu("inspect --full " + path).out.find("\"tok99\"]"), std::string::npos);
  const json::value all = json::parse(run_quipu("inspect --json " + path).out);
  EXPECT_EQ(all.at("metadata").at("tokens").as_array().size(), 100u);
}

TEST(Inspect, EscapesWhatIsNoText) {
  const test::TemporaryFolder folder;
  test::GgufBytes bytes = test::GgufBytes::header(1, 3);
  bytes.key("name", "red \x1b[31m\n").key("bytes", std::string_view("a\xFF\0b", 4));
  bytes.key("nan", test::kF32, std::nanf(""));
  bytes.tensor("t\xFE", {1}, 0, 0).pad().put(1.0f);
  test::write_bytes(folder / "m.gguf", {reinterpret_cast<const char*>(bytes.span().data()), bytes.size()});
  const std::string path = shell_quoted(folder / "m.gguf");
  const auto table = run_quipu("inspect " + path);
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos);
  EXPECT_NE(table.out.find("red \\x1B[31m\\n"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("t\\xFE"), std::string::npos) << table.out;
  const json::value all = json::parse(run_quipu("inspect --json " + path).out);
  EXPECT_EQ(all.at("metadata").at("bytes").as_string(), json::string_view("a\xEF\xBF\xBD\0b", 6));
  EXPECT_EQ(all.at("metadata").at("nan").as_string(), "NaN");
  EXPECT_EQ(all.at("tensors").at(0).at("name").as_string(), "t\xEF\xBF\xBD");
}

TEST(Inspect, ShowsHalvesAndSingleShards) {
  const std::string golden = shell_quoted(test::source_path("tests/goldens/formats/every-type.gguf"));
  const json::value metadata = json::parse(run_quipu("inspect --json --metadata " + golden).out);
  EXPECT_FALSE(metadata.as_object().contains("tensors"));
  const json::value tensors = json::parse(run_quipu("inspect --json --tensors " + golden).out);
  EXPECT_FALSE(tensors.as_object().contains("metadata"));
  EXPECT_EQ(run_quipu("inspect --metadata --tensors " + golden).status, 1);
  const std::string shard =
      shell_quoted(test::source_path("tests/goldens/formats/split-00002-of-00003.gguf"));
  EXPECT_EQ(json::parse(run_quipu("inspect --json " + shard).out).at("tensors").as_array().size(), 11u);
  EXPECT_EQ(json::parse(run_quipu("inspect --json --one-file " + shard).out).at("tensors").as_array().size(),
            4u);
}

TEST(Inspect, EndsWithOneLineForABadFile) {
  const test::TemporaryFolder folder;
  test::GgufBytes empty_key = test::GgufBytes::header(0, 1);
  empty_key.key("", test::kBool, std::uint8_t{1});
  test::write_bytes(folder / "key.gguf",
                    {reinterpret_cast<const char*>(empty_key.span().data()), empty_key.size()});
  test::write_bytes(folder / "empty.gguf", "");
  test::write_bytes(folder / "text.gguf", "hello\nworld\n");
  for (const char* name : {"key.gguf", "empty.gguf", "text.gguf", "missing.gguf", "."}) {
    const auto run = run_quipu("inspect " + shell_quoted(folder / name));
    EXPECT_EQ(run.status, 1) << name;
    EXPECT_EQ(run.out, "") << name;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << name << ": " << run.err;
  }
  EXPECT_NE(run_quipu("inspect " + shell_quoted(folder / "key.gguf")).err.find("offset 24"),
            std::string::npos);
}

}  // namespace
}  // namespace quipu

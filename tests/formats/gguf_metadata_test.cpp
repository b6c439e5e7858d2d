// Typed access to metadata and the words of its errors.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "formats/gguf/gguf.hpp"
#include "messages.hpp"

namespace quipu::gguf {
namespace {

Metadata sample() {
  Metadata m;
  m.set_origin("model.gguf");
  m.set("u8", {ValueType::u8, std::uint64_t{7}});
  m.set("i32", {ValueType::i32, std::int64_t{7}});
  m.set("negative", {ValueType::i32, std::int64_t{-7}});
  m.set("huge", {ValueType::u64, std::uint64_t{UINT64_MAX}});
  m.set("f32", Value::of_f32(0.5f));
  m.set("bool", Value::of_bool(true));
  m.set("string", Value::of_string("text"));
  m.set("strings", Value::of_strings({"a", "b"}));
  m.set("floats", {ValueType::array, Array{ValueType::f32, std::vector<double>{0.5, -2}}});
  m.set("ints", {ValueType::array, Array{ValueType::i16, std::vector<std::int64_t>{-1, 2}}});
  m.set("uints", {ValueType::array, Array{ValueType::u64, std::vector<std::uint64_t>{1, UINT64_MAX}}});
  m.set("wide", {ValueType::array, Array{ValueType::f64, std::vector<double>{1, 1e300}}});
  return m;
}

std::string refusal(const std::function<void()>& action) {
  return test::message_of(action, ErrorCode::bad_file);
}

TEST(GgufMetadata, TakesIntegersOfAnyTypeThatHoldTheValue) {
  const Metadata m = sample();
  EXPECT_EQ(m.get_uint("u8"), 7u);
  EXPECT_EQ(m.get_uint("i32"), 7u);
  EXPECT_EQ(m.get_int("u8"), 7);
  EXPECT_EQ(m.get_int("negative"), -7);
  EXPECT_EQ(m.get_uint("huge"), UINT64_MAX);
  EXPECT_EQ(m.try_uint("u8"), 7u);
}

TEST(GgufMetadata, NamesTheFileAndAMissingKey) {
  const Metadata m = sample();
  for (const auto& get : std::initializer_list<std::function<void()>>{
           [&] { m.get_uint("no.such"); }, [&] { m.get_int("no.such"); }, [&] { m.get_float("no.such"); },
           [&] { m.get_bool("no.such"); }, [&] { m.get_string("no.such"); }, [&] { m.get_array("no.such"); }})
    EXPECT_EQ(refusal(get), "model.gguf: missing key \"no.such\"");
}

TEST(GgufMetadata, GivesNothingForOptionalKeysThatAreAbsent) {
  const Metadata m = sample();
  EXPECT_EQ(m.try_uint("no"), std::nullopt);
  EXPECT_EQ(m.try_float("no"), std::nullopt);
  EXPECT_EQ(m.try_bool("no"), std::nullopt);
  EXPECT_EQ(m.try_string("no"), std::nullopt);
  EXPECT_EQ(m.try_array("no"), nullptr);
  EXPECT_EQ(m.try_strings("no"), nullptr);
  EXPECT_EQ(m.try_floats("no"), std::nullopt);
  EXPECT_EQ(m.try_ints("no"), std::nullopt);
}

TEST(GgufMetadata, NamesFoundAndExpectedTypes) {
  const Metadata m = sample();
  EXPECT_EQ(refusal([&] { m.get_uint("string"); }),
            "model.gguf: key \"string\" has type string, expected an integer");
  EXPECT_EQ(refusal([&] { m.try_uint("f32"); }), "model.gguf: key \"f32\" has type f32, expected an integer");
  EXPECT_EQ(refusal([&] { m.get_uint("bool"); }),
            "model.gguf: key \"bool\" has type bool, expected an integer");
  EXPECT_EQ(refusal([&] { m.get_float("u8"); }), "model.gguf: key \"u8\" has type u8, expected f32 or f64");
  EXPECT_EQ(refusal([&] { m.get_bool("u8"); }), "model.gguf: key \"u8\" has type u8, expected bool");
  EXPECT_EQ(refusal([&] { m.get_string("strings"); }),
            "model.gguf: key \"strings\" has type array of string, expected string");
  EXPECT_EQ(refusal([&] { m.try_array("string"); }),
            "model.gguf: key \"string\" has type string, expected an array");
  EXPECT_EQ(refusal([&] { m.try_strings("ints"); }),
            "model.gguf: key \"ints\" has type array of i16, expected an array of string");
  EXPECT_EQ(refusal([&] { m.try_floats("ints"); }),
            "model.gguf: key \"ints\" has type array of i16, expected an array of f32 or f64");
  EXPECT_EQ(refusal([&] { m.try_ints("floats"); }),
            "model.gguf: key \"floats\" has type array of f32, expected an array of integers");
}

TEST(GgufMetadata, RefusesValuesOutOfRange) {
  const Metadata m = sample();
  EXPECT_EQ(refusal([&] { m.get_uint("negative"); }),
            "model.gguf: key \"negative\" is -7, expected an integer that is not negative");
  EXPECT_EQ(refusal([&] { m.get_int("huge"); }),
            "model.gguf: key \"huge\" is 18446744073709551615, expected an integer below 2^63");
  EXPECT_EQ(refusal([&] { m.try_ints("uints"); }),
            "model.gguf: key \"uints\" is 18446744073709551615 at index 1, expected integers below 2^63");
  EXPECT_EQ(refusal([&] { m.try_floats("wide"); }),
            "model.gguf: key \"wide\" is 1e+300 at index 1, expected a number in the range of f32");
}

TEST(GgufMetadata, GivesArraysByElementKind) {
  const Metadata m = sample();
  EXPECT_EQ(m.try_strings("strings")->strings(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*m.try_floats("floats"), (std::vector<float>{0.5f, -2.0f}));
  EXPECT_EQ(*m.try_ints("ints"), (std::vector<std::int64_t>{-1, 2}));
  EXPECT_EQ(m.get_array("uints").size(), 2u);
}

TEST(GgufMetadata, EscapesKeysAndFileNamesInMessages) {
  Metadata m;
  m.set_origin("a\x1b[31m.gguf");
  EXPECT_EQ(refusal([&] { m.get_uint("k\n"); }), "a\\x1B[31m.gguf: missing key \"k\\n\"");
}

TEST(GgufMetadata, ReplacesInPlaceAndAddsAtTheEnd) {
  Metadata m = sample();
  const std::size_t count = m.entries().size();
  m.set("u8", Value::of_string("other"));
  EXPECT_EQ(m.entries().size(), count);
  EXPECT_EQ(m.entries().front().key, "u8");
  EXPECT_EQ(m.get_string("u8"), "other");
  m.set("new", Value::of_bool(false));
  EXPECT_EQ(m.entries().back().key, "new");
  EXPECT_FALSE(m.add("new", Value::of_bool(true)));
  EXPECT_FALSE(m.get_bool("new"));
  const Metadata copy = m;
  EXPECT_EQ(copy.get_string("string"), "text");
}

TEST(GgufMetadata, ErasesOneKeyAndFindsTheOthers) {
  Metadata m;
  for (const char* key : {"a", "b", "c", "d"}) m.add(key, Value::of_string(std::string("of ") + key));
  EXPECT_TRUE(m.erase("b"));
  EXPECT_FALSE(m.erase("b"));
  EXPECT_EQ(m.find("b"), nullptr);
  std::string keys;
  for (const auto& entry : m.entries()) keys += entry.key;
  EXPECT_EQ(keys, "acd");
  for (const char* key : {"a", "c", "d"}) EXPECT_EQ(m.get_string(key), std::string("of ") + key);
  EXPECT_TRUE(m.add("b", Value::of_string("again")));
  EXPECT_EQ(m.entries().back().key, "b");
  EXPECT_EQ(m.get_string("b"), "again");
}

}  // namespace
}  // namespace quipu::gguf

// `quipu tokenize` as a script calls it. Ids: Hugging Face's (tests/goldens/text).
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "formats/gguf/gguf.hpp"
#include "program.hpp"
#include "support.hpp"

namespace quipu {
namespace {

namespace json = boost::json;

json::value read_golden() {
  std::ifstream in(test::source_path("tests/goldens/text/bpe_gpt2.json"));
  return json::parse(std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
}

/// The golden's vocabulary as a file without tensors.
std::string vocabulary_file() {
  const json::value golden = read_golden();
  const json::object& from = golden.as_object().at("metadata").as_object();
  gguf::Metadata metadata;
  for (const char* key : {"model", "pre"})
    metadata.set(std::string("tokenizer.ggml.") + key,
                 {gguf::ValueType::string, std::string(from.at(key).as_string())});
  for (const char* key : {"tokens", "merges"}) {
    std::vector<std::string> items;
    for (const auto& item : from.at(key).as_array()) items.emplace_back(item.as_string());
    metadata.set(std::string("tokenizer.ggml.") + key, gguf::Value::of_strings(items));
  }
  std::vector<std::int64_t> types;
  for (const auto& item : from.at("token_type").as_array()) types.push_back(item.to_number<std::int64_t>());
  metadata.set("tokenizer.ggml.token_type",
               {gguf::ValueType::array, gguf::Array{gguf::ValueType::i32, std::move(types)}});
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "tokenize_test.gguf";
  gguf::write(path, metadata, {});
  return path.string();
}

TEST(Tokenize, JsonHoldsTheIdsAndPiecesOfEveryGoldenText) {
  const std::string model = vocabulary_file();
  const json::value golden = read_golden();
  for (const auto& value : golden.as_object().at("cases").as_array()) {
    const json::object& item = value.as_object();
    test::ProgramOptions options;
    options.input = std::string(item.at("text").as_string());
    const auto result = test::quipu({"tokenize", "-m", model, "--json", "-f", "-"}, options);
    ASSERT_EQ(result.status, 0) << result.err;
    const json::value printed = json::parse(result.out);
    EXPECT_EQ(printed.as_object().at("tokens"), item.at("ids"));
    EXPECT_EQ(printed.as_object().at("pieces").as_array().size(), item.at("ids").as_array().size());
    // As a shell's <(command) is: a pipe with a name.
    const auto piped = test::quipu({"tokenize", "-m", model, "--json", "-f", "/dev/fd/0"}, options);
    EXPECT_EQ(piped.out, result.out) << piped.err;
  }
}

TEST(Tokenize, PlainOutputIsALineATokenAndDecodeTurnsIdsBack) {
  const std::string model = vocabulary_file();
  const auto lines = test::quipu({"tokenize", "-m", model, "a\tb"});
  ASSERT_EQ(lines.status, 0) << lines.err;
  EXPECT_NE(lines.out.find("\ta\n"), std::string::npos) << lines.out;
  EXPECT_NE(lines.out.find("\t\\t\n"), std::string::npos) << lines.out;
  std::vector<std::string> command = {"tokenize", "-m", model, "--decode"};
  std::size_t begin = 0;
  while (begin < lines.out.size()) {
    command.push_back(lines.out.substr(begin, lines.out.find('\t', begin) - begin));
    begin = lines.out.find('\n', begin) + 1;
  }
  EXPECT_EQ(test::quipu(command).out, "a\tb\n");
}

TEST(Tokenize, SpecialTokensAreTextWhenAskedFor) {
  const std::string model = vocabulary_file();
  const auto parsed = test::quipu({"tokenize", "-m", model, "--json", "<|im_start|>"});
  EXPECT_EQ(json::parse(parsed.out).as_object().at("pieces"), json::parse(R"(["<|im_start|>"])"));
  const auto plain = test::quipu({"tokenize", "-m", model, "--json", "--no-parse-special", "<|im_start|>"});
  EXPECT_GT(json::parse(plain.out).as_object().at("tokens").as_array().size(), 1u);
}

TEST(Tokenize, BadUseIsOneLineAndAStatusThatIsNotZero) {
  const std::string model = vocabulary_file();
  const std::vector<std::vector<std::string>> wrong = {
      {"tokenize", "-m", model},
      {"tokenize", "-m", model, "a", "-f", "-"},
      {"tokenize", "-m", model, "--decode", "x"},
      {"tokenize", "-m", model, "--decode", "-1"},
      {"tokenize", "-m", model, "--decode", "4000000000"},
      {"tokenize", "-m", model, "--decode", "99999"},
      {"tokenize", "-m", model, "-f", "/nonexistent"},
      {"tokenize", "-m", "/nonexistent.gguf", "a"},
      {"tokenize", "a"},
  };
  for (const auto& command : wrong) {
    const auto result = test::quipu(command);
    EXPECT_NE(result.status, 0) << testing::PrintToString(command);
    EXPECT_TRUE(test::is_one_error_line(result.err)) << testing::PrintToString(command) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace quipu

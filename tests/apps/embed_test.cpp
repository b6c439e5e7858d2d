// quipu embed and quipu rerank, on folders of tiny encoders and a tiny decoder.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <sstream>

#include "convert_folder.hpp"
#include "program.hpp"
#include "tiny_model.hpp"

namespace quipu::test {
namespace {

namespace json = boost::json;

class Embed : public testing::Test {
 protected:
  static json::object ask(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const ProgramResult result = quipu(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? json::parse(result.out).as_object() : json::object{};
  }
  static std::vector<double> vector(const json::object& result, std::size_t index) {
    return json::value_to<std::vector<double>>(
        result.at("data").as_array().at(index).as_object().at("embedding"));
  }
  static double length(const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return std::sqrt(sum);
  }
  ModelFolder bert{"bert"};
  std::string model() const { return bert.path().string(); }
};

TEST_F(Embed, GivesAVectorOfLengthOneForEachText) {
  const json::object result = ask({"embed", "-m", model(), "the cat", "", "the cat"});
  EXPECT_EQ(result.at("pooling"), "mean");
  EXPECT_EQ(result.at("dimensions"), 32);
  ASSERT_EQ(result.at("data").as_array().size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result.at("data").as_array()[i].as_object().at("index").to_number<std::size_t>(), i);
    EXPECT_NEAR(length(vector(result, i)), 1, 1e-5);
  }
  EXPECT_EQ(vector(result, 0), vector(result, 2));
  EXPECT_NE(vector(result, 0), vector(result, 1));
}

TEST_F(Embed, AFileHasATextALineAndAPipeGetsThePlainNumbers) {
  bert.write("texts", "the cat\r\n\nthe cat");
  const ProgramResult result =
      quipu({"embed", "-m", model(), "-f", (bert / "texts").string(), "--no-normalize"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::istringstream lines(result.out);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0], rows[2]);
  std::istringstream numbers(rows[0]);
  std::vector<double> v;
  for (double x; numbers >> x;) v.push_back(x);
  ASSERT_EQ(v.size(), 32U);
  EXPECT_GT(std::abs(length(v) - 1), 1e-3);
}

TEST_F(Embed, PoolingNoneGivesAVectorForEachToken) {
  const json::object result = ask({"embed", "-m", model(), "--pooling", "none", "the cat"});
  const json::object& item = result.at("data").as_array()[0].as_object();
  EXPECT_EQ(item.at("embedding").as_array().size(), item.at("tokens").to_number<std::size_t>());
}

TEST_F(Embed, ADecoderGivesVectorsToo) {
  const TemporaryFolder folder;
  write_tiny_model(folder / "tiny.gguf");
  for (const char* pooling : {"mean", "last"}) {
    const json::object result =
        ask({"embed", "-m", (folder / "tiny.gguf").string(), "--pooling", pooling, "the hello"});
    EXPECT_EQ(result.at("pooling"), pooling);
    EXPECT_NEAR(length(vector(result, 0)), 1, 1e-5);
  }
}

TEST_F(Embed, RefusalsAreOneLineThatSaysWhy) {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& part) {
    const ProgramResult result = quipu(arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  std::string text;
  for (int i = 0; i < 70; ++i) text += "the ";
  refused({"embed", "-m", model(), text}, "72 tokens, the context holds 64");
  refused({"embed", "-m", model(), "--pooling", "rank", "x"}, "no classification head");
  refused({"rerank", "-m", model(), "x", "y"}, "no classification head");
  refused({"embed", "-m", model()}, "there is no text");
  refused({"embed", "-m", model(), "-c", "65", "x"}, "64 positions");
  refused({"run", "-m", model(), "-p", "x", "-n", "1"}, "vectors of texts and no text");
}

TEST(Rerank, SortsTheDocumentsByTheirScores) {
  const ModelFolder folder("bert_rank");
  const std::vector<std::string> ask{"rerank", "-m",    folder.path().string(), "the cat",
                                     "the",    "a cat", "the cat the"};
  std::vector<std::string> as_json = ask;
  as_json.push_back("--json");
  const ProgramResult result = quipu(as_json);
  ASSERT_EQ(result.status, 0) << result.err;
  const json::array results = json::parse(result.out).as_object().at("results").as_array();
  ASSERT_EQ(results.size(), 3U);
  for (std::size_t i = 1; i < results.size(); ++i)
    EXPECT_GE(results[i - 1].as_object().at("relevance_score").to_number<double>(),
              results[i].as_object().at("relevance_score").to_number<double>());
  const std::size_t best = results[0].as_object().at("index").to_number<std::size_t>();
  EXPECT_EQ(json::value_to<std::string>(results[0].as_object().at("document")), ask.at(4 + best));
  const ProgramResult plain = quipu(ask);
  EXPECT_EQ(plain.out.substr(0, 1), std::to_string(best));
}

}  // namespace
}  // namespace quipu::test

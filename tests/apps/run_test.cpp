// run, chat, bench and eval on a tiny model: what they print, and that the bytes do not depend on the
// settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "program.hpp"
#include "support.hpp"
#include "tiny_model.hpp"

namespace quipu::test {
namespace {

namespace json = boost::json;
using Arguments = std::vector<std::string>;

constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

class Run : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(plain());
    TinyModelOptions options;
    options.extra.emplace_back("tokenizer.chat_template", tiny::text(kChatMl));
    write_tiny_model(instruct(), options);
  }
  std::string plain() const { return (folder / "plain.gguf").string(); }
  std::string instruct() const { return (folder / "instruct.gguf").string(); }
  json::object run_json(Arguments more, const std::string& model = "") {
    Arguments arguments{"run",          "-m",    model.empty() ? plain() : model, "--temp", "0", "-n", "40",
                        "--ignore-eos", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = quipu(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? json::parse(result.out).as_object() : json::object{};
  }
  TemporaryFolder folder;
};

TEST_F(Run, JsonHasTheDocumentedShape) {
  const json::object object = run_json({"-p", "the hello"});
  ASSERT_EQ(object.size(), 5u);
  EXPECT_TRUE(object.at("text").is_string());
  EXPECT_EQ(object.at("tokens").as_array().size(), 40u);
  EXPECT_EQ(object.at("stop"), "length");
  const json::object& usage = object.at("usage").as_object();
  ASSERT_EQ(usage.size(), 3u);
  // By the tiny vocabulary's merges: t, he; " ", he, ll, o (see tiny_model.hpp).
  EXPECT_EQ(usage.at("prompt_tokens"), 6);
  EXPECT_EQ(usage.at("completion_tokens"), 40);
  EXPECT_EQ(usage.at("cached_tokens"), 0);
  EXPECT_TRUE(object.at("timings").as_object().at("first_token_ms").is_number());
}

TEST_F(Run, AThinkingModelThinksWithinItsBudgetAndThenObeys) {
  const std::string path = (folder / "thinking.gguf").string();
  TinyModelOptions options;
  options.extra.emplace_back("tokenizer.chat_template",
                             tiny::text("{% for m in messages %}{{ m.content }}\n{% endfor %}"
                                        "{% if add_generation_prompt %}<think>\n{% endif %}"));
  write_tiny_model(path, options);
  const Arguments ask{"run", "-m", path,      "-p",       "the hello",          "--temp", "1", "--seed", "3",
                      "-n",  "80", "--regex", "[0-9]{3}", "--reasoning-budget", "6"};
  const ProgramResult plain = quipu(ask);
  EXPECT_EQ(plain.status, 0) << plain.err;
  ASSERT_EQ(plain.out.size(), 4u) << plain.out;  // the answer alone
  EXPECT_EQ(plain.out.find_first_not_of("0123456789"), 3u);
  Arguments whole = ask;
  whole.emplace_back("--json");
  const json::object object = json::parse(quipu(whole).out).as_object();
  EXPECT_EQ(std::string(object.at("text").as_string()) + "\n", plain.out);
  EXPECT_FALSE(object.at("reasoning").as_string().empty());
  // Six tokens of thoughts, its end a byte a token, line ends, three digits.
  EXPECT_LE(object.at("usage").at("completion_tokens").as_int64(), 6 + 8 + 2 + 3);
}

TEST_F(Run, APipeGetsTheTextAndNothingElse) {
  const json::object expected = run_json({"-p", "hello"});
  const ProgramResult result =
      quipu({"run", "-m", plain(), "--temp", "0", "-n", "40", "--ignore-eos", "-p", "hello"});
  EXPECT_EQ(result.status, 0);
  std::string text = expected.at("text").as_string().c_str();
  if (text.empty() || text.back() != '\n') text += '\n';
  EXPECT_EQ(result.out, text);
  EXPECT_EQ(result.err, "");
}

TEST_F(Run, ThreadsBatchAndPromptFormDoNotChangeTheTokens) {
  const std::string prompt = "the hello the other the hello other tell the he hello";
  const json::value tokens = run_json({"-p", prompt}).at("tokens");
  for (const Arguments& flags :
       {Arguments{"-t", "1"}, Arguments{"-t", "3"}, Arguments{"-b", "1"}, Arguments{"-b", "7"},
        Arguments{"-c", "300"}, Arguments{"--no-mmap"}, Arguments{"--mlock"}, Arguments{"--no-huge-pages"}}) {
    Arguments arguments{"-p", prompt};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    EXPECT_EQ(run_json(arguments).at("tokens"), tokens) << flags[0];
  }
  std::ofstream(folder / "prompt.txt") << prompt;
  EXPECT_EQ(run_json({"-f", (folder / "prompt.txt").string()}).at("tokens"), tokens);
}

// Mapped, read or moved into huge pages: the weights are there once. A second copy would make it twice the
// file.
TEST_F(Run, TheWeightsAreInMemoryOnce) {
  const auto path = default_model_path();
  QUIPU_REQUIRE_MODEL(path);
  const auto file = static_cast<double>(std::filesystem::file_size(path)) / 1024;
  for (const Arguments& flags : {Arguments{}, Arguments{"--no-huge-pages"}, Arguments{"--no-mmap"}}) {
    Arguments arguments{"run", "-m", path.string(), "-p", "Hello", "-n",
                        "30",  "-b", "32",          "-c", "256",   "--ignore-eos"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = quipu(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_GT(static_cast<double>(result.peak_memory), 0.8 * file) << arguments.back();
    EXPECT_LT(static_cast<double>(result.peak_memory), 1.6 * file) << arguments.back();
  }
}

TEST_F(Run, ReadsThePromptFromStandardInput) {
  const json::value tokens = run_json({"-p", "hello"}).at("tokens");
  ProgramOptions options;
  options.input = "hello";
  const Arguments arguments{"run", "-m", plain(), "--temp", "0", "-n", "40", "--ignore-eos", "--json"};
  EXPECT_EQ(json::parse(quipu(arguments, options).out).at("tokens"), tokens);
  Arguments dash = arguments;
  dash.insert(dash.end(), {"-p", "-"});
  EXPECT_EQ(json::parse(quipu(dash, options).out).at("tokens"), tokens);
}

TEST_F(Run, ASeedRepeatsAndAnotherDiffers) {
  const Arguments hot{"-p", "hello", "--temp", "1.5", "--top-k", "0", "--min-p", "0", "--top-p", "1"};
  const auto with_seed = [&](const char* seed) {
    Arguments arguments = hot;
    arguments.insert(arguments.end(), {"--seed", seed});
    return run_json(arguments).at("tokens");
  };
  EXPECT_EQ(with_seed("7"), with_seed("7"));
  EXPECT_NE(with_seed("7"), with_seed("8"));
}

TEST_F(Run, AppliesTheChatTemplateUnlessRaw) {
  // ChatML around "hi": <|im_start|> user \n h i <|im_end|> \n <|im_start|> assistant \n, by hand:
  // 1 + 4 + 1 + 2 + 1 + 1 + 1 + 9 + 1 tokens.
  EXPECT_EQ(run_json({"-p", "hi"}, instruct()).at("usage").at("prompt_tokens"), 21);
  EXPECT_EQ(run_json({"-p", "hi", "--raw"}, instruct()).at("usage").at("prompt_tokens"), 2);
  EXPECT_EQ(run_json({"-p", "hi"}).at("usage").at("prompt_tokens"), 2);
  // and <|im_start|> system \n b e <|im_end|> \n in front.
  EXPECT_EQ(run_json({"-p", "hi", "--system", "be"}, instruct()).at("usage").at("prompt_tokens"), 33);
}

TEST_F(Run, ASystemMessageNeedsATemplate) {
  const ProgramResult result = quipu({"run", "-m", plain(), "-p", "x", "--system", "y"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
}

TEST_F(Run, APromptCacheChangesNothingButTheWork) {
  const std::string prompt = "the hello the other the hello other";
  const std::string cache = (folder / "state").string();
  const json::value tokens = run_json({"-p", prompt}).at("tokens");
  const json::object first = run_json({"-p", prompt, "--prompt-cache", cache});
  EXPECT_EQ(first.at("tokens"), tokens);
  EXPECT_EQ(first.at("usage").at("cached_tokens"), 0);
  const json::object second = run_json({"-p", prompt, "--prompt-cache", cache});
  EXPECT_EQ(second.at("tokens"), tokens);
  EXPECT_EQ(second.at("usage").at("cached_tokens").as_int64(),
            second.at("usage").at("prompt_tokens").as_int64() - 1);
}

TEST_F(Run, APromptCacheThatIsNoStateFileIsRefusedAndKept) {
  std::ofstream(folder / "state") << "precious notes";
  const ProgramResult result =
      quipu({"run", "-m", plain(), "-p", "x", "--prompt-cache", (folder / "state").string()});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  std::ifstream file(folder / "state");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "precious notes");
}

TEST_F(Run, APromptLongerThanTheContextSaysByHowMuch) {
  const ProgramResult result = quipu({"run", "-m", plain(), "-c", "16", "-p", std::string(30, 'x')});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("30"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("16"), std::string::npos) << result.err;
}

TEST_F(Run, WarnsBeyondTheTrainedContextWithBothNumbersAndTheFlag) {
  const ProgramResult result = quipu({"run", "-m", plain(), "-c", "1000", "-p", "x", "-n", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* word : {"1000", "512", "--rope-scal"})
    EXPECT_NE(result.err.find(word), std::string::npos) << word << ": " << result.err;
}

TEST_F(Run, AReversePromptEndsTheTextBeforeIt) {
  const std::string text = run_json({"-p", "hello"}).at("text").as_string().c_str();
  std::size_t at = 5;
  while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) ++at;
  ASSERT_LT(at, text.size());
  const std::string stop(1, text[at]);
  const json::object stopped = run_json({"-p", "hello", "-r", stop});
  EXPECT_EQ(stopped.at("stop"), "stop");
  EXPECT_EQ(std::string(stopped.at("text").as_string().c_str()), text.substr(0, text.find(stop)));
}

TEST_F(Run, WarnsThatThisBuildHasNoGpu) {
  const ProgramResult result = quipu({"run", "-m", plain(), "-p", "x", "-n", "1", "-ngl", "99"});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.err.find("no GPU"), std::string::npos) << result.err;
}

TEST_F(Run, CtrlCEndsItWithStatus130) {
  ProgramOptions options;
  options.signal_after_output = SIGINT;
  const ProgramResult result =
      quipu({"run", "-m", plain(), "-p", "x", "--ignore-eos", "--context-shift"}, options);
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_FALSE(result.out.empty());
}

TEST_F(Run, ChatAnswersEachLineOfAPipe) {
  ProgramOptions options;
  options.input = "hello\n\n/help\nthe other\n/save " + (folder / "talk.json").string() + "\n";
  const ProgramResult result =
      quipu({"chat", "-m", instruct(), "--temp", "0", "-n", "5", "--ignore-eos"}, options);
  ASSERT_EQ(result.status, 0) << result.err;
  std::ifstream file(folder / "talk.json");
  const json::value saved = json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  const json::array& messages = saved.at("messages").as_array();
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].at("content"), "hello");
  EXPECT_EQ(messages[2].at("content"), "the other");
  EXPECT_EQ(messages[3].at("role"), "assistant");
  std::string expected;
  for (const int i : {1, 3}) {
    expected += messages[static_cast<std::size_t>(i)].at("content").as_string().c_str();
    if (expected.empty() || expected.back() != '\n') expected += '\n';
  }
  EXPECT_EQ(result.out, expected);
}

TEST_F(Run, ChatGoesOnWhereAFileLeftOff) {
  const std::string file = (folder / "talk.json").string(), more = (folder / "more.json").string();
  std::ofstream(file)
      << R"({"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"hello \u00e9"}]})";
  ProgramOptions options;
  options.input = "/load " + file + "\nthe other\n/save " + more + "\n";
  const ProgramResult result =
      quipu({"chat", "-m", instruct(), "--temp", "0", "-n", "6", "--ignore-eos"}, options);
  ASSERT_EQ(result.status, 0) << result.err;
  std::ifstream saved(more);
  const json::value root = json::parse(std::string(std::istreambuf_iterator<char>(saved), {}));
  const json::array& messages = root.at("messages").as_array();
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].at("content"), "hello");
  EXPECT_EQ(messages[1].at("content"), "hello \xC3\xA9");
  EXPECT_EQ(messages[2].at("content"), "the other");
}

TEST_F(Run, ChatRefusesAFileThatIsNoConversation) {
  std::ofstream(folder / "notes") << "no JSON";
  ProgramOptions options;
  options.input = "/load " + (folder / "notes").string() + "\n";
  const ProgramResult result = quipu({"chat", "-m", instruct()}, options);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
}

TEST_F(Run, ChatResetForgets) {
  const Arguments arguments{"chat", "-m", instruct(), "--temp", "0", "-n", "6", "--ignore-eos"};
  ProgramOptions one, reset;
  one.input = "hello\n";
  reset.input = "the other\n/reset\nhello\n";
  const std::string alone = quipu(arguments, one).out, after = quipu(arguments, reset).out;
  ASSERT_GT(after.size(), alone.size());
  EXPECT_EQ(after.substr(after.size() - alone.size()), alone);
}

TEST_F(Run, ChatNeedsATemplate) {
  const ProgramResult result = quipu({"chat", "-m", plain()});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
}

TEST_F(Run, BenchPrintsTheDocumentedShape) {
  const ProgramResult result = quipu({"bench", "-m", plain(), "-p", "16", "-n", "4", "-d", "70", "-B", "2",
                                      "-t", "1,2", "-r", "2", "-o", "json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json::value root = json::parse(result.out);
  const json::array& rows = root.as_array();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].at("test"), "pp16@d70");
  EXPECT_EQ(rows[1].at("test"), "tg4@d70");
  EXPECT_EQ(rows[0].at("threads"), 1);
  EXPECT_EQ(rows[2].at("threads"), 2);
  EXPECT_EQ(rows[0].at("batch"), 2);
  EXPECT_TRUE(rows[0].at("peak_fraction").is_null());
  EXPECT_TRUE(rows[0].at("peak").is_null());
  const json::object& rate = rows[0].at("tokens_per_second").as_object();
  EXPECT_LE(rate.at("min").to_number<double>(), rate.at("median").to_number<double>());
  EXPECT_LE(rate.at("median").to_number<double>(), rate.at("max").to_number<double>());
}

TEST_F(Run, BenchNamesThePeaksItComparesWith) {
  const auto rows_of = [](const std::filesystem::path& model) {
    const ProgramResult result = quipu(
        {"bench", "-m", model.string(), "-p", "16", "-n", "4", "-t", "1", "-r", "1", "-o", "json", "--peak"});
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(result.out);
  };
  TinyModelOptions options;
  options.matrix_dtype = DType::q8_0;
  write_tiny_model(folder / "q8_0.gguf", options);
  const json::value floats = rows_of(plain()), quantised = rows_of(folder / "q8_0.gguf");
  EXPECT_EQ(floats.at(0).at("peak").at("of"), "float");
  EXPECT_EQ(quantised.at(0).at("peak").at("of"), "int8");
  // By hand: per layer 64 x (64 + 32 + 32 + 64) of attention and 3 x 64 x 128 of the feed-forward, two
  // operations each, in two layers.
  const double operations = 2.0 * 2 * (64 * 192 + 3 * 64 * 128);
  for (const json::value* rows : {&floats, &quantised}) {
    const json::value& prompt = rows->at(0);
    const auto number = [](const json::value& v) { return v.to_number<double>(); };
    EXPECT_NEAR(number(prompt.at("peak_fraction")) * number(prompt.at("peak").at("per_second")),
                number(prompt.at("tokens_per_second").at("median")) * operations, operations);
    EXPECT_EQ(rows->at(1).at("peak").at("of"), "read bandwidth");
    EXPECT_GT(number(rows->at(1).at("peak").at("per_second")), 1e8);
  }
  // Of six experts the two that a token takes: 32 x (32 + 16 + 16 + 32) of attention, 6 x 32 of the router,
  // 2 x 3 x 32 x 40.
  const json::value mixture = rows_of(test::source_path("tests/goldens/models/mixtral.gguf"));
  EXPECT_NEAR(mixture.at(0).at("peak_fraction").to_number<double>() *
                  mixture.at(0).at("peak").at("per_second").to_number<double>() /
                  mixture.at(0).at("tokens_per_second").at("median").to_number<double>(),
              2.0 * 2 * (32 * 96 + 6 * 32 + 2 * 3 * 32 * 40), 1);
  const ProgramResult table =
      quipu({"bench", "-m", plain(), "-p", "16", "-n", "0", "-t", "1", "-r", "1", "--peak"});
  EXPECT_NE(table.out.find("GOPS (float) |"), std::string::npos) << table.out;
}

TEST_F(Run, BenchMeasuresEveryCombinationOfItsLists) {
  const ProgramResult result = quipu({"bench", "-m", plain(), "-p", "16,8", "-n", "4", "-d", "0,70", "-B",
                                      "1,2", "-t", "1", "-r", "1", "-o", "json"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::vector<std::string> tests;
  const json::value root = json::parse(result.out);
  for (const json::value& row : root.as_array())
    tests.push_back(std::string(row.at("test").as_string()) + " x " +
                    std::to_string(row.at("batch").as_int64()));
  EXPECT_EQ(tests, (std::vector<std::string>{"pp16 x 1", "pp8 x 1", "tg4 x 1", "pp16 x 2", "pp8 x 2",
                                             "tg4 x 2", "pp16@d70 x 1", "pp8@d70 x 1", "tg4@d70 x 1",
                                             "pp16@d70 x 2", "pp8@d70 x 2", "tg4@d70 x 2"}));
  const ProgramResult bad = quipu({"bench", "-m", plain(), "-p", "16,,8"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_TRUE(is_one_error_line(bad.err)) << bad.err;
}

TEST_F(Run, PerplexityScoresTheSecondHalfOfEachWindow) {
  std::ofstream(folder / "text") << std::string(100, 'x');  // 100 tokens: 6 windows of 16 and a rest
  const Arguments arguments{"eval", "perplexity", "-m",    plain(), "-f", (folder / "text").string(),
                            "-c",   "16",         "--json"};
  const ProgramResult result = quipu(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  const json::value score = json::parse(result.out);
  // Positions 8-14 of a window predict the tokens at 9-15.
  EXPECT_EQ(score.at("tokens"), 6 * 7);
  EXPECT_GT(score.at("perplexity").to_number<double>(), 1.0);
  Arguments one = arguments;
  one.insert(one.end(), {"--chunks", "1"});
  EXPECT_EQ(json::parse(quipu(one).out).at("tokens"), 7);
}

TEST_F(Run, PerplexityNeedsAWholeWindow) {
  std::ofstream(folder / "text") << "short";
  const ProgramResult result = quipu({"eval", "perplexity", "-m", plain(), "-f", (folder / "text").string()});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
}

TEST_F(Run, LoglikelihoodScoresContinuations) {
  const auto scores = [&](const std::string& lines) {
    std::ofstream(folder / "pairs") << lines;
    const ProgramResult result =
        quipu({"eval", "loglikelihood", "-m", plain(), "-f", (folder / "pairs").string(), "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(result.out).at("pairs").as_array();
  };
  const auto number = [](const json::value& pair) { return pair.at("log_likelihood").to_number<double>(); };
  // A byte is a token. What is likely of a text is the product over its tokens.
  const json::array chain = scores(R"({"context":"ab","continuation":"cd"}
{"context":"ab","continuation":"c"}

{"context":"abc","continuation":"d"}
{"context":"ab ","continuation":"c"}
{"context":"ab","continuation":" c"}
)");
  ASSERT_EQ(chain.size(), 5u);
  EXPECT_EQ(chain[0].at("tokens"), 2);
  EXPECT_NEAR(number(chain[0]), number(chain[1]) + number(chain[2]), 1e-6);
  EXPECT_LT(number(chain[0]), 0);
  EXPECT_EQ(chain[3], chain[4]) << "white space at the end of a context belongs to the continuation";
  // Together the first bytes are not more probable than 1, and only the most probable one is greedy.
  std::string all;
  for (char c = ' '; c <= '~'; ++c)
    all += json::serialize(json::object{{"context", "ab"}, {"continuation", std::string(1, c)}}) + "\n";
  double total = 0, best = -1e9;
  const json::array bytes = scores(all);
  for (const json::value& pair : bytes) {
    total += std::exp(number(pair));
    best = std::max(best, number(pair));
  }
  EXPECT_GT(total, 0.1);
  EXPECT_LE(total, 1);
  for (const json::value& pair : bytes) EXPECT_TRUE(number(pair) == best || pair.at("greedy") == false);
}

TEST_F(Run, LoglikelihoodNamesTheLineThatIsWrong) {
  for (const std::string lines :
       {"{\"context\":\"a\",\"continuation\":\"b\"}\n[1]", "{}", "", "\n{\"context\":\"a\"}",
        "{\"context\":\"\",\"continuation\":\"b\"}", "{\"context\":\"a\",\"continuation\":\"\"}"}) {
    std::ofstream(folder / "pairs") << lines;
    const ProgramResult result =
        quipu({"eval", "loglikelihood", "-m", plain(), "-f", (folder / "pairs").string()});
    EXPECT_EQ(result.status, 1) << lines;
    EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  }
}

}  // namespace
}  // namespace quipu::test

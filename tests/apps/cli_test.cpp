// Flags, errors and streams of the program, without any model.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "program.hpp"
#include "tiny_model.hpp"

namespace quipu::test {
namespace {

using Arguments = std::vector<std::string>;

TEST(CommandLine, PrintsItsVersion) {
  const ProgramResult result = quipu({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "quipu 0.1.0\n");
}

TEST(CommandLine, HelpNamesEverySubcommand) {
  const ProgramResult result = quipu({});
  EXPECT_EQ(result.status, 0);
  for (const char* name : {"run", "chat", "serve", "embed", "rerank", "tokenize", "template", "inspect",
                           "quantize", "convert", "bench", "eval", "pull", "models", "completion"}) {
    EXPECT_NE(result.out.find("  " + std::string(name) + " "), std::string::npos) << name;
    const ProgramResult help = quipu({name, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("Usage: quipu " + std::string(name)), std::string::npos) << help.out;
  }
}

TEST(CommandLine, HelpIsTheWholeOneWhereNoSubcommandIsCalled) {
  const std::string whole = quipu({"--help"}).out;
  EXPECT_EQ(quipu({}).out, whole);
  EXPECT_EQ(quipu({"--", "run"}).out, whole);
}

class BadUsage : public testing::TestWithParam<Arguments> {};

TEST_P(BadUsage, IsOneLineAndStatusTwo) {
  Arguments arguments{"run", "-m", "/nonexistent.gguf", "-p", "x"};
  arguments.insert(arguments.end(), GetParam().begin(), GetParam().end());
  const ProgramResult result = quipu(arguments);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, BadUsage,
    testing::Values(Arguments{"-c", "-1"}, Arguments{"-c", "0"}, Arguments{"-c", "abc"},
                    Arguments{"-c", "1e3"}, Arguments{"-c", ""}, Arguments{"-c", "99999999999999999999"},
                    Arguments{"-n", "-5"}, Arguments{"-n", "1.5"}, Arguments{"-n"}, Arguments{"-t", "-2"},
                    Arguments{"-b", "0"}, Arguments{"--temp", "nan"}, Arguments{"--temp", "-1"},
                    Arguments{"--temp", "inf"}, Arguments{"--temp", "0x10"}, Arguments{"--top-k", "-3"},
                    Arguments{"--top-p", "1.01"}, Arguments{"--min-p", "1.5"}, Arguments{"--typical", "0"},
                    Arguments{"--repeat-penalty", "0"}, Arguments{"--repeat-last-n", "-2"},
                    Arguments{"--mirostat", "1"}, Arguments{"--seed", "-2"}, Arguments{"-ngl", "many"},
                    Arguments{"-ctk", "q6_k"}, Arguments{"--rope-scaling", "magic"},
                    Arguments{"--memory-budget", "much"}, Arguments{"--no-such-flag"}, Arguments{"stray"}));

TEST(CommandLine, NamesTheFlagTheValueAndTheRange) {
  const ProgramResult result = quipu({"run", "-m", "x.gguf", "-p", "x", "-n", "-5"});
  EXPECT_NE(result.err.find("-n -5"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(">= -1"), std::string::npos) << result.err;
}

TEST(CommandLine, RefusesUnknownSamplersAndBadBiasesBeforeLoading) {
  for (const Arguments& flags : {Arguments{"--samplers", "top_k;magic"}, Arguments{"--logit-bias", "5"},
                                 Arguments{"--logit-bias", "x+1"}, Arguments{"--logit-bias", "5+nan"}}) {
    Arguments arguments{"run", "-m", "/nonexistent.gguf", "-p", "x"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = quipu(arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
    EXPECT_NE(result.err.find(flags[1].substr(flags[1].find(';') + 1)), std::string::npos) << result.err;
  }
}

TEST(CommandLine, UnknownSubcommandAndModelNameAreErrors) {
  EXPECT_EQ(quipu({"frobnicate"}).status, 2);
  for (const Arguments& arguments :
       {Arguments{"run", "-p", "x"}, Arguments{"run", "-m", "no-such-name", "-p", "x"},
        Arguments{"pull", "no-such-name"}, Arguments{"run", "-m", "/nonexistent/x.gguf", "-p", "x"},
        Arguments{"eval", "perplexity", "-m", "x.gguf"},
        Arguments{"run", "-m", "x.gguf", "-p", "x", "-f", "y"},
        Arguments{"run", "-m", "x.gguf", "-f", "/nonexistent.txt"},
        Arguments{"run", "-m", "x.gguf", "-p", ""}}) {
    const ProgramResult result = quipu(arguments);
    EXPECT_EQ(result.status, 1) << arguments.back();
    EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  }
}

TEST(CommandLine, FlagsReadTheEnvironment) {
  ProgramOptions options;
  options.environment = {"QUIPU_CTX_SIZE=-7"};
  const ProgramResult result = quipu({"run", "-m", "x.gguf", "-p", "x"}, options);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("-7"), std::string::npos) << result.err;
  EXPECT_NE(quipu({"run", "-m", "x.gguf", "-p", "x", "-c", "64"}, options).err.find("x.gguf"),
            std::string::npos);
}

TEST(CommandLine, CompletionScriptsNameSubcommandsAndOptions) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ProgramResult result = quipu({"completion", shell});
    EXPECT_EQ(result.status, 0);
    EXPECT_NE(result.out.find("bench"), std::string::npos) << shell;
    EXPECT_NE(result.out.find("top-k"), std::string::npos) << shell;
  }
  EXPECT_EQ(quipu({"completion", "tcsh"}).status, 2);
}

TEST(CommandLine, BashAcceptsItsCompletionScript) {
  TemporaryFolder folder;
  std::ofstream(folder / "script") << quipu({"completion", "bash"}).out
                                   << "COMP_WORDS=(quipu run --top-)\nCOMP_CWORD=2\n_quipu\n"
                                   << "printf '%s\\n' \"${COMPREPLY[@]}\" > " << (folder / "replies").string()
                                   << "\n";
  ASSERT_EQ(std::system(("bash " + (folder / "script").string()).c_str()), 0);
  std::ifstream replies(folder / "replies");
  const std::string text{std::istreambuf_iterator<char>(replies), {}};
  EXPECT_EQ(text, "--top-k\n--top-p\n--top-n-sigma\n--top-nsigma\n");
}

TEST(Streams, AFullDeviceIsAnError) {
  ProgramOptions options;
  options.stdout_path = "/dev/full";
  const ProgramResult result = quipu({"--version"}, options);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("No space left on device"), std::string::npos) << result.err;
}

TEST(Streams, AClosedStandardOutputIsAnError) {
  ProgramOptions options;
  options.close_stdout = true;
  const ProgramResult result = quipu({"--version"}, options);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
}

class BadModel : public testing::TestWithParam<const char*> {};

TEST_P(BadModel, IsOneLineThatNamesTheFile) {
  TemporaryFolder folder;
  write_tiny_model(folder / "whole.gguf");
  std::ifstream whole(folder / "whole.gguf", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(whole), {}};
  const std::string kind = GetParam();
  const std::filesystem::path path = folder / kind;
  if (kind == "directory") std::filesystem::create_directory(path);
  if (kind == "empty") std::ofstream(path).flush();
  if (kind == "text") std::ofstream(path) << "This is no model.\n";
  if (kind == "header-only") std::ofstream(path, std::ios::binary) << bytes.substr(0, 24);
  if (kind == "cut-in-metadata") std::ofstream(path, std::ios::binary) << bytes.substr(0, 2000);
  if (kind == "cut-in-tensors") std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() - 100);
  for (const Arguments& command : {Arguments{"run", "-p", "x", "-m"}, Arguments{"bench", "-m"},
                                   Arguments{"chat", "-m"}, Arguments{"inspect"}}) {
    Arguments arguments = command;
    arguments.push_back(path.string());
    const ProgramResult result = quipu(arguments);
    EXPECT_EQ(result.status, 1) << command[0] << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
    EXPECT_NE(result.err.find(path.string()), std::string::npos) << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BadModel,
                         testing::Values("missing", "directory", "empty", "text", "header-only",
                                         "cut-in-metadata", "cut-in-tensors"));

}  // namespace
}  // namespace quipu::test

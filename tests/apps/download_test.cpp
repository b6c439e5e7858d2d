// `quipu pull` against a server that helps and one that does not.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "http_server.hpp"
#include "program.hpp"
#include "tiny_model.hpp"

namespace quipu::test {
namespace {

namespace fs = std::filesystem;
using testing::Test;

/// Bytes 0, 1, …, 250, 0, 1, … of the length of a small model file.
std::string pattern(std::size_t size = 300'000) {
  std::string bytes(size, 0);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i % 251);
  return bytes;
}
// From sha256sum(1) on those 300000 bytes.
constexpr const char* kPatternDigest = "3c65ea93424a9c362fec0e3a69ea36031e8a358441479dd665cc6110eabe7b08";

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Download : public Test {
 protected:
  void SetUp() override { catalogue({server.url("/model")}); }

  void catalogue(const std::vector<std::string>& sources, const std::string& digest = kPatternDigest) {
    boost::json::array list(sources.begin(), sources.end());
    const boost::json::object entry{{"name", "pattern"},
                                    {"file", "pattern.gguf"},
                                    {"bytes", 300'000},
                                    {"sha256", digest},
                                    {"sources", list}};
    std::ofstream(folder / "catalogue.json")
        << boost::json::serialize(boost::json::object{{"models", boost::json::array{entry}}});
  }
  ProgramOptions options() const {
    ProgramOptions result;
    result.environment = {"QUIPU_CATALOGUE=" + (folder / "catalogue.json").string(),
                          "QUIPU_CACHE=" + cache().string(),
                          "QUIPU_HF_ENDPOINT=" + server.url(),
                          "PIP_INDEX_URL=http://127.0.0.1:1/simple",
                          "PIP_RETRIES=0",
                          "PIP_NO_INPUT=1"};
    return result;
  }
  fs::path cache() const { return folder / "cache"; }
  fs::path model() const { return cache() / "models" / "pattern.gguf"; }
  fs::path part() const { return cache() / "models" / "pattern.gguf.part"; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    if (fs::exists(cache()))
      for (const auto& entry : fs::recursive_directory_iterator(cache()))
        if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
    return names;
  }

  TemporaryFolder folder;
  HttpServer server;
};

TEST_F(Download, PutsTheFileInTheCacheAndPrintsItsPath) {
  server.serve("/model", {.body = pattern()});
  const ProgramResult result = quipu({"pull", "pattern"}, options());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, model().string() + "\n");
  EXPECT_EQ(result.err, "");  // no progress bar without a terminal
  EXPECT_EQ(content(model()), pattern());
  EXPECT_EQ(files(), std::vector<std::string>{"pattern.gguf"});
}

TEST_F(Download, AsksNobodyWhenTheFileIsThere) {
  server.serve("/model", {.body = pattern()});
  quipu({"pull", "pattern"}, options());
  EXPECT_EQ(quipu({"pull", "pattern"}, options()).status, 0);
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST_F(Download, ContinuesAPartFile) {
  server.serve("/model", {.body = pattern()});
  fs::create_directories(part().parent_path());
  std::ofstream(part(), std::ios::binary) << pattern().substr(0, 100'000);
  EXPECT_EQ(quipu({"pull", "pattern"}, options()).status, 0);
  EXPECT_EQ(server.requests(), std::vector<std::string>{"GET /model 100000"});
  EXPECT_EQ(content(model()), pattern());
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(Download, BeginsAnewWhenTheServerCannotResume) {
  server.serve("/model", {.body = pattern(), .ranges = false});
  fs::create_directories(part().parent_path());
  std::ofstream(part(), std::ios::binary) << pattern().substr(0, 100'000);
  EXPECT_EQ(quipu({"pull", "pattern"}, options()).status, 0);
  EXPECT_EQ(content(model()), pattern());
}

TEST_F(Download, BeginsAnewWhenThePartFileIsOfSomethingElse) {
  server.serve("/model", {.body = pattern()});
  fs::create_directories(part().parent_path());
  std::ofstream(part(), std::ios::binary) << std::string(100'000, 'x');
  EXPECT_EQ(quipu({"pull", "pattern"}, options()).status, 0);
  EXPECT_EQ(content(model()), pattern());
}

TEST_F(Download, GoesOnAfterABrokenConnection) {
  server.serve("/model", {.body = pattern(), .cut_after = 120'000});
  const ProgramResult result = quipu({"pull", "pattern"}, options());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(content(model()), pattern());
  EXPECT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests().back(), "GET /model 120000");
}

TEST_F(Download, FollowsARedirect) {
  server.serve("/model", {.status = 302, .location = server.url("/elsewhere")});
  server.serve("/elsewhere", {.body = pattern()});
  EXPECT_EQ(quipu({"pull", "pattern"}, options()).status, 0);
  EXPECT_EQ(content(model()), pattern());
}

TEST_F(Download, RefusesOtherBytesAndKeepsNone) {
  std::string wrong = pattern();
  wrong[200'000] ^= 1;
  server.serve("/model", {.body = wrong});
  const ProgramResult result = quipu({"pull", "pattern"}, options());
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find(kPatternDigest), std::string::npos);
  EXPECT_TRUE(files().empty());
}

TEST_F(Download, RefusesAnotherLengthBeforeWritingAnything) {
  server.serve("/model", {.body = pattern(400'000)});
  const ProgramResult result = quipu({"pull", "pattern"}, options());
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("400000 bytes where 300000 are expected"), std::string::npos) << result.err;
  EXPECT_TRUE(files().empty());
}

TEST_F(Download, TakesTheNextSourceWhenOneFails) {
  catalogue({server.url("/gone"), server.url("/damaged"), server.url("/model")});
  server.serve("/damaged", {.body = std::string(300'000, 'x')});
  server.serve("/model", {.body = pattern()});
  const ProgramResult result = quipu({"pull", "pattern"}, options());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(content(model()), pattern());
}

TEST_F(Download, GivesEachReasonWhenNoSourceWorks) {
  catalogue({server.url("/gone"), "http://127.0.0.1:1/model"});
  const ProgramResult result = quipu({"pull", "pattern"}, options());
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("HTTP 404"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("connect to 127.0.0.1 port 1"), std::string::npos) << result.err;
  EXPECT_TRUE(files().empty());
}

TEST_F(Download, SaysWhenThePackageIndexCannotBeReached) {
  catalogue({"pip:quipu-no-such-package==1.0:model.gguf"});
  const ProgramResult result = quipu({"pull", "pattern"}, options());
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("package index"), std::string::npos) << result.err;
  EXPECT_TRUE(files().empty());
}

TEST_F(Download, NamesACacheThatCannotBeWritten) {
  ProgramOptions where = options();
  for (std::string& variable : where.environment)
    if (variable.rfind("QUIPU_CACHE=", 0) == 0) variable = "QUIPU_CACHE=/dev/null/cache";
  const ProgramResult result = quipu({"pull", "pattern"}, where);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("/dev/null/cache/models"), std::string::npos) << result.err;
}

TEST_F(Download, LeavesNothingWhenTheDiskFillsUp) {
  server.serve("/model", {.body = pattern()});
  ProgramOptions limited = options();
  limited.file_size_limit = 150'000;  // writing fails in the middle, as on a full disk
  const ProgramResult result = quipu({"pull", "pattern"}, limited);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("File too large"), std::string::npos) << result.err;
  EXPECT_TRUE(files().empty());
}

TEST_F(Download, SaysHowMuchSpaceIsMissing) {
  fs::create_directories(cache());
  if (::geteuid() != 0 || ::mount("tmpfs", cache().c_str(), "tmpfs", 0, "size=128k") != 0)
    GTEST_SKIP() << "SKIPPED: mounting a small file system needs root";
  server.serve("/model", {.body = pattern()});
  const ProgramResult result = quipu({"pull", "pattern"}, options());
  const std::vector<std::string> left = files();
  ::umount(cache().c_str());
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("not enough disk space"), std::string::npos) << result.err;
  EXPECT_TRUE(left.empty());
}

TEST_F(Download, FindsTheOnlyModelOfAHubRepository) {
  server.serve(
      "/api/models/org/repo/revision/main?blobs=true",
      {.body = R"({"siblings":[{"rfilename":"README.md","size":3},{"rfilename":"sub/m.gguf","size":300000,)"
               R"("lfs":{"sha256":")" +
               std::string(kPatternDigest) + R"(","size":300000}}]})"});
  server.serve("/org/repo/resolve/main/sub/m.gguf", {.body = pattern()});
  const ProgramResult result = quipu({"pull", "hf:org/repo"}, options());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, (cache() / "models/hf/org/repo/sub/m.gguf").string() + "\n");
  EXPECT_EQ(content(cache() / "models/hf/org/repo/sub/m.gguf"), pattern());
}

TEST_F(Download, ChoosesAHubFileByQuantisationAndListsWhatThereIs) {
  server.serve(
      "/api/models/org/repo/revision/main?blobs=true",
      {.body =
           R"({"siblings":[{"rfilename":"m-Q2_K.gguf","size":5},{"rfilename":"m-Q6_K.gguf","size":5}]})"});
  server.serve("/org/repo/resolve/main/m-Q6_K.gguf", {.body = "GGUF!"});
  EXPECT_EQ(quipu({"pull", "hf:org/repo:q6_k"}, options()).out,
            (cache() / "models/hf/org/repo/m-Q6_K.gguf").string() + "\n");
  const ProgramResult none = quipu({"pull", "hf:org/repo:Q3_K"}, options());
  EXPECT_EQ(none.status, 1);
  EXPECT_TRUE(is_one_error_line(none.err)) << none.err;
  EXPECT_NE(none.err.find("m-Q2_K.gguf, m-Q6_K.gguf"), std::string::npos) << none.err;
}

TEST_F(Download, KeepsHubNamesInsideTheCache) {
  for (const char* name :
       {"hf:org/repo:../../evil.gguf", "hf:../repo", "hf:org", "hf:org/a/b", "hf:/org/repo"}) {
    const ProgramResult result = quipu({"pull", name}, options());
    EXPECT_EQ(result.status, 1) << name;
    EXPECT_TRUE(is_one_error_line(result.err)) << name << ": " << result.err;
  }
  EXPECT_TRUE(files().empty());
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(Download, RefusesACatalogueThatIsWrong) {
  for (const char* text : {"", "{}", R"({"models":[{}]})", R"({"models":[{"name":"a","file":"../x"}]})"}) {
    std::ofstream(folder / "catalogue.json") << text;
    const ProgramResult result = quipu({"models"}, options());
    EXPECT_EQ(result.status, 1) << text;
    EXPECT_TRUE(is_one_error_line(result.err)) << result.err;
    EXPECT_NE(result.err.find("catalogue.json"), std::string::npos) << result.err;
  }
}

TEST_F(Download, ListsNamesWithWhatIsInTheCache) {
  server.serve("/model", {.body = pattern()});
  const auto entry = [&] {
    const auto list = boost::json::parse(quipu({"models", "--json"}, options()).out);
    return list.at("models").at(0).as_object();
  };
  EXPECT_EQ(entry().at("name"), "pattern");
  EXPECT_TRUE(entry().at("path").is_null());
  quipu({"pull", "pattern"}, options());
  EXPECT_EQ(entry().at("path").as_string(), boost::json::string(model().string()));
  EXPECT_NE(quipu({"models"}, options()).out.find("smollm2"), std::string::npos);
}

}  // namespace
}  // namespace quipu::test

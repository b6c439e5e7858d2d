// `quipu convert`, and -m with a Hugging Face folder.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "convert_folder.hpp"
#include "formats/gguf/gguf.hpp"
#include "program.hpp"

namespace quipu {
namespace {

namespace fs = std::filesystem;
using test::ModelFolder;

class Convert : public ::testing::Test {
 protected:
  test::ProgramResult convert(const ModelFolder& folder, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"convert", folder.path().string(), "-o", (out / "x.gguf").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::quipu(arguments);
  }
  std::string type_of(const std::string& tensor) {
    const gguf::File file = gguf::File::open(out / "x.gguf");
    const TensorView* found = file.find_tensor(tensor);
    return found == nullptr ? "absent" : std::string(to_string(found->dtype));
  }
  test::TemporaryFolder out;
};

TEST_F(Convert, KeepsTheTypesOfMatricesUnlessAskedOtherwise) {
  const ModelFolder folder("qwen2");
  const auto done = convert(folder, {});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.err, "");  // a pipe gets no progress bar
  EXPECT_NE(done.out.find("qwen2 in its own types"), std::string::npos) << done.out;
  EXPECT_EQ(type_of("blk.0.attn_q.weight"), "BF16");
  EXPECT_EQ(type_of("blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(gguf::File::open(out / "x.gguf").metadata().get_uint("general.file_type"), 32u);
  for (const auto& [type, name] : {std::pair{"f32", "F32"}, {"f16", "F16"}, {"q8_0", "Q8_0"}}) {
    ASSERT_EQ(convert(folder, {"--type", type}).status, 0);
    EXPECT_EQ(type_of("blk.0.attn_q.weight"), name);
  }
}

TEST_F(Convert, QuantisesInOneGoAsQuantizeDoes) {
  const ModelFolder folder("qwen2");
  ASSERT_EQ(convert(folder, {"--type", "q4_k_m"}).status, 0);
  const std::string at_once = test::read_text(out / "x.gguf");
  EXPECT_EQ(type_of("blk.0.attn_q.weight"), "Q5_0");  // rows of 32: as quantize falls back
  ASSERT_EQ(convert(folder, {}).status, 0);
  const auto again =
      test::quipu({"quantize", (out / "x.gguf").string(), (out / "y.gguf").string(), "q4_k_m"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(test::read_text(out / "y.gguf"), at_once);
}

TEST_F(Convert, LeavesNothingBehindWhenItFails) {
  const ModelFolder folder("qwen2");
  EXPECT_EQ(convert(folder, {"--type", "q9"}).status, 1);
  EXPECT_TRUE(fs::is_empty(out.path()));
  // One NaN in the last tensor that is encoded anew.
  std::string bytes = test::read_text(folder / "model.safetensors");
  bytes[bytes.size() - 1] = '\x7f';
  bytes[bytes.size() - 2] = '\xff';
  folder.write("model.safetensors", bytes);
  const auto done = convert(folder, {"--type", "f32"});
  EXPECT_EQ(done.status, 1);
  EXPECT_NE(done.err.find("NaN or infinity in row"), std::string::npos) << done.err;
  EXPECT_TRUE(fs::is_empty(out.path()));
  const auto no_folder = test::quipu({"convert", folder.path().string(), "-o", (out / "no/x.gguf").string()});
  EXPECT_EQ(no_folder.status, 1);
  EXPECT_NE(no_folder.err.find("does not exist"), std::string::npos) << no_folder.err;
}

TEST_F(Convert, AFolderRunsAndIsInspectedAsItsFile) {
  const ModelFolder folder("qwen2");
  ASSERT_EQ(convert(folder, {}).status, 0);
  const std::string path = folder.path().string(), file = (out / "x.gguf").string();
  const auto text = [&](const std::string& model, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"-m", model});
    const auto done = test::quipu(arguments);
    EXPECT_EQ(done.status, 0) << done.err;
    return done.out;
  };
  const std::vector<std::string> tokenize = {"tokenize", "--json", "the house"};
  EXPECT_EQ(text(path, tokenize), text(file, tokenize));
  const std::vector<std::string> run = {"run", "--raw",  "-p", "the house", "-n",
                                        "8",   "--temp", "0",  "-t",        "1"};
  EXPECT_EQ(text(path, run), text(file, run));
  const auto tensors = [&](const std::string& model) {
    const auto done = test::quipu({"inspect", model, "--json"});
    EXPECT_EQ(done.status, 0) << done.err;
    return boost::json::parse(done.out).at("tensors");
  };
  EXPECT_EQ(tensors(path), tensors(file));
  const auto bare = test::quipu({"tokenize", "-m", out.path().string(), "x"});
  EXPECT_EQ(bare.status, 1);
  EXPECT_NE(bare.err.find("a folder without config.json"), std::string::npos) << bare.err;
}

}  // namespace
}  // namespace quipu

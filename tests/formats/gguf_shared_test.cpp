// The shared collection of malformed, hostile and unusual files: each ends as its manifest says.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>

#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "gguf_shards.hpp"
#include "support.hpp"

namespace quipu::gguf {
namespace {

namespace fs = std::filesystem;

/// Words one of which the message of a refusal of this kind has to hold.
const std::map<std::string, std::vector<std::string>>& words_by_kind() {
  static const std::map<std::string, std::vector<std::string>> words{
      {"not_gguf", {"not a GGUF file"}},
      {"version", {"version"}},
      {"endianness", {"big-endian"}},
      {"truncated", {"cut off", "tensor name at offset 1938 is empty"}},  // the latter reads the padding
      {"limit", {"cut off", "limit"}},
      {"key", {"key"}},
      {"duplicate", {"duplicate"}},
      {"value_type", {"type"}},
      {"value", {"value"}},
      {"alignment", {"general.alignment"}},
      {"tensor_info", {"tensor"}},
      {"tensor_shape", {"shape"}},
      {"tensor_type", {"tensor type"}},
      {"tensor_data", {"its data"}},
      {"split", {"split"}},
  };
  return words;
}

bool holds_one_of(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (text.find(word) != std::string::npos) return true;
  return false;
}

TEST(GgufShared, EndsAsTheManifestSays) {
  const fs::path folder = test::shared_data() / "gguf-bad";
  QUIPU_REQUIRE_SHARED(folder / "manifest.json");
  const boost::json::value manifest = boost::json::parse(test::read_bytes(folder / "manifest.json"));
  int refused = 0, opened = 0;
  for (const auto& item : manifest.as_array()) {
    const auto& entry = item.as_object();
    const std::string name(entry.at("file").as_string()), stage(entry.at("stage").as_string()),
        outcome(entry.at("outcome").as_string());
    const std::string kind = entry.contains("kind") && entry.at("kind").is_string()
                                 ? std::string(entry.at("kind").as_string())
                                 : std::string();
    const bool container = stage == "header" || stage == "metadata" || stage == "tensors" || kind == "split";
    for (const auto mode : {MappedFile::Mode::map, MappedFile::Mode::read}) {
      std::string message;
      try {
        const File file = File::open(folder / "files" / name, {.mode = mode});
        for (const TensorView& tensor : file.tensors()) {  // every view lies inside the file
          const auto bytes = file.shards().at(0)->bytes();
          EXPECT_GE(tensor.data, bytes.data());
          EXPECT_LE(tensor.data + tensor.bytes(), bytes.data() + bytes.size());
        }
        ++opened;
      } catch (const Error& error) {
        message = error.message();
        ++refused;
      }
      if (container && outcome == "error") {
        EXPECT_NE(message.find(name), std::string::npos) << name << ": " << message;
        ASSERT_TRUE(words_by_kind().contains(kind)) << name << ": unknown kind " << kind;
        EXPECT_TRUE(holds_one_of(message, words_by_kind().at(kind)))
            << name << " (" << kind << "): " << message;
      } else if (!container || outcome == "loads") {
        EXPECT_EQ(message, "") << name;
      }
    }
  }
  EXPECT_GT(refused, 150) << "the collection has at least 80 files that the reader must refuse, in two modes";
  EXPECT_GT(opened, 200);
}

TEST(GgufShared, ReadsTheSharedVocabularies) {
  const fs::path folder = test::shared_data() / "tokenizers";
  QUIPU_REQUIRE_SHARED(folder);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const File file = File::open(entry.path());
    const auto* tokens = file.metadata().try_strings("tokenizer.ggml.tokens");
    ASSERT_NE(tokens, nullptr) << entry.path();
    EXPECT_GT(tokens->size(), 1000u) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 10);
}

}  // namespace
}  // namespace quipu::gguf

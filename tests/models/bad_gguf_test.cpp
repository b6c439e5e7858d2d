// Every file of the shared gguf-bad collection, opened as a model.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "golden.hpp"
#include "run_model.hpp"

namespace quipu {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Loads and, when that works, runs two tokens; the error's message, or nothing.
std::optional<std::string> open_as_model(const std::filesystem::path& path, MappedFile::Mode mode) {
  models::LoadOptions options;
  options.mode = mode;
  try {
    const auto model = models::Model::load(path, options);
    test::ModelRun run(model, backends::make_reference_backend(), 64, 8);
    run.push(std::vector<std::int32_t>{1, 5});
    return std::nullopt;
  } catch (const Error& e) {
    EXPECT_NE(e.code(), ErrorCode::internal) << path.filename() << ": " << e.message();
    return e.message();
  }
}

TEST(BadGguf, EveryFileEndsAsItsManifestSays) {
  const auto folder = test::shared_data() / "gguf-bad";
  QUIPU_REQUIRE_SHARED(folder);
  const auto manifest = boost::json::parse(read_text(folder / "manifest.json"));
  std::size_t checked = 0;
  for (const auto& item : manifest.as_array()) {
    const auto& entry = item.as_object();
    const std::string file(entry.at("file").as_string().c_str());
    const std::string outcome(entry.at("outcome").as_string().c_str());
    const std::string defect(entry.at("defect").as_string().c_str());
    const auto mapped = open_as_model(folder / "files" / file, MappedFile::Mode::map);
    const auto read = open_as_model(folder / "files" / file, MappedFile::Mode::read);
    EXPECT_EQ(mapped, read) << file;
    if (outcome == "error") {
      ASSERT_TRUE(mapped.has_value()) << file << " loads, but: " << defect;
      EXPECT_NE(mapped->find(file.substr(0, file.size() - 5)), std::string::npos)
          << "'" << *mapped << "' does not name " << file;
    }
    if (outcome == "loads") {
      EXPECT_FALSE(mapped.has_value()) << file << ": " << *mapped;
    }
    ++checked;
  }
  EXPECT_EQ(checked, 212u);
}

TEST(BadGguf, MessagesOfTheModelStageNameTheSetting) {
  const auto folder = test::shared_data() / "gguf-bad" / "files";
  QUIPU_REQUIRE_SHARED(folder);
  const std::pair<const char*, const char*> cases[] = {
      {"n-tensors-zero", "no tensors"},
      {"tensor-name-invalid-utf8", "missing"},
      {"tensor-shape-wrong", "blk.0.attn_q.weight"},
      {"tensor-shape-transposed", "token_embd.weight"},
      {"tensor-type-integer", "I32"},
      {"tensor-missing", "blk.0.ffn_down.weight"},
      {"tensor-norm-missing", "output_norm.weight"},
      {"architecture-missing", "general.architecture"},
      {"architecture-number", "general.architecture"},
      {"architecture-unknown", "frobnicate"},
      {"architecture-empty", "general.architecture"},
      {"block-count-missing", "llama.block_count"},
      {"block-count-0", "llama.block_count"},
      {"block-count-max", "llama.block_count"},
      {"block-count-2", "blk.1."},
      {"block-count-string", "llama.block_count"},
      {"block-count-float", "llama.block_count"},
      {"block-count-negative", "llama.block_count"},
      {"embedding-length-missing", "llama.embedding_length"},
      {"embedding-length-0", "llama.embedding_length"},
      {"embedding-length-15", "llama.embedding_length"},
      {"embedding-length-max", "llama.embedding_length"},
      {"head-count-missing", "llama.attention.head_count"},
      {"head-count-0", "llama.attention.head_count"},
      {"head-count-3", "llama.attention.head_count"},
      {"head-count-max", "llama.attention.head_count"},
      {"head-count-kv-0", "llama.attention.head_count_kv"},
      {"head-count-kv-3", "llama.attention.head_count_kv"},
      {"head-count-array-too-long", "llama.attention.head_count"},
      {"feed-forward-length-0", "llama.feed_forward_length"},
      {"context-length-0", "llama.context_length"},
      {"rms-eps-nan", "layer_norm_rms_epsilon"},
      {"rms-eps-negative", "layer_norm_rms_epsilon"},
      {"rms-eps-missing", "layer_norm_rms_epsilon"},
      {"rope-freq-nan", "llama.rope.freq_base"},
      {"rope-freq-inf", "llama.rope.freq_base"},
      {"rope-freq-0", "llama.rope.freq_base"},
      {"rope-freq-negative", "llama.rope.freq_base"},
      {"rope-dims-7", "llama.rope.dimension_count"},
      {"rope-dims-64", "llama.rope.dimension_count"},
      {"rope-scaling-unknown", "llama.rope.scaling.type"},
      {"rope-scaling-factor-nan", "llama.rope.scaling.factor"},
      {"experts-used-above-count", "llama.expert_used_count"},
      {"key-length-7", "llama.attention.key_length"},
      {"tokens-more-than-rows", "token_embd.weight"},
  };
  for (const auto& [name, part] : cases) {
    const auto message = open_as_model(folder / (std::string(name) + ".gguf"), MappedFile::Mode::map);
    ASSERT_TRUE(message.has_value()) << name;
    EXPECT_NE(message->find(part), std::string::npos) << name << ": " << *message;
  }
}

}  // namespace
}  // namespace quipu

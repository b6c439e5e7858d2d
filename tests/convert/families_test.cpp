// Every family against what llama.cpp's converter writes for the same folder: names, types, shapes and bytes
// of the tensors, and the metadata (tools/goldens/make_convert_goldens.py).
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <map>
#include <set>

#include "convert/convert.hpp"
#include "convert/encoder.hpp"
#include "convert/family.hpp"
#include "convert/mixes.hpp"
#include "convert_folder.hpp"
#include "core/checksum.hpp"
#include "core/error.hpp"

namespace quipu {
namespace {

namespace json = boost::json;

json::value parse(const std::string& text) { return json::parse(text); }

std::string hex(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

/// The value as the golden's JSON has it; whole numbers of any type are alike.
json::value to_json(const gguf::Value& value) {
  if (const auto* array = std::get_if<gguf::Array>(&value.data)) {
    json::array list;
    std::visit(
        [&](const auto& items) {
          for (const auto& item : items) {
            using Item = std::decay_t<decltype(item)>;
            if constexpr (!std::is_same_v<Item, gguf::Array>) {
              if (array->element_type == gguf::ValueType::boolean)
                list.emplace_back(json::value(item != Item{}));
              else
                list.emplace_back(json::value(item));
            }
          }
        },
        array->items);
    return list;
  }
  return std::visit(
      [](const auto& held) -> json::value {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, gguf::Array>)
          return nullptr;
        else
          return json::value(held);
      },
      value.data);
}

bool same(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) {
    const double x = a.to_number<double>(), y = b.to_number<double>();
    return x == y || static_cast<float>(x) == static_cast<float>(y);
  }
  if (a.is_array() && b.is_array()) {
    if (a.get_array().size() != b.get_array().size()) return false;
    for (std::size_t i = 0; i < a.get_array().size(); ++i)
      if (!same(a.get_array()[i], b.get_array()[i])) return false;
    return true;
  }
  return a == b;
}

/// Keys that differ on purpose.
bool is_exempt(const std::string& model, const std::string& key) {
  static const std::set<std::pair<std::string, std::string>> exempt = {
      // The configuration's factor replaces the paper's temperature; both programs multiply by attn_factor.
      {"llama_biases", "llama.rope.scaling.yarn_attn_factor"},
      // Fixed ids of the published tokenizers, written whatever the vocabulary holds.
      {"gemma", "tokenizer.ggml.eot_token_id"},
      {"falcon", "falcon.context_length"},  // 2048 whatever config.json says
      {"hunyuan-dense", "tokenizer.ggml.eos_token_id"},
      {"gemma3n", "gemma3n.activation_sparsity_scale"},  // computed there in float32: the last bits
      {"nemotron", "tokenizer.ggml.unknown_token_id"},
      {"nemotron", "tokenizer.ggml.padding_token_id"},
      {"nemotron", "nemotron.rope.scaling.type"},  // "none", which an absent key means too
      // The fixed alpha is asked for with heads of 128 only; the logits tell that the base is right.
      {"hunyuan-moe", "hunyuan-moe.rope.freq_base"},
      // rms_norm_eps of the configuration, where the other program reads an older name.
      {"chatglm", "chatglm.attention.layer_norm_rms_epsilon"},
      // The configuration states it; the other program computes one from the contexts.
      {"phimoe", "phimoe.rope.scaling.attn_factor"},
  };
  // Blocks that predict further tokens are left out.
  if (key.ends_with(".nextn_predict_layers")) return true;
  return exempt.contains({model, key});
}

class Families : public ::testing::TestWithParam<std::string> {
 protected:
  const json::object& expected() {
    if (expected_.is_null())
      expected_ = parse(test::read_text(test::convert_golden(GetParam()) / "expected.json"));
    return expected_.get_object();
  }
  json::value expected_;
};

TEST_P(Families, GiveTheTensorsOfLlamaCppsConverter) {
  const test::ModelFolder folder(GetParam());
  const convert::Model model = convert::Model::open(folder.path());
  const auto infos = model.tensor_infos();
  const auto plan = convert::plan_types(infos, model.metadata(), *convert::find_mix("BF16"));
  convert::Encoder encoder(1);
  const json::object& tensors = expected().at("tensors").get_object();
  // The head of BERT's cross-encoders reads the pooler, which llama.cpp's converter leaves out.
  const auto is_pooler = [&](const std::string& name) {
    return GetParam() == "bert_rank" && name.starts_with("cls.") && !name.starts_with("cls.output");
  };
  // An unscaled output layer that equals the embedding is written, so that readers see that it is not scaled.
  const auto is_copy = [&](const std::string& name) {
    return GetParam() == "umt5" && name == "output.weight";
  };
  EXPECT_EQ(infos.size(), tensors.size() + (GetParam() == "bert_rank" ? 2 : GetParam() == "umt5" ? 1 : 0));
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (is_pooler(infos[i].name) || is_copy(infos[i].name)) continue;
    // MXFP4 stays what it is there, whatever type is asked for.
    DType dtype = infos[i].dtype == DType::mxfp4 ? DType::mxfp4 : plan[i].dtype;
    if (infos[i].name.ends_with("attn_rel_b.weight")) {  // small, and stays F32 here
      EXPECT_EQ(dtype, DType::f32);
      dtype = DType::bf16;
    }
    // A matrix of one row counts as a vector here, and stays F32.
    const bool is_row = infos[i].name == "cls.output.weight" && infos[i].shape[1] == 1;
    const json::value* found = tensors.if_contains(infos[i].name);
    ASSERT_NE(found, nullptr) << infos[i].name;
    const json::object& golden = found->get_object();
    if (!is_row) {
      EXPECT_EQ(to_string(dtype), std::string_view(golden.at("type").get_string())) << infos[i].name;
    }
    std::array<std::int64_t, 4> shape{1, 1, 1, 1};
    std::size_t rank = 0;
    for (const json::value& extent : golden.at("shape").get_array()) shape[rank++] = extent.get_int64();
    EXPECT_EQ(infos[i].shape, shape) << infos[i].name;
    std::vector<std::byte> bytes;
    encoder.encode(model.tensors()[i], dtype, "test", [&](std::span<const std::byte> part) {
      bytes.insert(bytes.end(), part.begin(), part.end());
    });
    if (const json::value* values = golden.if_contains("values")) {
      const auto* own = reinterpret_cast<const float*>(bytes.data());
      for (std::size_t k = 0; k < values->get_array().size(); ++k)
        EXPECT_NEAR(own[k], values->get_array()[k].to_number<double>(), 1e-5 * std::fabs(own[k]))
            << infos[i].name << " " << k;
    } else if (!is_row) {
      EXPECT_EQ(hex(xxh64(bytes)), std::string_view(golden.at("xxh64").get_string())) << infos[i].name;
    }
  }
}

TEST(FamilyTables, Mxfp4IsReadAsItsBlocksDecode) {
  const test::ModelFolder folder("gpt-oss-mxfp4");
  const convert::Model model = convert::Model::open(folder.path());
  std::size_t tensors = 0;
  for (const convert::TensorSource& tensor : model.tensors()) {
    if (tensor.info.dtype != DType::mxfp4) continue;
    ++tensors;
    const auto width = static_cast<std::size_t>(tensor.width());
    const DTypeInfo& type = info(DType::mxfp4);
    std::vector<std::byte> packed(row_bytes(DType::mxfp4, width));
    std::vector<float> read(width), decoded(width);
    for (std::int64_t row = 0; row < tensor.row_count(); ++row) {
      ASSERT_TRUE(tensor.copy_row(row, packed.data()));
      type.decode(packed.data(), decoded.data(), width);
      tensor.read_row(row, read);
      ASSERT_EQ(read, decoded) << tensor.info.name << " " << row;
    }
  }
  EXPECT_EQ(tensors, 9U);
}

TEST_P(Families, GiveTheMetadataOfLlamaCppsConverter) {
  const test::ModelFolder folder(GetParam());
  const convert::Model model = convert::Model::open(folder.path());
  for (const auto& [name, value] : expected().at("metadata").get_object()) {
    const std::string key(name);
    if (is_exempt(GetParam(), key)) continue;
    const gguf::Value* own = model.metadata().find(key);
    ASSERT_NE(own, nullptr) << key;
    EXPECT_TRUE(same(to_json(*own), value)) << key << " is " << to_json(*own) << ", expected " << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Families, ::testing::ValuesIn(test::golden_models()),
                         [](const auto& info) { return test::plain_name(info.param); });

TEST(FamilyTables, EveryFamilyHasAGolden) {
  std::set<std::string, std::less<>> golden;
  for (const std::string& name : test::golden_models()) {
    const json::value config = parse(test::read_text(test::convert_golden(name) / "config.json"));
    const json::value architecture = config.get_object().at("architectures").get_array().front();
    const convert::Family* family = convert::find_family(std::string_view(architecture.get_string()));
    ASSERT_NE(family, nullptr) << name;
    golden.insert(std::string(family->name));
  }
  for (const convert::Family& family : convert::families())
    EXPECT_TRUE(golden.contains(family.name)) << family.name;
}

}  // namespace
}  // namespace quipu

// Adapters and control vectors against the logits of PEFT and of transformers with hooks
// (tools/goldens/make_adapter_goldens.py).
#include "models/adapter.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "convert/peft.hpp"
#include "golden.hpp"
#include "run_model.hpp"
#include "temporary_folder.hpp"

namespace quipu {
namespace {

namespace fs = std::filesystem;
using models::Adapter;
using models::Model;
using test::Golden;
using test::ModelRun;

fs::path file(const std::string& name) { return test::golden_path("adapters") / name; }
std::shared_ptr<const Model> base(const std::string& name) {
  return Model::load(test::golden_path(name + ".gguf"));
}
const Golden& golden() {
  static const Golden golden(file("golden.gguf"));
  return golden;
}

struct Use {
  std::string adapter;
  float scale;
};
struct Case {
  const char* name;
  const char* base;
  std::vector<Use> uses;
};

/// `suffix`: "" for the folders that PEFT saved, ".gguf" for what llama.cpp made of them.
ModelRun adapted(const Case& c, const std::string& suffix, bool cpu) {
  const auto model = base(c.base);
  std::vector<std::shared_ptr<const Adapter>> adapters;
  std::vector<float> scales;
  for (const Use& use : c.uses) {
    adapters.push_back(Adapter::load(file(use.adapter + suffix), *model));
    scales.push_back(use.scale);
  }
  // Views into the adapters live in the graph: kept for the whole test program.
  static std::vector<std::shared_ptr<const Adapter>> kept;
  kept.insert(kept.end(), adapters.begin(), adapters.end());
  return ModelRun(model, models::with_adapters(model->build_graph(), *model, adapters, nullptr), scales,
                  cpu ? backends::make_cpu_backend() : backends::make_reference_backend(), 64, 64);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"llama_a", "llama_gqa", {{"llama_a", 1}}},
      {"llama_b", "llama_gqa", {{"llama_b", 1}}},
      {"llama_a_half", "llama_gqa", {{"llama_a", 0.5F}}},
      {"llama_both", "llama_gqa", {{"llama_a", 0.5F}, {"llama_b", -1.5F}}},
      {"llama_embed", "llama_gqa", {{"llama_embed", 1}}},
      {"gpt2", "gpt2", {{"gpt2", 1}}},
      {"phi3", "phi3", {{"phi3", 1}}},
      {"olmoe", "olmoe", {{"olmoe", 1}}},
  };
  return all;
}

void expect_rows_alike(const std::vector<float>& found, const std::vector<float>& expected, std::size_t rows,
                       const std::string& name) {
  ASSERT_EQ(found.size(), expected.size()) << name;
  const std::size_t vocab = expected.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto f = std::span(found).subspan(row * vocab, vocab);
    const auto e = std::span(expected).subspan(row * vocab, vocab);
    EXPECT_GE(test::cosine(f, e), 0.9999) << name << ", position " << row;
  }
}

TEST(Adapter, LogitsAreThoseOfPeft) {
  for (const Case& c : cases()) {
    const auto tokens = golden().ints(std::string(c.base) + ".tokens");
    const auto expected = golden().floats(c.name);
    for (const std::string suffix : {"", ".gguf"}) {
      const bool exists = std::all_of(c.uses.begin(), c.uses.end(),
                                      [&](const Use& use) { return fs::exists(file(use.adapter + suffix)); });
      if (!exists) continue;  // the GGUF format has one alpha and no rslora
      const std::string name = c.name + suffix;
      EXPECT_LE(test::relative_error(adapted(c, suffix, false).push(tokens), expected), 1e-4) << name;
      const auto found = adapted(c, suffix, true).push(tokens);
      expect_rows_alike(found, expected, tokens.size(), name);
      const std::size_t chunk = c.uses.size() > 1 ? 1 : 7;
      EXPECT_EQ(adapted(c, suffix, true).push_in_chunks(tokens, chunk), found) << name;
    }
  }
}

TEST(Adapter, AFactorOfZeroGivesTheBytesOfTheModelAlone) {
  const Case c = cases().front();
  const auto tokens = golden().ints("llama_gqa.tokens");
  ModelRun plain(base("llama_gqa"), backends::make_cpu_backend(), 64, 64);
  const auto expected = plain.push(tokens);
  EXPECT_EQ(adapted({c.name, c.base, {{"llama_a", 0}}}, "", true).push(tokens), expected);
  EXPECT_NE(adapted(c, "", true).push(tokens), expected);
}

TEST(Adapter, AControlVectorSteersEveryBlockItNames) {
  const auto model = base("llama_odd_sizes");
  const auto tokens = golden().ints("llama_odd_sizes.tokens");
  const models::ControlVector::Part half[] = {{file("control.gguf"), 0.5F}};
  const models::ControlVector::Part parts[] = {{file("control.gguf"), 1}, {file("control.gguf"), -0.5F}};
  for (const bool cpu : {false, true}) {
    const auto logits = [&](const std::shared_ptr<const models::ControlVector>& control) {
      ModelRun run(model, models::with_adapters(model->build_graph(), *model, {}, control.get()), {},
                   cpu ? backends::make_cpu_backend() : backends::make_reference_backend(), 64, 64);
      return run.push(tokens);
    };
    const auto whole = models::ControlVector::load(half, *model);
    if (!cpu) {
      EXPECT_LE(test::relative_error(logits(whole), golden().floats("control")), 1e-4);
    }
    expect_rows_alike(logits(whole), golden().floats("control"), tokens.size(), "control");
    EXPECT_EQ(logits(models::ControlVector::load(parts, *model)), logits(whole));
    // Blocks outside of the range are left alone.
    ModelRun plain(model, cpu ? backends::make_cpu_backend() : backends::make_reference_backend(), 64, 64);
    EXPECT_EQ(logits(models::ControlVector::load(half, *model, 0, 0)), plain.push(tokens));
    EXPECT_NE(logits(models::ControlVector::load(half, *model, 2, 2)), plain.push(tokens));
  }
}

// ---- refusals ----

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was refused";
}

TEST(Adapter, OneOfAnotherModelIsRefusedByTheTensor) {
  EXPECT_NE(
      refusal([] { Adapter::load(file("llama_a.gguf"), *base("llama_odd_sizes")); })
          .find(
              "tensor blk.0.attn_k.weight.lora_a is 32x4, expected 42x4: blk.0.attn_k.weight of the model is "
              "42x10"),
      std::string::npos)
      << refusal([] { Adapter::load(file("llama_a.gguf"), *base("llama_odd_sizes")); });
  EXPECT_NE(refusal([] {
              Adapter::load(file("llama_a"), *base("llama_odd_sizes"));
            }).find("tensor blk.0.attn_k.weight.lora_a is 32x4, expected 42x4"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              Adapter::load(file("llama_a.gguf"), *base("gpt2"));
            }).find("general.architecture is \"llama\", expected \"gpt2\""),
            std::string::npos);
  EXPECT_NE(refusal([] {
              Adapter::load(test::golden_path("llama_gqa.gguf"), *base("llama_gqa"));
            }).find("general.type is missing, expected \"adapter\""),
            std::string::npos);
}

/// The adapter with one thing changed.
std::string with_change(const std::function<void(gguf::Metadata&, std::vector<TensorView>&)>& change) {
  const auto source = gguf::File::open(file("llama_a.gguf"));
  gguf::Metadata metadata = source.metadata();
  std::vector<TensorView> tensors = source.tensors();
  change(metadata, tensors);
  const test::TemporaryFolder folder;
  gguf::write(folder / "changed.gguf", metadata, tensors);
  return refusal([&] { Adapter::load(folder / "changed.gguf", *base("llama_gqa")); });
}

TEST(Adapter, BadFilesAreRefused) {
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(with_change([](auto& metadata, auto&) {
           metadata.set("adapter.alora.invocation_tokens", gguf::Value::of_u32(1));
         }),
         "aLoRA");
  expect(with_change(
             [](auto& metadata, auto&) { metadata.set("adapter.lora.alpha", gguf::Value::of_string("8")); }),
         "adapter.lora.alpha");
  expect(with_change([](auto&, auto& tensors) { tensors.pop_back(); }), "stands alone");
  expect(with_change([](auto&, auto& tensors) { tensors[0].name = "blk.0.attn_q.weight"; }),
         "is no part of a LoRA");
  expect(with_change([](auto&, auto& tensors) {
           for (TensorView& tensor : tensors)
             if (tensor.name.starts_with("blk.0.attn_q.weight")) tensor.name.replace(0, 12, "blk.9.attn_q");
         }),
         "which the model has not");
  expect(with_change([](auto&, auto& tensors) { tensors.clear(); }), "no tensors");
}

std::string peft_refusal(const std::string& config) {
  const auto model = base("llama_gqa");
  const auto tensors = safetensors::File::open(file("llama_a") / "adapter_model.safetensors");
  return refusal([&] {
    Adapter::from_file(
        convert::read_peft(convert::JsonFile::parse(config, "adapter_config.json"), tensors, model->file()),
        *model);
  });
}

TEST(Adapter, PeftSettingsThatAreNoPlainLoraAreRefused) {
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  EXPECT_EQ(peft_refusal(R"({"peft_type":"LORA","r":4,"lora_alpha":8})"), "nothing was refused");
  expect(peft_refusal(R"({"peft_type":"LOHA","r":4})"), "peft_type");
  expect(peft_refusal(R"({"r":4,"use_dora":true})"), "DoRA");
  expect(peft_refusal(R"({"r":4,"bias":"all"})"), "bias");
  expect(peft_refusal(R"({"r":0})"), "r is 0, expected at least 1");
  expect(peft_refusal(R"({"r":4,"alpha_pattern":{"^x":3}})"), "alpha_pattern");
  const test::TemporaryFolder folder;
  expect(refusal([&] { Adapter::load(folder.path(), *base("llama_gqa")); }), "adapter_config.json");
  folder.write("adapter_config.json", "{}");
  folder.write("adapter_model.bin", "PK");
  expect(refusal([&] { Adapter::load(folder.path(), *base("llama_gqa")); }), "pickled");
}

TEST(Adapter, AControlVectorOfAnotherModelIsRefused) {
  const models::ControlVector::Part parts[] = {{file("control.gguf"), 1}};
  EXPECT_NE(refusal([&] {
              models::ControlVector::load(parts, *base("llama_gqa"));
            }).find("direction.1 is F32 42, expected F32 32"),
            std::string::npos)
      << refusal([&] { models::ControlVector::load(parts, *base("llama_gqa")); });
  EXPECT_NE(refusal([&] {
              models::ControlVector::load(parts, *base("llama_odd_sizes"), 2, 9);
            }).find("--control-vector-layer-range is 2 9"),
            std::string::npos);
}

}  // namespace
}  // namespace quipu

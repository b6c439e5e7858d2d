#include "adapter_flags.hpp"

#include "cli.hpp"
#include "core/error.hpp"
#include "models/adapter.hpp"

namespace quipu::app {

void AdapterFlags::add(CLI::App& app, bool serving) {
  text_list_option(app, "--lora", lora,
                   "LoRA adapter: a GGUF file or a PEFT folder; may be given several times");
  const auto scaled = [&](const std::string& name, std::vector<Scaled>& target, const std::string& help) {
    pair_option(app, name, {"FILE", "SCALE"}, help,
                [&target](const std::string& file, const std::string& scale) {
                  const auto number = parse_number(scale);
                  if (!number || *number < -1e6 || *number > 1e6)
                    throw std::string("expected a file and a number from -1000000 to 1000000");
                  target.emplace_back(file, *number);
                });
  };
  scaled("--lora-scaled", lora_scaled, "the same with a scale");
  if (serving)
    flag_option(app, "--lora-init-without-apply", without_apply,
                "adapters have scale 0 until a request or /lora-adapters says otherwise");
  text_list_option(app, "--control-vector", control, "control vector: a GGUF file; several are added up");
  scaled("--control-vector-scaled", control_scaled, "the same with a scale");
  pair_option(app, "--control-vector-layer-range", {"FIRST", "LAST"},
              "blocks that are steered (default: all)",
              [this](const std::string& first, const std::string& last) {
                const auto from = parse_integer(first), to = parse_integer(last);
                if (!from || !to || *from < 0 || *to < *from)
                  throw std::string("expected the numbers of a first and a last block");
                layer_range = {*from, *to};
              });
  group_options(app, "Adapters");
}

std::vector<float> AdapterFlags::load(const models::Model& model, engine::EngineOptions& options) const {
  std::vector<float> scales;
  const auto adapter = [&](const std::string& path, double scale) {
    options.adapters.push_back(models::Adapter::load(path, model));
    scales.push_back(without_apply ? 0 : static_cast<float>(scale));
  };
  for (const std::string& path : lora) adapter(path, 1);
  for (const auto& [path, scale] : lora_scaled) adapter(path, scale);
  std::vector<models::ControlVector::Part> parts;
  for (const std::string& path : control) parts.push_back({path, 1});
  for (const auto& [path, scale] : control_scaled) parts.push_back({path, static_cast<float>(scale)});
  if (parts.empty() && !layer_range.empty())
    fail(ErrorCode::invalid_argument,
         "--control-vector-layer-range is without effect: there is no --control-vector");
  if (!parts.empty())
    options.control = models::ControlVector::load(parts, model, layer_range.empty() ? -1 : layer_range[0],
                                                  layer_range.empty() ? -1 : layer_range[1]);
  return scales;
}

}  // namespace quipu::app

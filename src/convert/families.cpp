// The families there are: a function of each file in families/.
#include <algorithm>

#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"

namespace quipu::convert {

std::span<const Family> families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list;
    for (const auto group : {llama_like, gemma_like, gemma_per_layer, sandwich_normed, fused, layer_normed,
                             mixtures, ling, llama4, t5, encoders}) {
      std::vector<Family> part = group();
      std::move(part.begin(), part.end(), std::back_inserter(list));
    }
    return list;
  }();
  return all;
}

const Family* find_family(std::string_view architecture_class) {
  const Family* found = nullptr;
  for (const Family& family : families())
    for_each_alternative(family.classes, [&](std::string_view name) {
      if (name == architecture_class) found = &family;
    });
  return found;
}

std::vector<std::string_view> known_classes() {
  std::vector<std::string_view> names;
  for (const Family& family : families())
    for_each_alternative(family.classes, [&](std::string_view name) { names.push_back(name); });
  return names;
}

void add_window_pattern(Job& job, std::size_t period) {
  const auto types = job.config.try_texts("layer_types");
  if (!types || !job.config.has("sliding_window")) return;
  const auto layers = static_cast<std::size_t>(job.sizes[Dim::layers]);
  if (types->size() != layers)
    job.config.reject("layer_types", std::to_string(types->size()) + " entries",
                      "one for each of the " + std::to_string(layers) + " layers");
  std::vector<bool> windowed;
  bool is_usual = period != 0;
  for (const std::string& type : *types) {
    if (type != "sliding_attention" && type != "full_attention")
      job.config.reject("layer_types", "\"" + type + "\" in it", "sliding_attention and full_attention");
    windowed.push_back(type == "sliding_attention");
    is_usual = is_usual && windowed.back() == (windowed.size() % period != 0);
  }
  if (is_usual) return;
  job.set_flags("attention.sliding_window_pattern", windowed);
}

}  // namespace quipu::convert

// The architectures there are, one row each: the file's name for it, and the function in its own file.
#include "models/model.hpp"

// A row declares the function and enters it into the table.
#define QUIPU_ARCHITECTURES(ROW) \
  ROW("llama", build_llama)      \
  ROW("qwen2", build_qwen2)      \
  ROW("qwen3", build_qwen3)

namespace quipu::models {

#define QUIPU_DECLARE(name, build) graph::Graph build(const Hyperparameters&, const WeightSource&);
QUIPU_ARCHITECTURES(QUIPU_DECLARE)
#undef QUIPU_DECLARE

namespace {
#define QUIPU_ENTER(name, build) Architecture{name, build},
constexpr Architecture kArchitectures[] = {QUIPU_ARCHITECTURES(QUIPU_ENTER)};
#undef QUIPU_ENTER
}  // namespace

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

std::vector<std::string_view> architecture_names() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

}  // namespace quipu::models

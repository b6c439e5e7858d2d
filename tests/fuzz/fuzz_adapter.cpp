// Any bytes given as an adapter or a control vector are one that fits the model, or an Error. The first byte
// chooses: a GGUF adapter, a GGUF control vector, or a PEFT folder (the configuration, a zero byte, the
// tensors).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "convert/peft.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "models/adapter.hpp"
#include "support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quipu;
  log::set_level(log::Level::off);
  static const auto model =
      models::Model::load(test::source_path("tests/goldens/models/llama_gqa.gguf").string());
  if (size == 0) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  try {
    if (data[0] % 3 == 0) {
      models::Adapter::from_file(gguf::File::parse(bytes, "fuzz"), *model);
    } else if (data[0] % 3 == 1) {
      models::ControlVector control;
      control.add(gguf::File::parse(bytes, "fuzz"), 0.5F, model->hyperparameters());
      models::with_adapters(model->build_graph(), *model, {}, &control);
    } else {
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const std::size_t end = std::min(text.find('\0'), text.size());
      const auto config = convert::JsonFile::parse(text.substr(0, end), "fuzz");
      const auto rest = bytes.subspan(std::min(end + 1, bytes.size()));
      const auto tensors = safetensors::File::parse(rest, "fuzz");
      models::Adapter::from_file(convert::read_peft(config, tensors, model->file()), *model);
    }
  } catch (const Error& error) {
    if (error.message().empty()) std::abort();
  }
  return 0;
}

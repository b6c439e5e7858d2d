// Any bytes given to the safetensors reader are a file or an Error, and every tensor's bytes can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/error.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace {

using namespace quipu;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const auto file = safetensors::File::parse(bytes, "fuzz");
    unsigned sum = 0;
    std::size_t total = 0;
    for (const safetensors::Tensor& tensor : file.tensors()) {
      require(file.find(tensor.name) == &tensor);
      require(tensor.bytes.size() == static_cast<std::size_t>(tensor.elements()) * tensor.type->bytes);
      if (tensor.bytes.empty()) continue;
      require(tensor.bytes.data() >= bytes.data());
      require(tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
      total += tensor.bytes.size();
      sum += std::to_integer<unsigned>(tensor.bytes.front()) + std::to_integer<unsigned>(tensor.bytes.back());
    }
    require(total <= size);  // no two share bytes
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const Error& error) {
    require(!error.message().empty());
  }
  return 0;
}

// Any bytes given to the GGUF reader are a file or an Error, and every tensor's bytes can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"

namespace {

using namespace quipu;

void require(bool condition) {
  if (!condition) std::abort();
}

void visit(const gguf::File& file, std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const TensorView& tensor : file.tensors()) {
    require(file.find_tensor(tensor.name) == &tensor);
    require(tensor.elements() > 0 && tensor.bytes() > 0);
    require(tensor.data >= bytes.data() && tensor.data + tensor.bytes() <= bytes.data() + bytes.size());
    sum += std::to_integer<unsigned>(tensor.data[0]) +
           std::to_integer<unsigned>(tensor.data[tensor.bytes() - 1]);
    (void)shape_text(tensor);
  }
  const gguf::Metadata& metadata = file.metadata();
  for (const gguf::Metadata::Entry& entry : metadata.entries()) {
    require(metadata.find(entry.key) == &entry.value);
    try {
      if (const auto* array = std::get_if<gguf::Array>(&entry.value.data)) {
        sum += static_cast<unsigned>(array->size());
        if (array->element_type == gguf::ValueType::string) {
          for (const std::string_view item : *metadata.try_strings(entry.key))
            sum += static_cast<unsigned>(item.size());
        } else if (array->element_type == gguf::ValueType::f32 ||
                   array->element_type == gguf::ValueType::f64) {
          metadata.try_floats(entry.key);
        } else {
          metadata.try_ints(entry.key);
        }
      } else {
        metadata.get_int(entry.key);
      }
    } catch (const Error&) {
    }
  }
  // Keeps the reads above from being removed.
  volatile unsigned sink = sum;
  (void)sink;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    visit(gguf::File::parse(bytes, "fuzz"), bytes);
  } catch (const Error& error) {
    require(!error.message().empty());
  }
  return 0;
}

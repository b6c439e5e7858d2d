// Tensors from one type into another, by chunks of rows on several threads, in bounded memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convert/tensor_source.hpp"
#include "core/threads.hpp"
#include "formats/gguf/gguf.hpp"

namespace quipu::convert {

class Encoder {
 public:
  explicit Encoder(int threads) : pool_(threads), rows_(static_cast<std::size_t>(threads)) {}

  /// Called with bytes of the result, in order.
  using Sink = std::function<void(std::span<const std::byte>)>;
  /// Called with the bytes of the source that are done.
  using Progress = std::function<void(std::uint64_t)>;
  /// The tensor in type `to`, in order; the bytes are the same for any number of threads. Throws `Error`
  /// (bad_file) when a value that is encoded anew is NaN or infinite; `file` names the source.
  void encode(const TensorSource& source, DType to, const std::string& file, const Sink& sink,
              const Progress& progress = {});

 private:
  ThreadPool pool_;
  std::vector<std::vector<float>> rows_;  // one a thread
  std::vector<std::byte> out_;
};

/// Throws `Error` (unsupported) unless the tensor can be brought from its type to `to`.
void check_codec(const gguf::TensorInfo& tensor, DType to, const std::string& file);

}  // namespace quipu::convert

// `quipu quantize IN OUT TYPE`: the same model in another type, tensor by tensor.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/threads.hpp"
#include "formats/gguf/gguf.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "quantize_types.hpp"

namespace quipu::app {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{32} << 20;  // encoded bytes held at once

struct QuantizeFlags {
  std::string in, out, type;
  bool allow_requantize = false;
  std::int64_t threads = 0;
};

bool is_plain_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

/// Everything that can be refused before the work begins.
void check_codecs(const gguf::File& file, const std::vector<TensorPlan>& plan, const QuantizeFlags& flags) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const TensorView& tensor = file.tensors()[i];
    if (plan[i].dtype == tensor.dtype) continue;  // copied
    if (info(tensor.dtype).decode == nullptr)
      fail(ErrorCode::unsupported, "{}: tensor \"{}\": quipu cannot decode {} yet",
           printable(file.name(), 1000), printable(tensor.name), to_string(tensor.dtype));
    if (info(plan[i].dtype).encode == nullptr)
      fail(ErrorCode::unsupported, "quipu cannot encode {} yet", to_string(plan[i].dtype));
    if (!is_plain_float(tensor.dtype) && !is_plain_float(plan[i].dtype) && !flags.allow_requantize)
      fail(ErrorCode::invalid_argument,
           "{}: tensor \"{}\" is {} already; quantising it again loses quality: start from F16, BF16 or F32, "
           "or "
           "give --allow-requantize",
           printable(file.name(), 1000), printable(tensor.name), to_string(tensor.dtype));
  }
}

/// One warning for each pair of types: how many tensors, and the first of them.
void tell_fallbacks(const gguf::File& file, const std::vector<TensorPlan>& plan) {
  std::map<std::pair<DType, DType>, std::vector<std::size_t>> changed;
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (plan[i].wanted) changed[{*plan[i].wanted, plan[i].dtype}].push_back(i);
  for (const auto& [types, tensors] : changed) {
    const TensorView& first = file.tensors()[tensors.front()];
    write_stderr(fmt::format("{} {} {} instead of {}: rows that are no multiple of {} (first: {}, {})\n",
                             tensors.size(), tensors.size() == 1 ? "tensor gets" : "tensors get",
                             to_string(types.second), to_string(types.first), info(types.first).block_size,
                             printable(first.name), shape_text(first)));
  }
}

/// Decodes and encodes tensors by chunks of rows, all threads on one chunk.
class Converter {
 public:
  explicit Converter(int threads) : pool_(threads), rows_(static_cast<std::size_t>(threads)) {}

  /// Appends the tensor in type `to`; calls `progress` with source bytes done.
  template <class Progress>
  void convert(const TensorView& tensor, DType to, gguf::Writer& writer, const std::string& file,
               const Progress& progress) {
    const auto width = static_cast<std::size_t>(tensor.width());
    const auto rows = static_cast<std::size_t>(tensor.rows());
    const std::size_t in_bytes = tensor.row_bytes(), out_bytes = row_bytes(to, width);
    const std::size_t chunk = std::clamp<std::size_t>(kChunkBytes / out_bytes, 1, rows);
    for (std::size_t first = 0; first < rows; first += chunk) {
      const std::size_t count = std::min(chunk, rows - first);
      out_.resize(count * out_bytes);
      std::atomic<std::size_t> bad_row{SIZE_MAX};
      pool_.run([&](int thread) {
        std::vector<float>& row = rows_[static_cast<std::size_t>(thread)];
        row.resize(width);
        const Range own = share(count, thread, pool_.size());
        for (std::size_t r = own.begin; r < own.end; ++r) {
          info(tensor.dtype).decode(tensor.data + (first + r) * in_bytes, row.data(), width);
          if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
            std::size_t seen = bad_row.load();
            while (first + r < seen && !bad_row.compare_exchange_weak(seen, first + r)) {
            }
            return;
          }
          info(to).encode(row.data(), out_.data() + r * out_bytes, width);
        }
      });
      if (bad_row.load() != SIZE_MAX)
        fail(ErrorCode::bad_file, "{}: tensor \"{}\" holds NaN or infinity in row {}", printable(file, 1000),
             printable(tensor.name), bad_row.load());
      writer.append(out_);
      progress((first + count) * in_bytes);
    }
  }

 private:
  ThreadPool pool_;
  std::vector<std::vector<float>> rows_;  // one a thread
  std::vector<std::byte> out_;
};

gguf::Metadata target_metadata(const gguf::File& file, const Mix& mix) {
  gguf::Metadata result;
  result.set_origin(file.name());
  for (const auto& entry : file.metadata().entries())
    if (!entry.key.starts_with("split.")) result.add(entry.key, entry.value);  // the result is one file
  result.set("general.file_type", gguf::Value::of_u32(mix.file_type));
  if (!is_plain_float(mix.base)) result.set("general.quantization_version", gguf::Value::of_u32(2));
  return result;
}

void quantize(const QuantizeFlags& flags) {
  const Mix* mix = find_mix(flags.type);
  if (mix == nullptr)
    fail(ErrorCode::invalid_argument, "unknown type \"{}\": expected one of {}", printable(flags.type),
         mix_names());
  const gguf::File file = gguf::File::open(resolve_model(flags.in));
  const std::vector<TensorPlan> plan = plan_types(file, *mix);
  check_codecs(file, plan, flags);
  tell_fallbacks(file, plan);

  std::vector<gguf::TensorInfo> infos;
  std::uint64_t source_bytes = 0, target_bytes = 0, elements = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const TensorView& tensor = file.tensors()[i];
    infos.push_back({tensor.name, plan[i].dtype, tensor.shape});
    source_bytes += tensor.bytes();
    target_bytes += row_bytes(plan[i].dtype, static_cast<std::size_t>(tensor.width())) *
                    static_cast<std::uint64_t>(tensor.rows());
    elements += static_cast<std::uint64_t>(tensor.elements());
  }
  gguf::Writer writer(flags.out, target_metadata(file, *mix), std::move(infos));
  Converter converter(flags.threads > 0 ? static_cast<int>(flags.threads) : default_threads().count);
  {
    ProgressBar bar("quantising", source_bytes);
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const TensorView& tensor = file.tensors()[i];
      if (plan[i].dtype == tensor.dtype)
        writer.append({tensor.data, tensor.bytes()});
      else
        converter.convert(tensor, plan[i].dtype, writer, file.name(),
                          [&](std::uint64_t part) { bar.update(done + part); });
      done += tensor.bytes();
      bar.update(done);
    }
    writer.finish();
  }
  write_stdout(fmt::format(
      "{}: {}, {} tensors, {} from {}, {:.2f} bits each\n", printable(flags.out, 1000), mix->name,
      plan.size(), size_text(target_bytes), size_text(source_bytes),
      elements == 0 ? 0.0 : 8.0 * static_cast<double>(target_bytes) / static_cast<double>(elements)));
}

}  // namespace

void add_quantize(CLI::App& app) {
  CLI::App& command = add_command(app, "quantize", "Write a model in another type");
  auto flags = std::make_shared<QuantizeFlags>();
  argument(command, "in", flags->in, "a GGUF file, a catalogue name or hf:org/repo[:file]");
  argument(command, "out", flags->out, "the file to write");
  argument(command, "type", flags->type, mix_names());
  flag_option(command, "--allow-requantize", flags->allow_requantize,
              "quantise tensors that are quantised already, at a loss");
  integer_option(command, "-t,--threads", flags->threads,
                 {0, 4096, "0: what the machine and its limits give"}, "threads");
  on_run(command, [flags] { quantize(*flags); });
}

}  // namespace quipu::app

// `quipu quantize IN OUT TYPE`: the same model in another type, tensor by tensor.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "convert/encoder.hpp"
#include "convert/mixes.hpp"
#include "core/error.hpp"
#include "core/threads.hpp"
#include "formats/gguf/gguf.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "type_report.hpp"

namespace quipu::app {
namespace {

using namespace convert;

struct QuantizeFlags {
  std::string in, out, type;
  bool allow_requantize = false;
  std::int64_t threads = 0;
};

/// Everything that can be refused before the work begins.
void check_codecs(const gguf::File& file, const std::vector<TensorPlan>& plan, const QuantizeFlags& flags) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const TensorView& tensor = file.tensors()[i];
    if (plan[i].dtype == tensor.dtype) continue;  // copied
    check_codec({tensor.name, tensor.dtype, tensor.shape}, plan[i].dtype, file.name());
    if (!is_plain_float(tensor.dtype) && !is_plain_float(plan[i].dtype) && !flags.allow_requantize)
      fail(ErrorCode::invalid_argument,
           "{}: tensor \"{}\" is {} already; quantising it again loses quality: start from F16, BF16 or F32, "
           "or "
           "give --allow-requantize",
           printable(file.name(), 1000), printable(tensor.name), to_string(tensor.dtype));
  }
}

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
  std::vector<gguf::TensorInfo> infos;
  for (const TensorView& tensor : file.tensors()) infos.push_back({tensor.name, tensor.dtype, tensor.shape});
  const std::vector<TensorPlan> plan = plan_types(infos, file.metadata(), *mix);
  check_codecs(file, plan, flags);
  tell_fallbacks(infos, plan);

  std::uint64_t source_bytes = 0, target_bytes = 0, elements = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const TensorView& tensor = file.tensors()[i];
    infos[i].dtype = plan[i].dtype;
    source_bytes += tensor.bytes();
    target_bytes += row_bytes(plan[i].dtype, static_cast<std::size_t>(tensor.width())) *
                    static_cast<std::uint64_t>(tensor.rows());
    elements += static_cast<std::uint64_t>(tensor.elements());
  }
  gguf::Writer writer(flags.out, target_metadata(file, *mix), std::move(infos));
  Encoder encoder(flags.threads > 0 ? static_cast<int>(flags.threads) : default_threads().count);
  {
    ProgressBar bar("quantising", source_bytes);
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const TensorView& tensor = file.tensors()[i];
      encoder.encode(
          TensorSource::of(tensor), plan[i].dtype, file.name(),
          [&](std::span<const std::byte> bytes) { writer.append(bytes); },
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

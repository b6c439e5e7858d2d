// `quipu convert HF_DIR -o OUT.gguf`: a Hugging Face folder as a GGUF file, quantised on the way if asked.
#include "convert/convert.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "convert/encoder.hpp"
#include "convert/mixes.hpp"
#include "core/error.hpp"
#include "core/threads.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "type_report.hpp"

namespace quipu::app {
namespace {

struct ConvertFlags {
  std::string in, out, type = "auto", pre;
  std::int64_t threads = 0;
};

/// Everything that can be refused before the work begins.
void check(const ConvertFlags& flags, const convert::Model& model,
           const std::vector<gguf::TensorInfo>& tensors, const std::vector<convert::TensorPlan>& plan) {
  for (std::size_t i = 0; i < plan.size(); ++i) convert::check_codec(tensors[i], plan[i].dtype, model.name());
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::absolute(flags.out, error).parent_path();
  if (std::filesystem::is_directory(flags.out, error))
    fail(ErrorCode::invalid_argument, "-o {} is a folder, expected the file to write",
         printable(flags.out, 1000));
  if (!std::filesystem::is_directory(parent, error))
    fail(ErrorCode::not_found, "-o {}: the folder {} does not exist", printable(flags.out, 1000),
         printable(parent.string(), 1000));
}

void convert_model(const ConvertFlags& flags) {
  if (flags.out.empty()) fail(ErrorCode::invalid_argument, "no output is named: -o takes the file to write");
  const bool keeps_types = flags.type == "auto";
  const convert::Mix* mix = keeps_types ? nullptr : convert::find_mix(flags.type);
  if (!keeps_types && mix == nullptr)
    fail(ErrorCode::invalid_argument, "unknown type \"{}\": expected auto or one of {}",
         printable(flags.type), convert::mix_names());
  const convert::Model model =
      convert::Model::open(flags.in, {.mode = MappedFile::Mode::map, .pre = flags.pre});
  for (const std::string& warning : model.warnings()) write_stderr("warning: " + warning + "\n");

  std::vector<gguf::TensorInfo> infos = model.tensor_infos();
  const std::vector<convert::TensorPlan> plan =
      keeps_types ? convert::plan_own_types(infos) : convert::plan_types(infos, model.metadata(), *mix);
  check(flags, model, infos, plan);
  if (!keeps_types) tell_fallbacks(infos, plan);

  gguf::Metadata metadata = model.metadata();
  metadata.set("general.file_type",
               gguf::Value::of_u32(keeps_types ? convert::own_file_type(infos) : mix->file_type));
  metadata.set("general.quantization_version", gguf::Value::of_u32(2));
  std::uint64_t source_bytes = 0, target_bytes = 0, elements = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const convert::TensorSource& tensor = model.tensors()[i];
    infos[i].dtype = plan[i].dtype;
    source_bytes += tensor.bytes();
    target_bytes += row_bytes(plan[i].dtype, static_cast<std::size_t>(tensor.width())) *
                    static_cast<std::uint64_t>(tensor.row_count());
    elements += tensor.elements();
  }
  gguf::Writer writer(flags.out, metadata, std::move(infos));
  convert::Encoder encoder(flags.threads > 0 ? static_cast<int>(flags.threads) : default_threads().count);
  {
    ProgressBar bar("converting", source_bytes);
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const convert::TensorSource& tensor = model.tensors()[i];
      encoder.encode(
          tensor, plan[i].dtype, model.name(),
          [&](std::span<const std::byte> bytes) { writer.append(bytes); },
          [&](std::uint64_t part) { bar.update(done + part); });
      done += tensor.bytes();
      bar.update(done);
    }
    writer.finish();
  }
  write_stdout(fmt::format("{}: {} {}, {} tensors, {} from {}, {:.2f} bits each\n",
                           printable(flags.out, 1000), metadata.get_string("general.architecture"),
                           keeps_types ? "in its own types" : std::string(mix->name), plan.size(),
                           size_text(target_bytes), size_text(source_bytes),
                           8.0 * static_cast<double>(target_bytes) / static_cast<double>(elements)));
}

}  // namespace

void add_convert(CLI::App& app) {
  CLI::App& command = add_command(app, "convert", "Make a GGUF file of a Hugging Face folder");
  auto flags = std::make_shared<ConvertFlags>();
  argument(command, "folder", flags->in, "with config.json, safetensors and tokenizer files");
  text_option(command, "-o,--outfile", flags->out, "the file to write");
  text_option(command, "--type,--outtype", flags->type,
              "auto (matrices keep their type) or one of " + convert::mix_names());
  text_option(command, "--pre", flags->pre, "the pre-tokenizer, where it is not recognised");
  integer_option(command, "-t,--threads", flags->threads,
                 {0, 4096, "0: what the machine and its limits give"}, "threads");
  on_run(command, [flags] { convert_model(*flags); });
}

}  // namespace quipu::app

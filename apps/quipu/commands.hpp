// The subcommands: one line here, one file each.
#pragma once

#include <filesystem>
#include <string>

namespace CLI {
class App;
}

namespace quipu::app {

void add_run(CLI::App& app);
void add_chat(CLI::App& app);
void add_serve(CLI::App& app);
void add_embed(CLI::App& app);
void add_rerank(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_template(CLI::App& app);
void add_inspect(CLI::App& app);
void add_quantize(CLI::App& app);
void add_convert(CLI::App& app);
void add_bench(CLI::App& app);
void add_eval(CLI::App& app);
void add_eval_loglikelihood(CLI::App& eval);  ///< called by add_eval
void add_pull(CLI::App& app);
void add_models(CLI::App& app);
void add_completion(CLI::App& app);

/// The file that MODEL means: a path, a catalogue name (`smollm2`) or `hf:org/repo[:file]`; the latter two
/// are downloaded into the cache when they are not there yet. Throws `Error`: not_found, network, checksum,
/// io.
std::filesystem::path resolve_model(const std::string& model);

}  // namespace quipu::app

// `quipu serve`: models over HTTP.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <regex>
#include <thread>

#include "cli.hpp"
#include "commands.hpp"
#include "convert/convert.hpp"
#include "core/checksum.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/mapped_file.hpp"
#include "engine/machine_memory.hpp"
#include "flags.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "server/server.hpp"
#include "session.hpp"

namespace quipu::app {
namespace {

struct ServeFlags {
  ModelFlags model;
  AdapterFlags adapters;
  EngineFlags engine;
  SamplingFlags sampling;
  GenerationFlags generation;
  std::string host = "127.0.0.1", alias, api_key_file, tls_cert, tls_key, unix_socket, pooling;
  std::vector<std::string> api_keys, cors_origins;
  std::int64_t port = 8080, parallel = 0, queue = 256, io_threads = 2, drain_seconds = 30;
  std::int64_t heartbeat_seconds = 15, max_body_mib = 32, idle_seconds = 300;
  std::string slot_save_path, models_dir, cache_dir;
  std::int64_t models_max = 4, idle_unload = 0, cache_dir_mib = 8192;
  bool no_prefix_cache = false, log_prompts = false;
};

/// Sequences that run together unless asked otherwise: enough for the matrix units, few enough for memory.
constexpr std::int64_t kDefaultParallel = 32;

std::vector<std::string> split_names(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

/// The file's name without ".gguf" is the id, unless --alias says otherwise; what -m said works as well.
server::ModelEntry entry_of(const ServeFlags& flags) {
  server::ModelEntry entry;
  entry.path = resolve_model(flags.model.model);
  entry.aliases = split_names(flags.alias);
  const std::string stem = entry.path.stem().string();
  entry.id = entry.aliases.empty() ? stem : entry.aliases.front();
  for (const std::string& name : {stem, entry.path.filename().string(), flags.model.model})
    entry.aliases.push_back(name);
  return entry;
}

/// The GGUF files of a folder (of a split model the first one) and its folders with a config.json, by name.
std::vector<server::ModelEntry> entries_in(const std::filesystem::path& folder) {
  static const std::regex kShard("(.*)-([0-9]{5})-of-[0-9]{5}");
  std::error_code error;
  std::vector<server::ModelEntry> entries;
  for (const auto& item : std::filesystem::directory_iterator(folder, error)) {
    const std::filesystem::path& path = item.path();
    const bool file = item.is_regular_file(error) && path.extension() == ".gguf";
    if (!file && !convert::is_model_folder(path)) continue;
    server::ModelEntry entry;
    entry.path = path;
    entry.id = file ? path.stem().string() : path.filename().string();
    if (entry.id.rfind("mmproj", 0) == 0) continue;  // a part of other models
    entry.aliases = {path.filename().string()};
    std::smatch parts;
    const std::string stem = entry.id;
    if (file && std::regex_match(stem, parts, kShard)) {
      if (parts[2] != "00001") continue;
      entry.id = parts[1];
    }
    entries.push_back(std::move(entry));
  }
  if (error) fail(ErrorCode::not_found, "--models-dir {}: {}", printable(folder.string()), error.message());
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return entries;
}

/// The model of -m first, then those of --models-dir.
std::vector<server::ModelEntry> all_entries(const ServeFlags& flags) {
  std::vector<server::ModelEntry> entries;
  if (!flags.model.model.empty() || flags.models_dir.empty()) entries.push_back(entry_of(flags));
  if (flags.models_dir.empty()) return entries;
  for (server::ModelEntry& entry : entries_in(flags.models_dir)) {
    const bool again =
        !entries.empty() && (entry.path == entries.front().path || entry.id == entries.front().id);
    if (!again) entries.push_back(std::move(entry));
  }
  if (entries.empty())
    fail(ErrorCode::not_found, "--models-dir {} holds no .gguf file", printable(flags.models_dir));
  return entries;
}

/// Vectors of texts have threads of their own: they are made beside the answers.
void set_up_embedding(const ServeFlags& flags, server::Served& served) {
  engine::EngineOptions backends;
  add_cpu_backend(backends, flags.engine.threads);
  served.embedding.backends = std::move(backends.backends);
  served.embedding.context = flags.engine.context;
  served.embedding.batch = flags.engine.batch;
  served.embedding.memory_budget = flags.engine.memory_budget;
  if (!flags.pooling.empty()) served.embedding.pooling = models::find_pooling(flags.pooling);
}

/// `budget`: bytes for all models together; 0: what the machine has free. `taken`: of it by other models.
std::unique_ptr<server::Served> load(const ServeFlags& flags, const server::ModelEntry& entry,
                                     std::uint64_t budget, std::uint64_t taken) {
  ModelFlags model_flags = flags.model;
  model_flags.model = entry.path.string();
  auto model = load_model(model_flags);
  engine::EngineOptions options = flags.engine.options();
  options.prefix_cache = !flags.no_prefix_cache;
  options.shrink_pool = true;
  if (!flags.cache_dir.empty()) {
    options.page_store = flags.cache_dir;
    options.page_store_bytes = static_cast<std::uint64_t>(flags.cache_dir_mib) << 20;
    options.page_store_build = xxh64(MappedFile("/proc/self/exe").bytes());
  }
  options.sequences = flags.parallel > 0 ? flags.parallel : kDefaultParallel;
  if (budget > 0) {
    if (taken >= budget)
      fail(ErrorCode::out_of_memory, "other models hold {} of the budget of {}", size_text(taken),
           size_text(budget));
    options.memory_budget = budget - taken;
  }
  // Rather unload another model than give this one a shorter context than it has alone.
  if (taken > 0 && options.context == 0) options.context = model->trained_positions();
  std::vector<float> scales = flags.adapters.load(*model, options);
  std::vector<std::string> adapter_paths;
  for (const auto& adapter : options.adapters) adapter_paths.push_back(adapter->path());
  auto served = std::make_unique<server::Served>();
  served->adapters.reset(std::move(adapter_paths), std::move(scales));
  served->entry = entry;
  served->loaded_at = static_cast<std::int64_t>(std::time(nullptr));
  served->random_seed = flags.sampling.seed < 0;
  served->defaults = flags.generation.request(flags.sampling.resolve(model->tokenizer()));
  server::ServiceOptions service;
  service.queue = static_cast<std::size_t>(flags.queue);
  service.keep_slots = !flags.slot_save_path.empty();
  set_up_embedding(flags, *served);
  const std::string threads = add_cpu_backend(options, flags.engine.threads);
  served->service = std::make_unique<server::EngineService>(std::move(model), std::move(options), service);
  const engine::MemoryReport& memory = served->service->memory();
  log::info("{}: {}, {}; memory: weights {}, KV cache {}, scratch {}; {} sequences of {} tokens ({})",
            entry.id, served->model().description(), threads, size_text(memory.weights), size_text(memory.kv),
            size_text(memory.scratch), served->service->places(), memory.context, memory.context_reason);
  return served;
}

server::ServerOptions server_options(const ServeFlags& flags) {
  server::ServerOptions options;
  options.version = QUIPU_VERSION;
  options.http.host = flags.unix_socket.empty() ? flags.host : "unix:" + flags.unix_socket;
  options.http.port = static_cast<std::uint16_t>(flags.port);
  options.http.tls_certificate = flags.tls_cert;
  options.http.tls_key = flags.tls_key;
  options.http.threads = static_cast<int>(flags.io_threads);
  options.http.limits.body_bytes = static_cast<std::uint64_t>(flags.max_body_mib) << 20;
  options.http.limits.idle = std::chrono::seconds(flags.idle_seconds);
  options.heartbeat = std::chrono::seconds(flags.heartbeat_seconds);
  options.log_bodies = flags.log_prompts;
  for (const std::string& key : flags.api_keys) options.keys.add(key);
  if (!flags.api_key_file.empty()) options.keys.add_file(flags.api_key_file);
  for (const std::string& list : flags.cors_origins) {
    for (const std::string& origin : split_names(list)) options.origins.allow(origin);
  }
  options.origins.allow_host(flags.host);
  if (!flags.slot_save_path.empty()) {
    std::error_code error;
    std::filesystem::create_directories(flags.slot_save_path, error);
    if (!std::filesystem::is_directory(flags.slot_save_path))
      fail(ErrorCode::io, "--slot-save-path is {}, which is no folder and cannot become one",
           printable(flags.slot_save_path));
    options.slot_save_path = flags.slot_save_path;
  }
  return options;
}

/// The state of the model that everything waits for; an exception when it cannot be loaded.
bool ready(server::Server& server) {
  const server::Models::Listed first = server.models().list().front();
  if (first.state == server::Models::State::unloaded) return true;  // when it is asked for
  if (first.state == server::Models::State::failed) fail(ErrorCode::io, "{}", first.error);
  return first.state == server::Models::State::ready;
}

void serve(const ServeFlags& flags) {
  flags.sampling.validate();
  if (std::getenv("QUIPU_LOG") == nullptr) log::set_level(log::Level::info);
  server::ServerOptions options = server_options(flags);
  server::ModelsOptions several;
  std::uint64_t budget = 0;
  if (!flags.models_dir.empty()) {
    several.most_loaded = static_cast<std::size_t>(flags.models_max);
    several.preload = !flags.model.model.empty();
    several.discover = [folder = flags.models_dir] { return entries_in(folder); };
    budget = flags.engine.memory_budget;
    if (budget == 0) budget = engine::free_memory().bytes / 10 * 9;  // as of now: caches fill later
  }
  several.keep_idle = std::chrono::seconds(flags.idle_unload);
  auto models = std::make_unique<server::Models>(
      all_entries(flags),
      [flags, budget](const server::ModelEntry& entry, std::uint64_t taken) {
        return load(flags, entry, budget, taken);
      },
      several);
  InterruptGuard guard;
  server::Server server(std::move(options), std::move(models));
  server.start();
  write_stderr(fmt::format("quipu: listening on {}\n", server.address()));
  bool told = false;
  while (!interrupted()) {
    if (!told && ready(server)) {
      told = true;
      write_stderr(fmt::format("quipu: ready\n"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(told ? 50 : 10));
  }
  clear_interrupt();
  log::info("shutting down: waiting up to {} s for what is under way (again: at once)", flags.drain_seconds);
  // A second signal ends the wait.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (!server.drain(std::chrono::seconds(flags.drain_seconds)))
    log::warning("some answers were cut off after {} s", flags.drain_seconds);
}

}  // namespace

void add_serve(CLI::App& app) {
  CLI::App& command =
      add_command(app, "serve",
                  "Answer over HTTP: the OpenAI, Anthropic, Ollama and llama.cpp interfaces, and a web page");
  auto flags = std::make_shared<ServeFlags>();
  flags->model.add(command);
  text_option(command, "--models-dir", flags->models_dir,
              "folder of further models: each is loaded when a request names it");
  integer_option(command, "--models-max", flags->models_max, {1, 1000},
                 "models in memory at a time; further ones replace the one idle longest");
  integer_option(command, "--idle-unload", flags->idle_unload, {0, 86400 * 365, "0: never"},
                 "seconds without a request after which a model is unloaded");
  flags->adapters.add(command, true);
  text_option(command, "-a,--alias", flags->alias, "names of the model for clients, separated by commas");
  text_option(command, "--host", flags->host, "address to listen on; unix:PATH for a Unix socket");
  integer_option(command, "--port", flags->port, {0, 65535, "0: any free one"}, "port to listen on");
  text_option(command, "--unix-socket", flags->unix_socket, "the same as --host unix:PATH");
  group_options(command, "Server");
  text_list_option(command, "--api-key", flags->api_keys, "key that clients must give; may be repeated");
  text_option(command, "--api-key-file", flags->api_key_file, "file with one key a line");
  text_list_option(command, "--cors-origin", flags->cors_origins,
                   "web origin that may call from a browser, https://chat.example; * for all");
  text_option(command, "--tls-cert,--ssl-cert-file", flags->tls_cert, "PEM certificate chain: speak HTTPS");
  text_option(command, "--tls-key,--ssl-key-file", flags->tls_key, "PEM private key of the certificate");
  group_options(command, "Access");
  integer_option(command, "--parallel", flags->parallel, {0, 1024, "0: 32"},
                 "(-np) sequences that run together; further ones wait");
  integer_option(command, "--queue", flags->queue, {0, 1000000},
                 "sequences that may wait; beyond: 429 with Retry-After");
  choice_option(command, "--pooling", flags->pooling, {"none", "mean", "cls", "last", "rank"},
                "of embeddings, where requests name none (default: the model's own)");
  flag_option(command, "--no-prefix-cache", flags->no_prefix_cache,
              "do not share computed prompts between requests");
  text_option(command, "--cache-dir", flags->cache_dir,
              "folder that keeps computed prompts: those given up for others, and all of them at the end");
  integer_option(command, "--cache-dir-mib", flags->cache_dir_mib, {1, 1 << 30},
                 "most MiB of its files, per model");
  text_option(command, "--slot-save-path", flags->slot_save_path,
              "folder that POST /slots/ID?action=save and restore use; slots then remember what ran in them");
  integer_option(command, "--drain-seconds", flags->drain_seconds, {0, 86400},
                 "on SIGTERM: time for answers under way");
  integer_option(command, "--heartbeat-seconds", flags->heartbeat_seconds, {1, 3600},
                 "silence after which a stream gets a comment line");
  integer_option(command, "--idle-seconds", flags->idle_seconds, {1, 86400},
                 "time after which an idle connection ends");
  integer_option(command, "--max-body-mib", flags->max_body_mib, {1, 4096}, "largest request");
  integer_option(command, "--io-threads", flags->io_threads, {1, 64}, "threads for connections");
  flag_option(command, "--log-prompts", flags->log_prompts,
              "show in the request log what was sent, prompts included");
  group_options(command, "Load");
  flags->generation.add(command);
  flags->sampling.add(command);
  flags->engine.add(command);
  on_run(command, [flags] { serve(*flags); });
}

}  // namespace quipu::app

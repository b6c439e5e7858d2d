#include "engine/engine.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "core/checksum.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "engine/active_request.hpp"
#include "engine/batch.hpp"
#include "engine/memory_planner.hpp"
#include "engine/page_keeper.hpp"
#include "engine/scheduler.hpp"
#include "graph/memory_plan.hpp"
#include "text/grammar/grammar.hpp"

namespace quipu::engine {

namespace {

/// Bytes of logits one step may produce for prompts whose every position is asked for.
constexpr std::int64_t kPromptLogitBytes = std::int64_t{64} << 20;

void check_options(const EngineOptions& options) {
  const auto check = [](std::string_view name, std::int64_t value, std::int64_t least) {
    if (value < least)
      fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} or more", name, value, least);
  };
  check("context", options.context, 0);
  check("sequences", options.sequences, 1);
  check("batch", options.batch, 1);
  if (options.context > INT32_MAX) {
    fail(ErrorCode::invalid_argument, "context is {}, allowed is at most {}", options.context, INT32_MAX);
  }
}

void warn_beyond_training(std::int64_t context, std::int64_t trained) {
  if (trained <= 0 || context <= trained) return;
  log::warning(
      "the context of {} tokens exceeds the {} the model was trained for; answers get worse beyond that. "
      "--rope-scaling yarn --rope-scale {} extends it properly",
      context, trained, (context + trained - 1) / trained);
}

}  // namespace

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::none:
      return "none";
    case StopReason::end_of_generation:
      return "eos";
    case StopReason::stop_string:
      return "stop";
    case StopReason::max_tokens:
      return "length";
    case StopReason::context_full:
      return "context";
    case StopReason::cancelled:
      return "cancelled";
    case StopReason::error:
      return "error";
  }
  return "none";
}

struct Engine::Impl {
  std::shared_ptr<const models::Model> model;
  EngineOptions options;
  MemoryReport report;
  std::optional<backends::Program> program;
  std::optional<backends::Program> encoder;  // of prompts (models::Model::has_prompt_encoder)
  std::shared_ptr<memory::PagePool> pool;
  std::int64_t vocab = 0;
  std::vector<float> logits;  // [outputs of a step, vocab]

  RequestId last_id = 0;
  EngineStats last;
  Queue waiting;    // by age
  Running running;  // by age
  std::map<RequestId, Result> results;
  Unclaimed unclaimed{8};
  std::optional<memory::PageStore> store;
  std::optional<memory::PrefixTree> tree;
  memory::PrefixTree* shared_pages() { return tree ? &*tree : nullptr; }
  Scheduler scheduler;
  Batch batch;
  // Kept from step to step: running requests that may compute now, and what the scheduler sees of them.
  std::vector<ActiveRequest*> may_run, leaders;
  std::vector<Waiting> view;
  std::vector<ActiveRequest*> encoding;  // whose prompts this step reads

  std::mutex token_table_mutex;
  std::shared_ptr<const text::grammar::TokenTable> token_table;  // made when first needed

  std::optional<std::int32_t> decoder_start() const {
    return encoder ? std::optional(model->hyperparameters().decoder_start) : std::nullopt;
  }
  std::uint64_t weight_bytes() const;
  std::uint64_t content_key(std::span<const float> adapters) const;
  void set_up();
  void decide_memory();
  void admit();
  void put_back(Running& preempted);
  void find_ready();
  void schedule();
  void encode(ActiveRequest& request);
  void run();
  void account();
  void retire_finished();
  void retire(ActiveRequest& request);
};

// ---- one-time set-up ----

std::uint64_t Engine::Impl::weight_bytes() const {
  std::uint64_t bytes = model->weight_bytes();
  for (const auto& adapter : options.adapters) bytes += adapter->bytes();
  return bytes;
}

std::uint64_t Engine::Impl::content_key(std::span<const float> adapters) const {
  std::vector<std::uint64_t> parts;
  if (options.control != nullptr) parts.push_back(options.control->fingerprint());
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (adapters[i] == 0) continue;
    parts.push_back(options.adapters[i]->fingerprint());
    parts.push_back(std::bit_cast<std::uint32_t>(adapters[i]));
  }
  return parts.empty() ? 0 : xxh64(std::as_bytes(std::span(parts)));
}

void Engine::Impl::set_up() {
  check_options(options);
  unclaimed = Unclaimed(static_cast<std::size_t>(std::max<std::int64_t>(options.sequences, 8)));
  if (options.backends.empty()) options.backends.push_back(backends::make_cpu_backend());
  graph::Graph graph = model->build_graph();
  if (!options.adapters.empty() || options.control != nullptr)
    graph = models::with_adapters(graph, *model, options.adapters, options.control.get());
  vocab = graph.value(graph.output).width;
  const std::int64_t trained = model->trained_positions();
  if (options.context == 0 && trained == 0) options.context = 2048;
  if (options.context > graph.position_limit)
    fail(ErrorCode::invalid_argument,
         "-c is {}: the model has learned {} positions and knows none beyond them", options.context,
         graph.position_limit);
  const std::int64_t most_useful = std::max(options.context, trained) * options.sequences;
  const std::int64_t rows = std::max(std::min(options.batch, most_useful), std::int64_t{1});
  const std::int64_t logit_rows = std::clamp<std::int64_t>(kPromptLogitBytes / (vocab * 4), 1, rows);
  const std::int64_t outputs = std::min(rows, options.sequences + logit_rows);
  std::optional<graph::Graph> prompts;
  const std::int64_t longest_prompt = options.context > 0 ? options.context : trained;
  if (model->has_prompt_encoder()) prompts = model->build_encoder_graph();
  // The plan's size is known before any of it is allocated.
  MemoryNeeds least;
  least.weights = weight_bytes();
  least.scratch =
      graph::plan_memory(graph, rows, outputs).bytes + static_cast<std::uint64_t>(outputs * vocab) * 4;
  if (prompts) least.scratch += graph::plan_memory(*prompts, longest_prompt, 1).bytes;
  const std::uint64_t budget = options.memory_budget > 0 ? options.memory_budget : free_memory().bytes;
  if (least.weights + least.scratch > budget) {
    fail(ErrorCode::out_of_memory, "{} of weights and {} of scratch (-b {}) do not fit into {}",
         format_bytes(least.weights), format_bytes(least.scratch), rows, format_bytes(budget));
  }
  program.emplace(std::move(graph), options.backends, rows, outputs);
  if (prompts) {
    encoder.emplace(std::move(*prompts), options.backends, longest_prompt, 1);
    options.prefix_cache = false;  // what is stored of a prompt depends on all of it
    if (!options.page_store.empty())
      log::warning("no pages are kept in {}: what is stored of a prompt depends on all of it",
                   printable(options.page_store.string()));
  }
  decide_memory();
}

void Engine::Impl::decide_memory() {
  const models::Hyperparameters& hyper = model->hyperparameters();
  std::vector<graph::KvShape> layers = program->graph().kv_shapes;
  if (encoder)  // what the decoder only reads, or has no block for
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (layers[i].kv_heads == 0) layers[i] = encoder->graph().kv_shapes[i];
  MemoryNeeds needs;
  needs.weights = weight_bytes();
  needs.scratch = program->scratch_bytes() + static_cast<std::uint64_t>(program->max_outputs() * vocab) * 4;
  if (encoder) needs.scratch += encoder->scratch_bytes();
  needs.page_bytes = memory::PagePool::bytes_per_page(layers, options.k_dtype, options.v_dtype);
  needs.sequences = options.sequences;
  needs.trained_context = model->trained_positions();
  needs.context = options.context;
  needs.pool_pages = options.pool_pages;
  needs.shrink_pool = options.shrink_pool;

  const FreeMemory machine = free_memory();
  FreeMemory available = machine;
  if (options.memory_budget > 0) {
    available = {options.memory_budget, "the memory budget of " + format_bytes(options.memory_budget)};
  } else if (options.context == 0) {
    available.bytes -= available.bytes / 10;  // a default leaves the rest of the machine a tenth
  }
  // The pool comes out of the first device's own budget, of which the scratch is already taken.
  const backends::DeviceInfo device = options.backends.front()->devices().front();
  const std::uint64_t device_left =
      device.memory_bytes > device.used_bytes ? device.memory_bytes - device.used_bytes : 0;
  const std::uint64_t fixed = needs.weights + needs.scratch;
  if (device_left < UINT64_MAX - fixed && device_left + fixed < available.bytes) {
    available = {device_left + fixed, fmt::format("{} left on {}", format_bytes(device_left), device.name)};
  }
  const MemoryDecision decision = plan_engine_memory(needs, available);
  report = decision.report;
  if (options.huge_pages && report.weights < machine.bytes / 3 * 2) {
    // Not while the first words of a short prompt are computed, which use the memory themselves.
    for (const auto& shard : model->file().shards())
      shard->move_to_huge_pages(std::chrono::milliseconds(100));
  }
  warn_beyond_training(report.context, report.trained_context);

  memory::KvOptions kv;
  kv.k_dtype = options.k_dtype;
  kv.v_dtype = options.v_dtype;
  kv.pages = decision.pages;
  kv.scatter = options.scatter_pages;
  // Sequences may outlive the engine: the pool keeps its backend.
  std::shared_ptr<backends::Backend> backend = options.backends.front();
  auto* made = new memory::PagePool(*backend, 0, layers, hyper.vocab, kv);
  pool = std::shared_ptr<memory::PagePool>(made, [backend](memory::PagePool* p) { delete p; });
  if (!options.prefix_cache) return;
  if (!options.page_store.empty()) {
    const std::uint64_t fingerprint = model->fingerprint() ^ options.page_store_build;
    store.emplace(*pool, memory::PageStoreOptions{options.page_store, options.page_store_bytes, fingerprint});
  }
  tree.emplace(pool, store ? &*store : nullptr);
}

// ---- a step: schedule, run, account ----

void Engine::Impl::admit() {
  const auto most = static_cast<std::size_t>(options.sequences);
  while (!waiting.empty() && running.size() < most) {
    ActiveRequest& next = *waiting.front();
    if (tree && !next.reuse(*tree)) break;  // goes on with the next step
    next.note_cache(shared_pages());
    // Starting it must not take pages from those that run; alone it may always start.
    const auto needed = static_cast<std::size_t>(next.pending() + next.sequence().length()) /
                            static_cast<std::size_t>(graph::kPagePositions) +
                        1;
    const auto missing = [&] { return needed > next.sequence().pages().size() + pool->free_pages(); };
    while (missing()) {
      if (tree && !running.empty() && !tree->may_store()) break;  // goes on with the next step
      if (!(tree && tree->evict()) && !unclaimed.drop_oldest()) break;
    }
    if (!running.empty() && missing()) break;
    running.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
  std::sort(running.begin(), running.end(), [](const auto& a, const auto& b) { return a->id() < b->id(); });
}

void Engine::Impl::put_back(Running& preempted) {
  for (auto& request : preempted) waiting.push_back(std::move(request));
  preempted.clear();
  std::sort(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) { return a->id() < b->id(); });
}

/// Running requests that may compute now. A prompt whose next page an older one is about to compute waits for
/// it: requests that start together, or the choices of one, then read what they share once.
void Engine::Impl::find_ready() {
  may_run.clear();
  leaders.clear();
  for (const auto& request : running) {
    if (!tree || request->pending() == 1 || !request->takes_prefix()) {
      may_run.push_back(request.get());
      continue;
    }
    if (!request->reuse(*tree)) continue;
    const auto wanted = request->tokens().first(request->tokens().size() - 1);
    const std::int64_t page = request->sequence().length() / graph::kPagePositions;
    const bool follows = std::any_of(leaders.begin(), leaders.end(), [&](ActiveRequest* leader) {
      if (leader->sequence().length() / graph::kPagePositions != page) return false;
      if (leader->sequence().content_key() != request->sequence().content_key()) return false;
      const auto theirs = leader->tokens();
      const auto end = std::mismatch(wanted.begin(), wanted.end(), theirs.begin(), theirs.end()).first;
      return end - wanted.begin() >= (page + 1) * graph::kPagePositions;
    });
    if (follows) continue;
    leaders.push_back(request.get());
    may_run.push_back(request.get());
  }
}

void Engine::Impl::schedule() {
  retire_finished();  // cancelled since the last step
  if (store) tree->allow_store(std::max<std::size_t>(options.file_bytes_per_step / pool->page_bytes(), 1));
  admit();
  find_ready();
  view.clear();
  for (const ActiveRequest* request : may_run) {
    const std::int64_t rows = request->must_encode() ? request->encoded() : request->pending();
    view.push_back({request->id(), rows, request->every_row_has_output()});
  }
  const std::span<Share> shares = scheduler.plan(view, {program->max_tokens(), program->max_outputs()});
  // Oldest first: whoever must give up pages is younger than whoever gets them, and not in the batch yet.
  std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.index < b.index; });
  batch.clear();
  encoding.clear();
  Running preempted;
  for (Share& share : shares) {
    ActiveRequest& request = *may_run[share.index];
    const bool still_runs =
        std::any_of(running.begin(), running.end(), [&](const auto& r) { return r.get() == &request; });
    if (!still_runs) continue;
    if (request.must_encode()) share.rows = request.encoded();
    const Room room = make_page_room(
        request, share.rows, {shared_pages(), unclaimed, waiting, running, preempted, options.last_resort});
    if (room == Room::exhausted) {
      request.finish(
          StopReason::error,
          fmt::format("all {} cache pages are in use after {} tokens of this sequence; sequences taken "
                      "from the engine hold the others",
                      pool->capacity(), request.sequence().length()));
    }
    if (room == Room::granted) {
      request.begin();
      if (request.must_encode())
        encoding.push_back(&request);
      else
        batch.add(request, share.rows);
    }
  }
  last.preemptions += preempted.size();
  put_back(preempted);
}

/// Each prompt whole, in a step of the encoder's own.
void Engine::Impl::encode(ActiveRequest& request) {
  const auto prompt = request.tokens().first(static_cast<std::size_t>(request.encoded()));
  const graph::SequenceRows rows{0, static_cast<std::uint32_t>(prompt.size()), 0, request.sequence().pages()};
  encoder->run({prompt, {&rows, 1}, pool->layers(), {}, nullptr});
  request.store(request.encoded());
}

void Engine::Impl::run() {
  last.rows = 0;
  last.sequences = batch.items().size() + encoding.size();
  for (const Batch::Item& item : batch.items()) last.rows += item.rows;
  for (const ActiveRequest* request : encoding) last.rows += request->encoded();
  const std::size_t needed = batch.outputs() * static_cast<std::size_t>(vocab);
  if (logits.size() < needed) logits.resize(needed);
  try {
    for (ActiveRequest* request : encoding) encode(*request);
    if (!batch.empty()) program->run(batch.step(pool->layers(), logits.data()));
  } catch (const Error& error) {  // a broken invariant: what was computed is unknown
    for (ActiveRequest* request : encoding) request->finish(StopReason::error, error.message());
    for (const Batch::Item& item : batch.items()) item.request->finish(StopReason::error, error.message());
    batch.clear();
    throw;
  }
}

void Engine::Impl::account() {
  std::exception_ptr thrown;
  const auto width = static_cast<std::size_t>(vocab);
  for (const Batch::Item& item : batch.items()) {
    ActiveRequest& request = *item.request;
    request.store(item.rows);
    // A prompt is known to others as soon as it is computed.
    if (tree && request.computed_here() && item.rows > 1) tree->insert(request.sequence());
    try {
      const auto positions = batch.output_positions(item);
      for (std::size_t i = 0; i < positions.size() && !request.finished(); ++i) {
        request.take_logits(positions[i], std::span(logits).subspan((item.first_output + i) * width, width));
      }
      request.complete();
    } catch (const std::exception& error) {
      request.finish(StopReason::error, error.what());
      if (!thrown) thrown = std::current_exception();
    } catch (...) {
      request.finish(StopReason::error, "a callback failed");
      if (!thrown) thrown = std::current_exception();
    }
  }
  batch.clear();
  retire_finished();
  if (thrown) std::rethrow_exception(thrown);
}

void Engine::Impl::retire_finished() {
  for (const auto& request : running) {
    if (request->finished()) retire(*request);
  }
  std::erase_if(running, [](const auto& request) { return request->finished(); });
}

void Engine::Impl::retire(ActiveRequest& request) {
  results.emplace(request.id(), request.take_result());
  memory::Sequence& sequence = request.sequence();
  sequence.truncate(sequence.length());  // pages reserved beyond the end
  if (tree && request.computed_here()) tree->insert_all(sequence);
  unclaimed.add(request.id(), std::move(sequence));
}

// ---- the interface ----

Engine::Engine(std::shared_ptr<const models::Model> model, EngineOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->model = std::move(model);
  impl_->options = std::move(options);
  impl_->set_up();
}
Engine::~Engine() = default;

const models::Model& Engine::model() const { return *impl_->model; }
const MemoryReport& Engine::memory() const { return impl_->report; }
std::shared_ptr<text::grammar::Constraint> Engine::constrain(const text::grammar::Grammar& grammar) const {
  const std::lock_guard lock(impl_->token_table_mutex);
  if (!impl_->token_table) impl_->token_table = text::grammar::TokenTable::of(impl_->model->tokenizer());
  return std::make_shared<text::grammar::Constraint>(grammar, impl_->token_table);
}

void Engine::check_continues() const {
  if (impl_->encoder)
    fail(ErrorCode::unsupported,
         "the model's encoder reads prompts whole: nothing computed can be saved or continued from");
}

memory::Sequence Engine::new_sequence(std::span<const float> adapters) {
  return memory::Sequence(impl_->pool, impl_->content_key(adapters));
}

RequestId Engine::submit(Request request, memory::Sequence* base) {
  Impl& e = *impl_;
  check_request(request, {e.report.context, e.vocab, e.model->gives_text(), e.options.adapters.size(),
                          e.encoder.has_value()});
  if (request.constraint && request.constraint->table().size() != e.model->tokenizer().size())
    fail(ErrorCode::invalid_argument,
         "the constraint was made for a vocabulary of {} tokens, the model has {}",
         request.constraint->table().size(), e.model->tokenizer().size());
  memory::Sequence sequence = new_sequence(request.adapters);
  if (base != nullptr) {
    if (base->pool() != e.pool)
      fail(ErrorCode::invalid_argument, "the base sequence belongs to another engine");
    // The last prompt token is computed again: its logits are not stored.
    const auto stored = base->tokens();
    const std::span<const std::int32_t> prompt(request.prompt);
    const auto usable = request.want_prompt_logits ? prompt.first(0) : prompt.first(prompt.size() - 1);
    const auto end = std::mismatch(usable.begin(), usable.end(), stored.begin(), stored.end()).first;
    if (base->content_key() == sequence.content_key() && !e.encoder) {
      sequence = std::move(*base);
      sequence.truncate(end - usable.begin());
    } else {
      base->truncate(0);
    }
  }
  const RequestId id = ++e.last_id;
  const bool own = !sequence.from_file();
  e.waiting.push_back(std::make_unique<ActiveRequest>(id, std::move(request), std::move(sequence), own,
                                                      e.model->tokenizer(), e.report.context,
                                                      e.decoder_start()));
  return id;
}

EngineStats Engine::stats() const {
  const Impl& e = *impl_;
  EngineStats stats = e.last;
  stats.waiting = e.waiting.size();
  stats.running = e.running.size();
  stats.pages = e.pool->capacity();
  stats.free_pages = e.pool->free_pages();
  stats.tree_pages = e.tree ? e.tree->pages() : 0;
  if (e.store) stats.stored = e.store->stats();
  return stats;
}

bool Engine::step() {
  Impl& e = *impl_;
  e.schedule();
  e.run();
  e.account();
  return !e.running.empty() || !e.waiting.empty();
}

void Engine::cancel(RequestId id) {
  Impl& e = *impl_;
  for (const auto& request : e.running) {
    if (request->id() == id) request->finish(StopReason::cancelled);
  }
  for (auto it = e.waiting.begin(); it != e.waiting.end(); ++it) {
    if ((*it)->id() != id) continue;
    (*it)->finish(StopReason::cancelled);
    e.retire(**it);
    e.waiting.erase(it);
    break;
  }
}

std::optional<Result> Engine::take_result(RequestId id) {
  const auto it = impl_->results.find(id);
  if (it == impl_->results.end()) return std::nullopt;
  std::optional<Result> result(std::move(it->second));
  impl_->results.erase(it);
  return result;
}

std::optional<memory::Sequence> Engine::take_sequence(RequestId id) { return impl_->unclaimed.take(id); }

RequestId Engine::park(memory::Sequence sequence) {
  impl_->unclaimed.add(++impl_->last_id, std::move(sequence));
  return impl_->last_id;
}
const memory::Sequence* Engine::parked(RequestId id) const { return impl_->unclaimed.find(id); }
std::int64_t Engine::known_prefix(std::span<const std::int32_t> tokens,
                                  std::span<const float> adapters) const {
  return impl_->tree ? impl_->tree->known(tokens, impl_->content_key(adapters)) : 0;
}

bool Engine::free_pages(std::size_t count) {
  Impl& e = *impl_;
  Running none;
  PageHolders holders{e.shared_pages(), e.unclaimed, e.waiting, none, none, e.options.last_resort};
  while (e.pool->free_pages() < count) {
    if (!holders.release_idle()) return false;
  }
  return true;
}

Result Engine::generate(Request request, memory::Sequence* base, std::optional<memory::Sequence>* keep) {
  const RequestId id = submit(std::move(request), base);
  std::exception_ptr thrown;
  std::optional<Result> result;
  while (!result) {
    try {
      step();
    } catch (...) {
      cancel(id);
      if (!thrown) thrown = std::current_exception();
    }
    result = take_result(id);
  }
  std::optional<memory::Sequence> sequence = take_sequence(id);
  if (keep != nullptr) *keep = std::move(sequence);
  if (thrown) std::rethrow_exception(thrown);
  return std::move(*result);
}

}  // namespace quipu::engine

#include "server/engine_service.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/log.hpp"
#include "engine/active_request.hpp"

namespace quipu::server {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// Steps that may fail one after the other before everything that runs is given up.
constexpr int kMostFailures = 8;

}  // namespace

QueueFull::QueueFull(std::size_t queued, std::size_t limit, int retry_after_seconds)
    : Error(ErrorCode::out_of_memory,
            fmt::format("the server is busy: {} requests wait already, the queue holds {}; try again in {} s",
                        queued, limit, retry_after_seconds)),
      retry_after_(retry_after_seconds) {}

struct EngineService::Impl {
  struct Entry {
    JobId id = 0;
    Job job;
    Clock::time_point submitted, started;
    std::optional<Clock::time_point> last_token;
    engine::RequestId engine_id = 0;
    std::size_t place = 0;
    std::int64_t prompt_tokens = 0, max_tokens = -1, generated = 0;
  };
  /// Something to do with a place while no job has it.
  struct SlotTask {
    std::size_t place;
    std::function<bool()> run;  ///< false: the place stays taken until `SlotMemory::go_on` names it
    SlotDone done;
  };

  ServiceOptions options;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<SlotMemory> slot_memory;
  engine::MemoryReport memory;
  std::int64_t vocab = 0;
  std::size_t adapters = 0;
  std::size_t places = 0;
  ServiceMetrics metrics;

  mutable std::mutex mutex;
  std::condition_variable wake, idle;
  // Below: guarded by the mutex.
  std::vector<std::unique_ptr<Entry>> waiting;  // by age
  std::vector<JobId> cancels;
  std::vector<SlotView> slots;
  std::vector<SlotTask> slot_tasks;                  // by age
  std::map<std::string, std::uint64_t> last_served;  // per user: when a job of theirs started, in jobs
  std::map<std::string, std::size_t> running_of;     // per user
  std::uint64_t served = 0;
  JobId last_id = 0;
  std::size_t running = 0;
  bool draining = false, stopping = false, cancel_everything = false, files_ended = false;
  double mean_job_seconds = 1;
  engine::EngineStats stats;

  // The engine's thread only.
  std::vector<std::unique_ptr<Entry>> active;
  int failures = 0;
  std::atomic<Clock::rep> step_began{0};
  std::thread thread;

  void check(const engine::Request& request) const;
  int retry_after() const;
  std::optional<std::size_t> next_waiting() const;
  bool has_slot_task() const;
  void run_slot_tasks();
  void release_place(std::size_t place);
  void add_slot_task(SlotTask task);
  void file_ended();
  std::vector<std::unique_ptr<Entry>> take_startable();
  void loop();
  void begin(std::unique_ptr<Entry> entry);
  void step();
  void collect();
  void apply_cancels(const std::vector<JobId>& ids, bool all);
  void on_token(Entry& entry);
  void finish(Entry& entry, engine::Result result);
};

void EngineService::Impl::check(const engine::Request& request) const {
  engine::check_request(request, {.context = memory.context,
                                  .vocab = vocab,
                                  .gives_text = engine->model().gives_text(),
                                  .adapters = adapters,
                                  .encodes_prompt = engine->model().has_prompt_encoder()});
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt >= memory.context && request.max_tokens != 0 && !request.context_shift)
    fail(ErrorCode::context_overflow,
         "the prompt has {} tokens and fills the context of {}; there is no room for an answer (a larger "
         "context: -c)",
         prompt, memory.context);
}

// ---- the queue ----

int EngineService::Impl::retry_after() const {
  const double turns = static_cast<double>(waiting.size() + 1) / static_cast<double>(places);
  return static_cast<int>(std::clamp(turns * mean_job_seconds, 1.0, 60.0));
}

/// The job that starts next: of the highest priority, of the user with the fewest jobs running, who was
/// served longest ago, the oldest.
std::optional<std::size_t> EngineService::Impl::next_waiting() const {
  if (running >= places) return std::nullopt;
  const auto has_place = [&](const Entry& e) {
    return e.job.slot < 0 || !slots[static_cast<std::size_t>(e.job.slot)].busy;
  };
  const auto running_jobs = [&](const Entry& e) {
    const auto it = running_of.find(e.job.user);
    return it == running_of.end() ? std::size_t{0} : it->second;
  };
  const auto served_at = [&](const Entry& e) {
    const auto it = last_served.find(e.job.user);
    return it == last_served.end() ? std::uint64_t{0} : it->second;
  };
  const auto rank = [&](const Entry& e) {
    return std::tuple(-e.job.priority, running_jobs(e), served_at(e), e.id);
  };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (has_place(*waiting[i]) && (!best || rank(*waiting[i]) < rank(*waiting[*best]))) best = i;
  }
  return best;
}

std::vector<std::unique_ptr<EngineService::Impl::Entry>> EngineService::Impl::take_startable() {
  std::vector<std::unique_ptr<Entry>> list;
  while (const std::optional<std::size_t> index = next_waiting()) {
    std::unique_ptr<Entry> entry = std::move(waiting[*index]);
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(*index));
    if (last_served.size() > 4096) last_served.clear();
    last_served[entry->job.user] = ++served;
    ++running_of[entry->job.user];
    ++running;
    const auto is_free = [&](std::size_t place) { return !slots[place].busy; };
    entry->place = entry->job.slot >= 0 ? static_cast<std::size_t>(entry->job.slot)
                                        : slot_memory->choose(entry->job.request, is_free);
    slots[entry->place] = {entry->place, entry->id, true, entry->prompt_tokens, 0, entry->max_tokens};
    list.push_back(std::move(entry));
  }
  return list;
}

// ---- the engine's thread ----

void EngineService::Impl::loop() {
  while (true) {
    std::vector<std::unique_ptr<Entry>> starts;
    std::vector<JobId> to_cancel;
    bool cancel_all = false;
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] {
        return stopping || cancel_everything || !cancels.empty() || !active.empty() || files_ended ||
               slot_memory->has_pages_to_take() || has_slot_task() || next_waiting().has_value();
      });
      if (stopping && active.empty() && waiting.empty()) break;
      files_ended = false;
      cancel_all = cancel_everything || stopping;
      cancel_everything = false;
      to_cancel = std::exchange(cancels, {});
      if (!cancel_all) starts = take_startable();
    }
    // In this order: a job may be cancelled that is only just starting.
    for (auto& entry : starts) begin(std::move(entry));
    apply_cancels(to_cancel, cancel_all);
    if (!active.empty()) step();
    collect();
    run_slot_tasks();
  }
  slot_memory->finish_files(shutting_down());
  for (const std::size_t place : slot_memory->go_on()) release_place(place);
  const auto closing = std::make_exception_ptr(shutting_down());
  for (const SlotTask& task : std::exchange(slot_tasks, {})) task.done({}, closing);
}

// ---- slots ----

bool EngineService::Impl::has_slot_task() const {
  return std::any_of(slot_tasks.begin(), slot_tasks.end(),
                     [&](const SlotTask& task) { return !slots[task.place].busy; });
}

void EngineService::Impl::run_slot_tasks() {
  for (const std::size_t place : slot_memory->go_on()) release_place(place);
  while (true) {
    SlotTask task;
    {
      const std::lock_guard lock(mutex);
      const auto next = std::find_if(slot_tasks.begin(), slot_tasks.end(),
                                     [&](const SlotTask& t) { return !slots[t.place].busy; });
      if (next == slot_tasks.end()) return;
      task = std::move(*next);
      slot_tasks.erase(next);
      slots[task.place].busy = true;
      ++running;
    }
    try {
      if (!task.run()) continue;
    } catch (...) {  // no memory, no thread
      task.done({}, std::current_exception());
    }
    release_place(task.place);
  }
}

void EngineService::Impl::release_place(std::size_t place) {
  const std::lock_guard lock(mutex);
  slots[place].busy = false;
  --running;
  if (running == 0 && waiting.empty()) idle.notify_all();
}

void EngineService::Impl::add_slot_task(SlotTask task) {
  {
    const std::lock_guard lock(mutex);
    if (task.place >= places)
      fail(ErrorCode::invalid_argument, "there is no slot {}, this server has slots 0 to {}", task.place,
           places - 1);
    if (draining) fail(ErrorCode::cancelled, "the server is shutting down");
    slot_tasks.push_back(std::move(task));
  }
  wake.notify_all();
}

void EngineService::Impl::begin(std::unique_ptr<Entry> owned) {
  Entry& entry = *owned;
  entry.started = Clock::now();
  metrics.queue_seconds.observe(seconds(entry.started - entry.submitted));
  entry.job.request.on_token =
      [this, &entry, inner = std::move(entry.job.request.on_token)](const engine::TokenEvent& event) {
        on_token(entry);
        if (inner) inner(event);
      };
  try {
    entry.engine_id = slot_memory->submit(entry.place, std::move(entry.job.request));
    active.push_back(std::move(owned));
  } catch (const std::exception& error) {
    engine::Result result;
    result.stop = engine::StopReason::error;
    result.error = error.what();
    finish(entry, std::move(result));
  }
}

void EngineService::Impl::on_token(Entry& entry) {
  const auto now = Clock::now();
  if (entry.last_token) {
    metrics.between_tokens_seconds.observe(seconds(now - *entry.last_token));
  } else {
    metrics.first_token_seconds.observe(seconds(now - entry.submitted));
  }
  entry.last_token = now;
  ++entry.generated;
  metrics.generated_tokens.add();
}

void EngineService::Impl::step() {
  const auto began = Clock::now();
  step_began = began.time_since_epoch().count();
  try {
    engine->step();
    failures = 0;
  } catch (const std::exception& error) {
    log::error("a step failed: {}", error.what());
    ++failures;
  }
  step_began = 0;
  const engine::EngineStats now = engine->stats();
  metrics.steps.add();
  metrics.step_seconds.observe(seconds(Clock::now() - began));
  metrics.computed_rows.add(static_cast<std::uint64_t>(now.rows));
  if (now.sequences > 0) metrics.batch_sequences.observe(static_cast<double>(now.sequences));
  if (failures > kMostFailures) {  // whoever is at fault is unknown
    log::error("{} steps failed in a row: what runs is given up", failures);
    apply_cancels({}, true);
    failures = 0;
  }
  const std::lock_guard lock(mutex);
  stats = now;
  for (const auto& entry : active) slots[entry->place].generated_tokens = entry->generated;
}

void EngineService::Impl::collect() {
  for (auto& entry : active) {
    std::optional<engine::Result> result = engine->take_result(entry->engine_id);
    if (!result) continue;
    slot_memory->finished(entry->place, entry->engine_id, entry->job.slot >= 0);
    finish(*entry, std::move(*result));
    entry.reset();
  }
  std::erase(active, nullptr);
  const std::lock_guard lock(mutex);
  if (running == 0 && waiting.empty()) idle.notify_all();
}

void EngineService::Impl::apply_cancels(const std::vector<JobId>& ids, bool all) {
  const auto wanted = [&](JobId id) { return all || std::find(ids.begin(), ids.end(), id) != ids.end(); };
  for (const auto& entry : active) {
    if (wanted(entry->id)) engine->cancel(entry->engine_id);
  }
  std::vector<std::unique_ptr<Entry>> never_started;
  {
    const std::lock_guard lock(mutex);
    for (auto& entry : waiting) {
      if (wanted(entry->id)) never_started.push_back(std::move(entry));
    }
    std::erase(waiting, nullptr);
  }
  for (const auto& entry : never_started) {
    metrics.cancelled.add();
    engine::Result result;
    result.stop = engine::StopReason::cancelled;
    if (entry->job.on_done) entry->job.on_done(std::move(result));
  }
}

void EngineService::Impl::finish(Entry& entry, engine::Result result) {
  metrics.prompt_tokens.add(static_cast<std::uint64_t>(entry.prompt_tokens));
  metrics.cached_tokens.add(static_cast<std::uint64_t>(result.usage.cached_tokens));
  if (result.stop == engine::StopReason::cancelled) metrics.cancelled.add();
  if (result.stop == engine::StopReason::error) metrics.failed.add();
  {
    const std::lock_guard lock(mutex);
    --running;
    slots[entry.place].busy = false;
    slots[entry.place].generated_tokens = entry.generated;
    const auto user = running_of.find(entry.job.user);
    if (--user->second == 0) running_of.erase(user);
    mean_job_seconds = 0.9 * mean_job_seconds + 0.1 * seconds(Clock::now() - entry.started);
  }
  try {
    if (entry.job.on_done) entry.job.on_done(std::move(result));
  } catch (const std::exception& error) {
    log::error("the end of job {} could not be told: {}", entry.id, error.what());
  }
}

// ---- the interface ----

EngineService::EngineService(std::shared_ptr<const models::Model> model, engine::EngineOptions engine,
                             const ServiceOptions& options)
    : impl_(std::make_unique<Impl>()) {
  Impl& s = *impl_;
  s.options = options;
  s.places = static_cast<std::size_t>(std::max<std::int64_t>(engine.sequences, 1));
  s.vocab = model->hyperparameters().vocab;
  engine.last_resort = [&s] {
    return s.slot_memory->finish_files(
        Error(ErrorCode::out_of_memory, "the slot was not restored: those that run need the cache's pages"));
  };
  s.adapters = engine.adapters.size();
  const std::size_t piece = engine.file_bytes_per_step;
  s.engine = std::make_unique<engine::Engine>(std::move(model), std::move(engine));
  s.slot_memory = std::make_unique<SlotMemory>(*s.engine, s.places, options.keep_slots, piece);
  s.memory = s.engine->memory();
  for (std::size_t i = 0; i < s.places; ++i) s.slots.push_back({i});
  s.stats = s.engine->stats();
  s.thread = std::thread([&s] { s.loop(); });
}

EngineService::~EngineService() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->draining = impl_->stopping = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

const models::Model& EngineService::model() const { return impl_->engine->model(); }
const engine::MemoryReport& EngineService::memory() const { return impl_->memory; }
std::shared_ptr<text::grammar::Constraint> EngineService::constrain(
    const text::grammar::Grammar& grammar) const {
  return impl_->engine->constrain(grammar);
}
std::size_t EngineService::places() const { return impl_->places; }
void EngineService::check(const engine::Request& request) const { impl_->check(request); }
const ServiceMetrics& EngineService::metrics() const { return impl_->metrics; }

std::vector<JobId> EngineService::submit(std::vector<Job> jobs) {
  Impl& s = *impl_;
  for (const Job& job : jobs) {
    s.check(job.request);
    if (job.slot >= static_cast<std::int64_t>(s.places))
      fail(ErrorCode::invalid_argument, "id_slot is {}, this server has slots 0 to {}", job.slot,
           s.places - 1);
  }
  std::vector<JobId> ids;
  {
    const std::lock_guard lock(s.mutex);
    if (s.draining) fail(ErrorCode::cancelled, "the server is shutting down");
    // A request that is larger than the whole queue may enter an empty one.
    const std::size_t free_places = s.places > s.running ? s.places - s.running : 0;
    if (s.waiting.size() + jobs.size() > s.options.queue + free_places && !s.waiting.empty()) {
      s.metrics.rejected.add();
      throw QueueFull(s.waiting.size(), s.options.queue, s.retry_after());
    }
    const auto now = Clock::now();
    for (Job& job : jobs) {
      auto entry = std::make_unique<Impl::Entry>();
      entry->id = ++s.last_id;
      entry->submitted = now;
      entry->prompt_tokens = static_cast<std::int64_t>(job.request.prompt.size());
      entry->max_tokens = job.request.max_tokens;
      entry->job = std::move(job);
      ids.push_back(entry->id);
      s.metrics.requests.add();
      s.waiting.push_back(std::move(entry));
    }
  }
  s.wake.notify_all();
  return ids;
}

void EngineService::Impl::file_ended() {
  {
    const std::lock_guard lock(mutex);
    files_ended = true;
  }
  wake.notify_all();
}

void EngineService::save_slot(std::size_t place, const std::filesystem::path& path, SlotDone done) {
  Impl& s = *impl_;
  s.engine->check_continues();
  s.add_slot_task({place,
                   [&s, place, path, done] {
                     s.slot_memory->save(place, path, done, [&s] { s.file_ended(); });
                     return false;
                   },
                   done});
}
void EngineService::restore_slot(std::size_t place, const std::filesystem::path& path,
                                 std::vector<float> adapters, SlotDone done) {
  Impl& s = *impl_;
  s.engine->check_continues();
  s.add_slot_task({place,
                   [&s, place, path, adapters = std::move(adapters), done] {
                     s.slot_memory->restore(place, path, adapters, done, [&s] { s.file_ended(); });
                     return false;
                   },
                   done});
}
void EngineService::erase_slot(std::size_t place, SlotDone done) {
  Impl& s = *impl_;
  s.add_slot_task({place,
                   [&s, place, done] {
                     s.slot_memory->erase(place, done);
                     return true;
                   },
                   done});
}

void EngineService::cancel(JobId id) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancels.push_back(id);
  }
  impl_->wake.notify_all();
}

void EngineService::cancel_all() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancel_everything = true;
  }
  impl_->wake.notify_all();
}

void EngineService::drain() {
  const std::lock_guard lock(impl_->mutex);
  impl_->draining = true;
}

bool EngineService::wait_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock(impl_->mutex);
  return impl_->idle.wait_for(lock, limit, [&] { return impl_->running == 0 && impl_->waiting.empty(); });
}

std::size_t EngineService::queued() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->waiting.size();
}
std::size_t EngineService::running() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->running;
}
std::vector<SlotView> EngineService::slots() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->slots;
}
engine::EngineStats EngineService::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

std::chrono::milliseconds EngineService::step_age() const {
  const Clock::rep began = impl_->step_began;
  if (began == 0) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch() -
                                                               Clock::duration(began));
}

}  // namespace quipu::server

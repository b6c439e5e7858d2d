#include "server/models.hpp"

#include <algorithm>
#include <utility>

#include "core/log.hpp"

namespace quipu::server {

namespace {
constexpr std::size_t kKeptConstraints = 16;
/// A model that has waited so long for room no longer lets others go on.
constexpr std::chrono::seconds kMostBlocked{10};
}  // namespace

void Served::prepare() {
  const text::ChatTemplate* chat = nullptr;
  try {
    chat = model().chat_template();
  } catch (const Error& error) {
    log::warning("{}: {}; only plain completions work", entry.id, error.message());
  }
  if (chat == nullptr) return;
  chat_format = std::make_unique<const text::ChatFormat>(*chat);
  if (!chat_format->capabilities().renders) {
    text::Conversation plain;
    plain.messages = {{"user", "Hello"}};
    try {
      chat_format->prompt(plain);
    } catch (const Error& error) {
      log::warning("{}: {}; chats are refused, plain completions work", entry.id, error.message());
    }
  }
  markers = text::marker_tokens(*chat_format->output(), model().tokenizer());
}

EmbeddingService& Served::embeddings() const {
  const std::lock_guard lock(embeddings_mutex_);
  if (!embeddings_) embeddings_ = std::make_unique<EmbeddingService>(model(), embedding);
  return *embeddings_;
}

void Served::stop_embeddings() const {
  const std::lock_guard lock(embeddings_mutex_);
  if (embeddings_) embeddings_->stop();
}

std::shared_ptr<text::grammar::Constraint> Served::constraint(
    const std::string& key, const std::function<text::grammar::Grammar()>& make) const {
  return answer_rules(key, [&] { return AnswerRules{service->constrain(make()), {}}; }).constraint;
}

Served::AnswerRules Served::answer_rules(const std::string& key,
                                         const std::function<AnswerRules()>& make) const {
  const auto find = [&] {
    return std::find_if(constraints_.begin(), constraints_.end(),
                        [&](const Kept& k) { return k.first == key; });
  };
  {
    const std::lock_guard lock(constraints_mutex_);
    if (const auto it = find(); it != constraints_.end()) {
      std::rotate(it, it + 1, constraints_.end());
      return constraints_.back().second;
    }
  }
  AnswerRules made = make();
  const std::lock_guard lock(constraints_mutex_);
  if (find() == constraints_.end()) constraints_.emplace_back(key, made);
  if (constraints_.size() > kKeptConstraints) constraints_.erase(constraints_.begin());
  return made;
}

struct Models::Graveyard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<Served>> dead;
  std::size_t alive = 0;

  /// Destroys what nobody holds any more; the caller is not an engine's thread.
  void clear() {
    std::vector<std::unique_ptr<Served>> gone;
    {
      const std::lock_guard lock(mutex);
      gone.swap(dead);
    }
    const std::size_t count = gone.size();
    gone.clear();
    const std::lock_guard lock(mutex);
    alive -= count;
  }
  bool has_dead() {
    const std::lock_guard lock(mutex);
    return !dead.empty();
  }
};

Models::Models(std::vector<ModelEntry> entries, Load load, const ModelsOptions& options)
    : load_(std::move(load)), options_(options), graveyard_(std::make_shared<Graveyard>()) {
  for (ModelEntry& entry : entries) add(std::move(entry));
  if (slots_.empty()) fail(ErrorCode::invalid_argument, "there is no model to serve");
  thread_ = std::thread([this] { loop(); });
}

void Models::add(ModelEntry entry) {
  Slot slot;
  slot.entry = std::move(entry);
  slot.keep_idle = usual_idle();
  slots_.push_back(std::move(slot));
}

Models::~Models() {
  std::vector<Ready> waiters;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (Slot& slot : slots_) {
      if (slot.served) slot.served->service->drain();
      if (slot.served) slot.served->service->cancel_all();
      if (slot.served) slot.served->stop_embeddings();
      for (Ready& ready : slot.waiters) waiters.push_back(std::move(ready));
      slot.waiters.clear();
    }
  }
  wake_.notify_all();
  const RequestError closing(ErrorKind::unavailable, "the server is shutting down");
  for (const Ready& ready : waiters) ready(nullptr, &closing);
  thread_.join();
  {
    const std::lock_guard lock(mutex_);
    for (Slot& slot : slots_) slot.served.reset();
  }
  while (true) {
    graveyard_->clear();
    std::unique_lock lock(graveyard_->mutex);
    if (graveyard_->alive == 0) return;
    graveyard_->changed.wait_for(lock, std::chrono::milliseconds(100),
                                 [&] { return !graveyard_->dead.empty(); });
  }
}

std::string Models::names() const {
  std::string list;
  constexpr std::size_t kMostNames = 20;
  for (std::size_t i = 0; i < slots_.size() && i < kMostNames; ++i)
    list += (list.empty() ? "" : ", ") + slots_[i].entry.id;
  if (slots_.size() > kMostNames) list += fmt::format(" and {} more", slots_.size() - kMostNames);
  return list;
}

Models::Slot* Models::find(std::string_view name) {
  if (name.empty() || name == "default") return &slots_.front();
  for (Slot& slot : slots_) {
    const auto& aliases = slot.entry.aliases;
    if (slot.entry.id == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end())
      return &slot;
  }
  return nullptr;
}

std::optional<Models::State> Models::state(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const Slot* slot = const_cast<Models*>(this)->find(name);
  return slot == nullptr ? std::nullopt : std::optional(slot->state);
}

std::optional<std::chrono::seconds> Models::usual_idle() const {
  return options_.keep_idle.count() > 0 ? std::optional(options_.keep_idle) : std::nullopt;
}

/// Looks for new entries, without the lock.
void Models::discover(std::unique_lock<std::mutex>& lock) {
  if (!options_.discover) return;
  lock.unlock();
  std::vector<ModelEntry> found = options_.discover();
  lock.lock();
  for (ModelEntry& entry : found) {
    const bool known = std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
      return slot.entry.path == entry.path || slot.entry.id == entry.id;
    });
    if (!known) add(std::move(entry));
  }
}

void Models::acquire(std::string_view name, Ready ready) {
  std::shared_ptr<Served> served;
  {
    std::unique_lock lock(mutex_);
    Slot* slot = find(name);
    if (slot == nullptr) {
      discover(lock);
      slot = find(name);
    }
    if (slot == nullptr || stopping_) {
      const RequestError error =
          slot == nullptr ? RequestError(ErrorKind::unknown_model,
                                         fmt::format("the model \"{}\" does not exist; this server has {}",
                                                     printable(name, 100), names()),
                                         "model")
                          : RequestError(ErrorKind::unavailable, "the server is shutting down");
      lock.unlock();
      return ready(nullptr, &error);
    }
    const auto now = std::chrono::steady_clock::now();
    slot->last_used = now;
    // A model that has waited for long gets its turn: those in use take no more requests until then.
    const bool gives_way = blocked_ != nullptr && blocked_ != slot && now - blocked_since_ > kMostBlocked;
    if (slot->state != State::ready || gives_way) {
      if (slot->state != State::ready) slot->state = State::loading;
      slot->waiters.push_back(std::move(ready));
      wake_.notify_all();
      return;
    }
    served = slot->served;
  }
  ready(std::move(served), nullptr);
}

void Models::preload() {
  if (options_.preload) acquire("", [](const std::shared_ptr<Served>&, const RequestError*) {});
}

Models::Slot* Models::next_wanted() {
  if (blocked_ != nullptr && !blocked_->waiters.empty()) return blocked_;
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.waiters.empty(); });
  return slot == slots_.end() ? nullptr : &*slot;
}

void Models::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    // The timeout is for models that became nobody's, and for room that others made.
    wake_.wait_for(lock, std::chrono::milliseconds(200),
                   [&] { return stopping_ || next_wanted() != nullptr || graveyard_->has_dead(); });
    lock.unlock();
    graveyard_->clear();
    lock.lock();
    if (stopping_) return;
    if (Slot* slot = next_wanted()) load_one(*slot, lock);
  }
}

std::size_t Models::loaded_count() const {
  return static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.served != nullptr; }));
}

std::uint64_t Models::bytes_taken() const {
  std::uint64_t bytes = 0;
  for (const Slot& slot : slots_) {
    if (!slot.served) continue;
    const engine::MemoryReport& memory = slot.served->service->memory();
    bytes += memory.weights + memory.kv + memory.scratch;
  }
  return bytes;
}

Models::Unloaded Models::unload_oldest(std::unique_lock<std::mutex>& lock) {
  if (loaded_count() == 0) return Unloaded::none_loaded;
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (!slot.served || slot.served.use_count() > 1) continue;
    if (oldest == nullptr || slot.last_used < oldest->last_used) oldest = &slot;
  }
  if (oldest == nullptr) return Unloaded::none_idle;
  log::info("unloading {} to make room", oldest->entry.id);
  unload(*oldest);
  lock.unlock();
  graveyard_->clear();
  lock.lock();
  return Unloaded::one;
}

bool Models::try_load(Slot& slot, std::unique_lock<std::mutex>& lock, std::optional<RequestError>& failure) {
  while (loaded_count() >= std::max<std::size_t>(options_.most_loaded, 1)) {
    if (unload_oldest(lock) != Unloaded::one) return false;
  }
  while (true) {
    const ModelEntry entry = slot.entry;
    const std::uint64_t taken = bytes_taken();
    bool no_memory = false;
    std::shared_ptr<Served> served;
    lock.unlock();
    try {
      std::unique_ptr<Served> loaded = load_(entry, taken);
      loaded->prepare();
      {
        const std::lock_guard alive(graveyard_->mutex);
        ++graveyard_->alive;
      }
      served = std::shared_ptr<Served>(loaded.release(), [graveyard = graveyard_](Served* p) {
        const std::lock_guard dead(graveyard->mutex);
        graveyard->dead.emplace_back(p);
        graveyard->changed.notify_all();
      });
    } catch (const std::exception& error) {
      const auto* known = dynamic_cast<const Error*>(&error);
      no_memory = known != nullptr && known->code() == ErrorCode::out_of_memory;
      const RequestError reason = current_request_error();
      failure.emplace(no_memory ? ErrorKind::unavailable : reason.kind(),
                      fmt::format("{} could not be loaded: {}", entry.id, error.what()), "model");
    }
    lock.lock();
    if (served) {
      failure.reset();
      slot.served = std::move(served);
      return true;
    }
    if (!no_memory) return true;
    const Unloaded unloaded = unload_oldest(lock);
    if (unloaded == Unloaded::none_loaded) return true;  // alone it does not fit either
    if (unloaded == Unloaded::none_idle) return false;
    failure.reset();
  }
}

void Models::load_one(Slot& slot, std::unique_lock<std::mutex>& lock) {
  std::optional<RequestError> failure;
  if (!slot.served) {
    slot.state = State::loading;
    if (!try_load(slot, lock, failure)) {
      if (blocked_ == nullptr) {
        blocked_ = &slot;
        blocked_since_ = std::chrono::steady_clock::now();
      }
      wake_.wait_for(lock, std::chrono::milliseconds(50), [&] { return stopping_; });
      return;  // asked again by the loop
    }
    if (failure) log::error("{}", failure->message());
  }
  if (blocked_ == &slot) blocked_ = nullptr;
  std::shared_ptr<Served> served = slot.served;
  slot.state = served ? State::ready : State::failed;
  slot.error = failure ? failure->message() : "";
  slot.last_used = std::chrono::steady_clock::now();
  const std::vector<Ready> waiters = std::exchange(slot.waiters, {});
  lock.unlock();
  for (const Ready& ready : waiters) ready(served, failure ? &*failure : nullptr);
  served.reset();
  lock.lock();
}

std::vector<Models::Listed> Models::list() const {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  std::vector<Listed> list;
  for (const Slot& slot : slots_) {
    list.push_back({slot.entry, slot.state, slot.error, slot.served});
    if (!slot.served || !slot.keep_idle) continue;
    const auto left =
        *slot.keep_idle - std::chrono::duration_cast<std::chrono::seconds>(now - slot.last_used);
    list.back().idle_left = std::max(left, std::chrono::seconds(0));
  }
  return list;
}

std::vector<Models::Listed> Models::refreshed_list() {
  {
    std::unique_lock lock(mutex_);
    discover(lock);
  }
  return list();
}

void Models::keep(std::string_view name, std::optional<std::chrono::seconds> idle) {
  const std::lock_guard lock(mutex_);
  if (Slot* slot = find(name)) slot->keep_idle = idle;
}

void Models::tick() {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  for (Slot& slot : slots_) {
    if (!slot.served || !slot.keep_idle) continue;
    if (slot.served.use_count() > 1) {
      slot.last_used = now;
      continue;
    }
    if (now - slot.last_used < *slot.keep_idle) continue;
    log::info("unloading {}: nobody has asked for {} s", slot.entry.id, slot.keep_idle->count());
    unload(slot);
  }
}

void Models::unload(Slot& slot) {
  slot.served.reset();
  slot.state = State::unloaded;
  slot.keep_idle = usual_idle();
}

}  // namespace quipu::server

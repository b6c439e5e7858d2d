#include "server/models.hpp"

#include <algorithm>
#include <utility>

#include "core/log.hpp"

namespace quipu::server {

namespace {
constexpr std::size_t kKeptConstraints = 16;
}

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
  for (ModelEntry& entry : entries) {
    Slot slot;
    slot.entry = std::move(entry);
    slots_.push_back(std::move(slot));
  }
  if (slots_.empty()) fail(ErrorCode::invalid_argument, "there is no model to serve");
  thread_ = std::thread([this] { loop(); });
}

Models::~Models() {
  std::vector<Ready> waiters;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (Slot& slot : slots_) {
      if (slot.served) slot.served->service->drain();
      if (slot.served) slot.served->service->cancel_all();
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
  for (const Slot& slot : slots_) list += (list.empty() ? "" : ", ") + slot.entry.id;
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

bool Models::knows(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return const_cast<Models*>(this)->find(name) != nullptr;
}

void Models::acquire(std::string_view name, Ready ready) {
  std::shared_ptr<Served> served;
  {
    const std::lock_guard lock(mutex_);
    Slot* slot = find(name);
    if (slot == nullptr || stopping_) {
      const RequestError error =
          slot == nullptr ? RequestError(ErrorKind::unknown_model,
                                         fmt::format("the model \"{}\" does not exist; this server has {}",
                                                     printable(name, 100), names()),
                                         "model")
                          : RequestError(ErrorKind::unavailable, "the server is shutting down");
      return ready(nullptr, &error);
    }
    slot->last_used = std::chrono::steady_clock::now();
    if (slot->state != State::ready) {
      slot->state = State::loading;
      slot->waiters.push_back(std::move(ready));
      wake_.notify_all();
      return;
    }
    served = slot->served;
  }
  ready(std::move(served), nullptr);
}

void Models::preload() {
  acquire("", [](const std::shared_ptr<Served>&, const RequestError*) {});
}

void Models::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto wanted = [&] {
      return std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.waiters.empty(); });
    };
    // The timeout is for models that became nobody's, and for room that others made.
    wake_.wait_for(lock, std::chrono::milliseconds(200),
                   [&] { return stopping_ || wanted() != slots_.end() || graveyard_->has_dead(); });
    lock.unlock();
    graveyard_->clear();
    lock.lock();
    if (const auto slot = wanted(); !stopping_ && slot != slots_.end()) load_one(*slot, lock);
  }
}

/// False while every loaded model is in use.
bool Models::make_room(std::unique_lock<std::mutex>& lock) {
  std::vector<Slot*> loaded;
  for (Slot& slot : slots_) {
    if (slot.served) loaded.push_back(&slot);
  }
  if (loaded.size() < options_.most_loaded) return true;
  Slot* oldest = nullptr;
  for (Slot* slot : loaded) {
    if (slot->served.use_count() > 1) continue;
    if (oldest == nullptr || slot->last_used < oldest->last_used) oldest = slot;
  }
  if (oldest == nullptr) return false;
  log::info("unloading {} to make room", oldest->entry.id);
  oldest->served.reset();
  oldest->state = State::unloaded;
  lock.unlock();
  graveyard_->clear();
  lock.lock();
  return true;
}

void Models::load_one(Slot& slot, std::unique_lock<std::mutex>& lock) {
  if (!slot.served) {
    slot.state = State::loading;
    if (!make_room(lock)) {
      wake_.wait_for(lock, std::chrono::milliseconds(50), [&] { return stopping_; });
      return;  // asked again by the loop
    }
  }
  const ModelEntry entry = slot.entry;
  std::shared_ptr<Served> served = slot.served;
  std::optional<RequestError> failure;
  if (!served) {
    lock.unlock();
    try {
      std::unique_ptr<Served> loaded = load_(entry);
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
      log::error("{} could not be loaded: {}", entry.id, error.what());
      failure.emplace(ErrorKind::internal, fmt::format("{} could not be loaded: {}", entry.id, error.what()));
    }
    lock.lock();
  }
  slot.served = served;
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
  std::vector<Listed> list;
  for (const Slot& slot : slots_) list.push_back({slot.entry, slot.state, slot.error, slot.served});
  return list;
}

void Models::tick() {
  if (options_.keep_idle.count() == 0) return;
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  for (Slot& slot : slots_) {
    if (!slot.served || slot.served.use_count() > 1 || now - slot.last_used < options_.keep_idle) continue;
    log::info("unloading {}: idle for {} s", slot.entry.id, options_.keep_idle.count());
    slot.served.reset();
    slot.state = State::unloaded;
  }
}

}  // namespace quipu::server

#include "server/embedding_service.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "core/error.hpp"
#include "server/engine_service.hpp"

namespace quipu::server {

using models::Pooling;

namespace {

/// Texts of one turn: jobs that came later get their share before a long one is through.
constexpr std::size_t kTurn = 64;

}  // namespace

struct EmbeddingService::Impl {
  struct Waiting {
    EmbeddingJob job;
    std::vector<std::vector<float>> rows = {};  ///< of the first texts
  };

  std::shared_ptr<const models::Model> model;
  engine::EmbedderOptions options;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Waiting>> queue;                      // guarded
  std::size_t queued_texts = 0;                                    // guarded
  bool stopping = false;                                           // guarded
  std::map<Pooling, std::unique_ptr<engine::Embedder>> embedders;  // guarded; each is run by the thread alone
  std::thread thread;

  engine::Embedder& embedder(Pooling pooling);
  void loop();
  void turn(const std::vector<std::shared_ptr<Waiting>>& jobs);
};

/// The caller holds the lock.
engine::Embedder& EmbeddingService::Impl::embedder(Pooling pooling) {
  std::unique_ptr<engine::Embedder>& found = embedders[pooling];
  if (!found) {
    engine::EmbedderOptions own = options;
    own.pooling = pooling;
    found = std::make_unique<engine::Embedder>(model, std::move(own));
  }
  return *found;
}

void EmbeddingService::Impl::loop() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stopping || !queue.empty(); });
    if (stopping) break;
    // The oldest job and those behind it with the same pooling.
    std::vector<std::shared_ptr<Waiting>> jobs;
    std::size_t texts = 0;
    for (const auto& waiting : queue) {
      if (waiting->job.pooling != queue.front()->job.pooling || texts >= kTurn) continue;
      jobs.push_back(waiting);
      texts += waiting->job.passages.size() - waiting->rows.size();
    }
    lock.unlock();
    turn(jobs);
    lock.lock();
    std::vector<std::shared_ptr<Waiting>> done;
    std::erase_if(queue, [&](const auto& waiting) {
      if (waiting->rows.size() < waiting->job.passages.size()) return false;
      done.push_back(waiting);
      queued_texts -= waiting->job.passages.size();
      return true;
    });
    // A long job goes behind those that wait.
    if (queue.size() > 1 && !jobs.empty() && queue.front() == jobs.front()) {
      queue.push_back(queue.front());
      queue.pop_front();
    }
    lock.unlock();
    for (const auto& waiting : done)
      if (waiting->job.on_done) waiting->job.on_done(std::move(waiting->rows), nullptr);
    done.clear();
    jobs.clear();
    lock.lock();
  }
  const auto left = std::move(queue);
  lock.unlock();
  const auto closing = std::make_exception_ptr(Error(ErrorCode::cancelled, "the server is shutting down"));
  for (const auto& waiting : left)
    if (waiting->job.on_done) waiting->job.on_done({}, closing);
}

/// Computes the next texts of the jobs. A job that fails is over.
void EmbeddingService::Impl::turn(const std::vector<std::shared_ptr<Waiting>>& jobs) {
  std::vector<engine::Passage> texts;
  std::vector<std::size_t> shares;
  for (const auto& waiting : jobs) {
    const auto& passages = waiting->job.passages;
    const std::size_t first = waiting->rows.size();
    const std::size_t count = std::min(passages.size() - first, kTurn - std::min(kTurn, texts.size()));
    texts.insert(texts.end(), passages.begin() + static_cast<std::ptrdiff_t>(first),
                 passages.begin() + static_cast<std::ptrdiff_t>(first + count));
    shares.push_back(count);
  }
  try {
    std::unique_lock lock(mutex);
    engine::Embedder& found = embedder(jobs.front()->job.pooling);
    lock.unlock();
    auto rows = found.embed(texts);
    auto next = rows.begin();
    for (std::size_t i = 0; i < jobs.size(); ++i)
      for (std::size_t k = 0; k < shares[i]; ++k) jobs[i]->rows.push_back(std::move(*next++));
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    for (const auto& waiting : jobs) {
      waiting->rows.resize(waiting->job.passages.size());
      if (waiting->job.on_done) waiting->job.on_done({}, error);
      waiting->job.on_done = nullptr;
    }
  }
}

EmbeddingService::EmbeddingService(const models::Model& model, engine::EmbedderOptions options)
    : impl_(std::make_unique<Impl>()) {
  // Not owned: the service belongs to whoever owns the model.
  impl_->model = std::shared_ptr<const models::Model>(std::shared_ptr<const models::Model>(), &model);
  if (options.backends.empty()) options.backends.push_back(backends::make_cpu_backend());
  if (!options.pooling) options.pooling = engine::default_pooling(model);
  impl_->options = std::move(options);
  impl_->embedder(default_pooling());
  impl_->thread = std::thread([this] { impl_->loop(); });
}

EmbeddingService::~EmbeddingService() {
  stop();
  impl_->thread.join();
}

void EmbeddingService::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
}

Pooling EmbeddingService::default_pooling() const { return *impl_->options.pooling; }

std::int64_t EmbeddingService::context() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->embedder(default_pooling()).context();
}

std::int64_t EmbeddingService::width() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->embedder(default_pooling()).width();
}

void EmbeddingService::submit(EmbeddingJob job) {
  Impl& s = *impl_;
  const std::size_t texts = job.passages.size();
  if (texts == 0) return job.on_done({}, nullptr);
  {
    const std::lock_guard lock(s.mutex);
    if (s.stopping) fail(ErrorCode::cancelled, "the server is shutting down");
    if (s.queued_texts > 0 && s.queued_texts + texts > kMostQueuedTexts)
      throw QueueFull(s.queued_texts, kMostQueuedTexts, 1);
    s.embedder(job.pooling).check(job.passages);
    s.queued_texts += texts;
    s.queue.push_back(std::make_shared<Impl::Waiting>(Impl::Waiting{std::move(job)}));
  }
  s.changed.notify_one();
}

}  // namespace quipu::server

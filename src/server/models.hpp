// The models a server offers: loaded on first use, one load at a time, unloaded when idle.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/adapters.hpp"
#include "server/embedding_service.hpp"
#include "server/engine_service.hpp"
#include "server/request_error.hpp"
#include "text/conversation/chat_format.hpp"
#include "text/grammar/grammar.hpp"

namespace quipu::server {

/// A model that may be asked for.
struct ModelEntry {
  std::string id;                    ///< as `/v1/models` lists it
  std::vector<std::string> aliases;  ///< further names that clients may use
  std::filesystem::path path;
};

/// A loaded model. Whoever holds one keeps it loaded.
struct Served {
  ModelEntry entry;
  std::int64_t loaded_at = 0;  ///< Unix time, seconds
  engine::Request defaults;    ///< what a request that says nothing gets
  AdapterScales adapters;      ///< those of the engine
  bool random_seed = true;     ///< a request without a seed gets a random one, not that of the defaults
  std::unique_ptr<EngineService> service;
  std::unique_ptr<const text::ChatFormat> chat_format;  ///< null: the model has no usable chat template
  std::vector<text::Token> markers;   ///< control tokens that the chat format's output is read by
  engine::EmbedderOptions embedding;  ///< how `embeddings` are made

  const models::Model& model() const { return service->model(); }
  /// What follows from the model itself: the chat format. Called once it is loaded.
  void prepare();
  /// Vectors and scores of texts; the service is made at the first use. Any thread. Throws what its
  /// constructor throws.
  EmbeddingService& embeddings() const;
  void stop_embeddings() const;  ///< if there are any
  /// What holds an answer.
  struct AnswerRules {
    std::shared_ptr<text::grammar::Constraint> constraint;  ///< null: nothing
    std::vector<std::string> warnings;                      ///< what cannot be held
  };
  /// What `make` gives; the last few are kept by their key, so that requests of the same form share what was
  /// computed for it. Throws what `make` throws.
  AnswerRules answer_rules(const std::string& key, const std::function<AnswerRules()>& make) const;
  /// The grammar that `make` gives over the vocabulary, kept likewise.
  std::shared_ptr<text::grammar::Constraint> constraint(
      const std::string& key, const std::function<text::grammar::Grammar()>& make) const;

 private:
  using Kept = std::pair<std::string, AnswerRules>;
  mutable std::mutex constraints_mutex_;
  mutable std::vector<Kept> constraints_;  // guarded; the last used one behind
  mutable std::mutex embeddings_mutex_;
  mutable std::unique_ptr<EmbeddingService> embeddings_;  // guarded; it refers to the model of `service`
};

struct ModelsOptions {
  std::size_t most_loaded = 1;        ///< further ones replace the one that was idle longest
  std::chrono::seconds keep_idle{0};  ///< unload after so long without a request; 0: never
  bool preload = true;                ///< load the first entry before it is asked for
  /// Entries that came to be since the start; asked when a name is unknown or all are listed. None: there are
  /// only those given.
  std::function<std::vector<ModelEntry>()> discover;
};

class Models {
 public:
  /// Loads an entry, on the loading thread; `taken`: bytes that the other loaded models hold. Throws `Error`;
  /// after out_of_memory it is asked again when another model was unloaded.
  using Load = std::function<std::unique_ptr<Served>(const ModelEntry&, std::uint64_t taken)>;
  /// Gets the model or the reason why not; called once, on the loading thread or inside `acquire`.
  using Ready = std::function<void(std::shared_ptr<Served>, const RequestError*)>;

  Models(std::vector<ModelEntry> entries, Load load, const ModelsOptions& options = {});
  /// Cancels all work of the models and waits until nobody holds one any more.
  ~Models();

  /// Calls `ready` as soon as the model is loaded. An empty name and "default" mean the first entry. An
  /// unknown name is an error (unknown_model), as is a failed load.
  void acquire(std::string_view name, Ready ready);
  /// Begins to load the first entry, if that is wanted.
  void preload();

  enum class State { unloaded, loading, ready, failed };
  struct Listed {
    ModelEntry entry;
    State state;
    std::string error;  ///< of the last load
    std::shared_ptr<Served> served;
    /// Until it is unloaded, should nobody ask; nothing: it stays.
    std::optional<std::chrono::seconds> idle_left = std::nullopt;
  };
  std::vector<Listed> list() const;
  /// The same, with what was found since.
  std::vector<Listed> refreshed_list();
  /// Nothing: no such model.
  std::optional<State> state(std::string_view name) const;
  /// How long this model stays once nobody uses it, until it is unloaded; 0: not at all, nothing: for ever.
  void keep(std::string_view name, std::optional<std::chrono::seconds> idle);
  /// Unloads what has been idle for too long.
  void tick();

 private:
  struct Slot {
    ModelEntry entry;
    State state = State::unloaded;
    std::string error;
    std::shared_ptr<Served> served;
    std::vector<Ready> waiters;
    std::chrono::steady_clock::time_point last_used;
    std::optional<std::chrono::seconds> keep_idle;  // nothing: it stays
  };
  /// Served models are destroyed on the loading thread, never on their own engine's.
  struct Graveyard;

  Slot* find(std::string_view name);
  void add(ModelEntry entry);
  /// Of those about which nothing else was said.
  std::optional<std::chrono::seconds> usual_idle() const;
  void discover(std::unique_lock<std::mutex>& lock);
  Slot* next_wanted();
  void loop();
  void load_one(Slot& slot, std::unique_lock<std::mutex>& lock);
  /// One attempt. Nothing, with the slot as it was: there is no memory while others are in use.
  bool try_load(Slot& slot, std::unique_lock<std::mutex>& lock, std::optional<RequestError>& failure);
  enum class Unloaded { one, none_idle, none_loaded };
  Unloaded unload_oldest(std::unique_lock<std::mutex>& lock);
  void unload(Slot& slot);
  std::size_t loaded_count() const;
  std::uint64_t bytes_taken() const;
  std::string names() const;

  Load load_;
  ModelsOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Slot> slots_;   // stay where they are; never fewer
  Slot* blocked_ = nullptr;  // waits for others to be unloaded …
  std::chrono::steady_clock::time_point blocked_since_;
  std::shared_ptr<Graveyard> graveyard_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quipu::server

// What the engine's places remember between jobs: for `id_slot`, and to be saved to and restored from files.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.hpp"

namespace quipu::server {

/// What an operation on a slot did.
struct SlotReport {
  std::int64_t tokens = 0;  ///< saved, restored or erased
  std::uint64_t bytes = 0;  ///< of the file
  double milliseconds = 0;
};
/// Gets the report, or the exception when there is one. Called on the engine's thread.
using SlotDone = std::function<void(const SlotReport&, std::exception_ptr)>;

/// All members are called on the engine's thread, between steps.
class SlotMemory {
 public:
  /// `keep`: places remember what ran in them, whether or not a request named them.
  SlotMemory(engine::Engine& engine, std::size_t places, bool keep);
  /// Waits for files that are being written.
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  /// Of the places that `free` allows, the one a prompt should go to: the one that remembers most of it, else
  /// one that remembers nothing, else the one used longest ago.
  std::size_t choose(std::span<const std::int32_t> prompt,
                     const std::function<bool(std::size_t)>& free) const;
  /// Submits a request to a place. It goes on from what the place remembers, unless the prefix cache knows
  /// more; the rest of that is forgotten. Throws what `Engine::submit` throws.
  engine::RequestId submit(std::size_t place, engine::Request request);
  /// The request of this place has ended: remembers its sequence, or lets it go.
  void finished(std::size_t place, engine::RequestId id, bool named);

  /// Begins to write the place's content to a file, on a thread of its own. The place must not be used until
  /// `collect_saved` returns it.
  void save(std::size_t place, const std::filesystem::path& path, SlotDone done, std::function<void()> wake);
  /// Places whose files are written, or failed to be; their `done` has been called.
  std::vector<std::size_t> collect_saved();
  /// Waits for files under way, so that their pages can be given up. False when there are none.
  bool finish_saves();
  void restore(std::size_t place, const std::filesystem::path& path, const SlotDone& done);
  void erase(std::size_t place, const SlotDone& done);

 private:
  struct Saving {
    std::size_t place;
    memory::Sequence sequence;
    SlotDone done;
    std::future<SlotReport> written;
    std::thread thread;
  };
  struct Place {
    engine::RequestId parked = 0;  ///< 0: nothing
    std::uint64_t last_used = 0;
  };
  const memory::Sequence* content(std::size_t place) const;
  std::int64_t shared_prefix(std::size_t place, std::span<const std::int32_t> prompt) const;

  engine::Engine& engine_;
  bool keep_;
  std::uint64_t clock_ = 0;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<Saving>> saving_;
  std::vector<std::size_t> saved_;  // places of saves that `finish_saves` ended
};

/// The file of a slot's content. Throws `Error` (invalid_argument) for a name that is no plain file name:
/// empty, with a path in it, longer than 255 bytes, hidden, with control characters.
std::filesystem::path slot_file(const std::filesystem::path& folder, const std::string& name);

}  // namespace quipu::server

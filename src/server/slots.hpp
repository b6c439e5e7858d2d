// What the engine's places remember between jobs: for `id_slot`, and to be saved to and restored from files.
#pragma once

#include <chrono>
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

#include "core/error.hpp"
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
  /// `keep`: places remember what ran in them, whether or not a request named them. `piece`: bytes that
  /// `go_on` takes over from a file at once.
  SlotMemory(engine::Engine& engine, std::size_t places, bool keep, std::size_t piece);
  /// Ends what is under way, as `finish_files` does.
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  /// Of the places that `free` allows, the one a request should go to: the one that remembers most of its
  /// prompt, else one that remembers nothing, else the one used longest ago.
  std::size_t choose(const engine::Request& request, const std::function<bool(std::size_t)>& free) const;
  /// Submits a request to a place. It goes on from what the place remembers, unless the prefix cache knows
  /// more; the rest of that is forgotten. Throws what `Engine::submit` throws.
  engine::RequestId submit(std::size_t place, engine::Request request);
  /// The request of this place has ended: remembers its sequence, or lets it go.
  void finished(std::size_t place, engine::RequestId id, bool named);

  /// Begins to write the place's content to a file, or to read it from one, on a thread of its own, which
  /// calls `wake` at its end. The place must not be used until `go_on` returns it.
  void save(std::size_t place, const std::filesystem::path& path, SlotDone done, std::function<void()> wake);
  void restore(std::size_t place, const std::filesystem::path& path, std::span<const float> adapters,
               SlotDone done, std::function<void()> wake);
  /// Takes over some of the pages that have been read. Returns the places whose files are written or read, or
  /// failed to be; their `done` has been called.
  std::vector<std::size_t> go_on();
  /// Whether `go_on` has something to do without waiting for a thread.
  bool has_pages_to_take() const;
  /// Ends what is under way, so that its pages can be given up: waits for files that are written, breaks off
  /// those that are read, which say `why`. False when there are none.
  bool finish_files(const Error& why);
  void erase(std::size_t place, const SlotDone& done);

 private:
  struct Saving {
    std::size_t place;
    memory::Sequence sequence;
    SlotDone done;
    std::future<SlotReport> written;
    std::thread thread;
  };
  struct File;  // mapped and checked
  struct Restoring {
    std::size_t place;
    memory::Sequence sequence;  // what has been taken over
    SlotDone done;
    std::future<std::unique_ptr<File>> read;
    std::thread thread;
    std::unique_ptr<File> file;  // null: the thread is at it
    std::chrono::steady_clock::time_point began;
  };
  struct Place {
    engine::RequestId parked = 0;  ///< 0: nothing
    std::uint64_t last_used = 0;
  };
  const memory::Sequence* content(std::size_t place) const;
  /// Tokens of the prompt that the place remembers, computed with the request's adapters.
  std::int64_t shared_prefix(std::size_t place, const engine::Request& request) const;

  engine::Engine& engine_;
  bool keep_;
  std::size_t piece_;
  std::uint64_t clock_ = 0;
  std::vector<Place> places_;
  void collect_saved();
  std::vector<std::unique_ptr<Restoring>>::iterator next_restore();
  bool take_pages(Restoring& restoring);
  void end(Restoring& restoring, std::exception_ptr failure);

  std::vector<std::unique_ptr<Saving>> saving_;
  std::vector<std::unique_ptr<Restoring>> restoring_;
  std::vector<std::size_t> ended_;  // places that `go_on` has not returned yet
};

/// What is told to whom the server's end cuts off.
Error shutting_down();

/// The file of a slot's content. Throws `Error` (invalid_argument) for a name that is no plain file name:
/// empty, with a path in it, longer than 255 bytes, hidden, with control characters.
std::filesystem::path slot_file(const std::filesystem::path& folder, const std::string& name);

}  // namespace quipu::server

#include "server/slots.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/mapped_file.hpp"
#include "memory/state_file.hpp"
#include "text/unicode.hpp"

namespace quipu::server {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

template <class T>
bool is_ready(const std::future<T>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

/// What the thread of a restore makes.
struct SlotMemory::File {
  MappedFile map;
  memory::ParsedState state;
};

SlotMemory::SlotMemory(engine::Engine& engine, std::size_t places, bool keep, std::size_t piece)
    : engine_(engine), keep_(keep), piece_(piece), places_(places) {}

SlotMemory::~SlotMemory() { finish_files(shutting_down()); }

const memory::Sequence* SlotMemory::content(std::size_t place) const {
  return places_[place].parked == 0 ? nullptr : engine_.parked(places_[place].parked);
}

std::int64_t SlotMemory::shared_prefix(std::size_t place, const engine::Request& request) const {
  const memory::Sequence* stored = content(place);
  if (stored == nullptr) return 0;
  if (stored->content_key() != engine_.new_sequence(request.adapters).content_key()) return 0;
  const std::span<const std::int32_t> prompt(request.prompt);
  const auto tokens = stored->tokens();
  return std::mismatch(prompt.begin(), prompt.end(), tokens.begin(), tokens.end()).first - prompt.begin();
}

std::size_t SlotMemory::choose(const engine::Request& request,
                               const std::function<bool(std::size_t)>& free) const {
  std::optional<std::size_t> best;
  const auto rank = [&](std::size_t place) {
    return std::tuple(-shared_prefix(place, request), content(place) != nullptr, places_[place].last_used);
  };
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (free(place) && (!best || rank(place) < rank(*best))) best = place;
  }
  return *best;
}

engine::RequestId SlotMemory::submit(std::size_t place, engine::Request request) {
  places_[place].last_used = ++clock_;
  if (places_[place].parked == 0) return engine_.submit(std::move(request));
  const bool useful = request.reuse_prefix &&
                      shared_prefix(place, request) > engine_.known_prefix(request.prompt, request.adapters);
  std::optional<memory::Sequence> stored = engine_.take_sequence(std::exchange(places_[place].parked, 0));
  return engine_.submit(std::move(request), useful && stored ? &*stored : nullptr);
}

void SlotMemory::finished(std::size_t place, engine::RequestId id, bool named) {
  places_[place].last_used = ++clock_;
  if (keep_ || named) {
    places_[place].parked = id;
  } else {
    engine_.take_sequence(id);  // pages stay known to the prefix tree
  }
}

// ---- files ----

void SlotMemory::save(std::size_t place, const fs::path& path, SlotDone done, std::function<void()> wake) {
  std::optional<memory::Sequence> stored;
  if (places_[place].parked != 0) stored = engine_.take_sequence(std::exchange(places_[place].parked, 0));
  auto saving = std::make_unique<Saving>(
      Saving{place, stored ? std::move(*stored) : engine_.new_sequence(), std::move(done), {}, {}});
  // Nobody writes to these pages meanwhile: the place is not used, and shared pages are copied first.
  std::packaged_task<SlotReport()> task(
      [path, sequence = &saving->sequence, fingerprint = engine_.model().fingerprint()] {
        const auto began = Clock::now();
        SlotReport report;
        report.tokens = sequence->length();
        sequence->save(path, fingerprint);
        report.bytes = fs::file_size(path);
        report.milliseconds = milliseconds_since(began);
        return report;
      });
  saving->written = task.get_future();
  saving->thread = std::thread([task = std::move(task), wake = std::move(wake)]() mutable {
    task();
    wake();
  });
  saving_.push_back(std::move(saving));
}

void SlotMemory::collect_saved() {
  for (auto& saving : saving_) {
    if (!is_ready(saving->written)) continue;
    saving->thread.join();
    SlotReport report;
    std::exception_ptr failure;
    try {
      report = saving->written.get();
    } catch (...) {
      failure = std::current_exception();
    }
    if (saving->sequence.length() > 0)
      places_[saving->place].parked = engine_.park(std::move(saving->sequence));
    ended_.push_back(saving->place);
    saving->done(report, failure);
    saving.reset();
  }
  std::erase(saving_, nullptr);
}

void SlotMemory::restore(std::size_t place, const fs::path& path, std::span<const float> adapters,
                         SlotDone done, std::function<void()> wake) {
  auto restoring = std::make_unique<Restoring>(
      Restoring{place, engine_.new_sequence(adapters), std::move(done), {}, {}, {}, Clock::now()});
  const std::uint64_t fingerprint = engine_.model().fingerprint() ^ restoring->sequence.content_key();
  std::packaged_task<std::unique_ptr<File>()> task([path, fingerprint, pool = restoring->sequence.pool()] {
    if (!fs::is_regular_file(path))
      fail(ErrorCode::not_found, "there is no saved slot \"{}\"", printable(path.filename().string(), 80));
    auto file = std::make_unique<File>(File{MappedFile(path), {}});
    file->state = memory::parse_state(file->map.bytes(), printable(path.string()), pool->shape(),
                                      pool->page_bytes(), fingerprint);
    return file;
  });
  restoring->read = task.get_future();
  restoring->thread = std::thread([task = std::move(task), wake = std::move(wake)]() mutable {
    task();
    wake();
  });
  restoring_.push_back(std::move(restoring));
}

/// A piece of the pages; false when that was the last one.
bool SlotMemory::take_pages(Restoring& restoring) {
  const memory::ParsedState& state = restoring.file->state;
  memory::Sequence& sequence = restoring.sequence;
  const std::size_t piece = std::min(std::max<std::size_t>(piece_ / sequence.pool()->page_bytes(), 1),
                                     state.layout.pages - sequence.pages().size());
  if (piece > 0 && !engine_.free_pages(piece))
    fail(ErrorCode::out_of_memory, "{} tokens need {} cache pages, all but {} are in use",
         state.tokens.size(), state.layout.pages, sequence.pages().size() + sequence.pool()->free_pages());
  sequence.append_state(state, piece);
  return sequence.pages().size() < state.layout.pages;
}

void SlotMemory::end(Restoring& restoring, std::exception_ptr failure) {
  SlotReport report;
  if (!failure) {
    Place& place = places_[restoring.place];
    report.tokens = restoring.sequence.length();
    report.bytes = restoring.file->map.bytes().size();
    if (place.parked != 0) engine_.take_sequence(std::exchange(place.parked, 0));
    if (report.tokens > 0) place.parked = engine_.park(std::move(restoring.sequence));
    place.last_used = ++clock_;
    report.milliseconds = milliseconds_since(restoring.began);
  }
  restoring.sequence.truncate(0);
  ended_.push_back(restoring.place);
  restoring.done(report, failure);
}

bool SlotMemory::has_pages_to_take() const {
  return std::any_of(restoring_.begin(), restoring_.end(),
                     [](const auto& r) { return r->file != nullptr || is_ready(r->read); });
}

/// The restore that goes on next. One ends before another begins: together they might lack pages.
std::vector<std::unique_ptr<SlotMemory::Restoring>>::iterator SlotMemory::next_restore() {
  const auto begun =
      std::find_if(restoring_.begin(), restoring_.end(), [](const auto& r) { return r->file != nullptr; });
  if (begun != restoring_.end()) return begun;
  return std::find_if(restoring_.begin(), restoring_.end(), [](const auto& r) { return is_ready(r->read); });
}

std::vector<std::size_t> SlotMemory::go_on() {
  collect_saved();
  if (const auto next = next_restore(); next != restoring_.end()) {
    Restoring& restoring = **next;
    std::exception_ptr failure;
    bool more = false;
    try {
      if (!restoring.file) {
        restoring.thread.join();
        restoring.file = restoring.read.get();
      }
      more = take_pages(restoring);
    } catch (...) {
      failure = std::current_exception();
    }
    if (!more) {
      end(restoring, failure);
      restoring_.erase(next);
    }
  }
  return std::exchange(ended_, {});
}

bool SlotMemory::finish_files(const Error& why) {
  if (saving_.empty() && restoring_.empty()) return false;
  for (const auto& saving : saving_) saving->written.wait();
  collect_saved();
  for (const auto& restoring : std::exchange(restoring_, {})) {
    if (restoring->thread.joinable()) restoring->thread.join();
    end(*restoring, std::make_exception_ptr(why));
  }
  return true;
}

void SlotMemory::erase(std::size_t place, const SlotDone& done) {
  SlotReport report;
  if (places_[place].parked != 0) {
    if (auto stored = engine_.take_sequence(std::exchange(places_[place].parked, 0)))
      report.tokens = stored->length();
  }
  done(report, nullptr);
}

Error shutting_down() { return {ErrorCode::cancelled, "the server is shutting down"}; }

fs::path slot_file(const fs::path& folder, const std::string& name) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::invalid_argument, "filename is \"{}\", which {}; expected a plain file name",
         printable(name, 80), why);
  };
  if (name.empty()) refuse("is empty");
  if (name.size() > 255) refuse("is longer than 255 bytes");
  if (name.front() == '.') refuse("begins with a dot");
  if (is_temporary_name(name)) refuse("is that of a file under way");
  if (text::valid_prefix(name) != name.size()) refuse("is not valid UTF-8");
  for (const char c : name) {
    if (c == '/' || c == '\\' || c == ':') refuse("is a path");
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) refuse("holds a control character");
  }
  return folder / name;
}

}  // namespace quipu::server

#include "server/slots.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "text/unicode.hpp"

namespace quipu::server {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

SlotMemory::SlotMemory(engine::Engine& engine, std::size_t places, bool keep)
    : engine_(engine), keep_(keep), places_(places) {}

SlotMemory::~SlotMemory() { finish_saves(); }

const memory::Sequence* SlotMemory::content(std::size_t place) const {
  return places_[place].parked == 0 ? nullptr : engine_.parked(places_[place].parked);
}

std::int64_t SlotMemory::shared_prefix(std::size_t place, std::span<const std::int32_t> prompt) const {
  const memory::Sequence* stored = content(place);
  if (stored == nullptr) return 0;
  const auto tokens = stored->tokens();
  return std::mismatch(prompt.begin(), prompt.end(), tokens.begin(), tokens.end()).first - prompt.begin();
}

std::size_t SlotMemory::choose(std::span<const std::int32_t> prompt,
                               const std::function<bool(std::size_t)>& free) const {
  std::optional<std::size_t> best;
  const auto rank = [&](std::size_t place) {
    return std::tuple(-shared_prefix(place, prompt), content(place) != nullptr, places_[place].last_used);
  };
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (free(place) && (!best || rank(place) < rank(*best))) best = place;
  }
  return *best;
}

engine::RequestId SlotMemory::submit(std::size_t place, engine::Request request) {
  places_[place].last_used = ++clock_;
  if (places_[place].parked == 0) return engine_.submit(std::move(request));
  const std::span<const std::int32_t> prompt(request.prompt);
  const bool useful = request.reuse_prefix && shared_prefix(place, prompt) > engine_.known_prefix(prompt);
  std::optional<memory::Sequence> stored = engine_.take_sequence(std::exchange(places_[place].parked, 0));
  return engine_.submit(std::move(request), useful && stored ? &*stored : nullptr);
}

void SlotMemory::finished(std::size_t place, engine::RequestId id, bool named) {
  places_[place].last_used = ++clock_;
  if (keep_ || named) {
    places_[place].parked = id;
  } else {
    engine_.take_sequence(id);  // full pages stay known to the prefix tree
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

std::vector<std::size_t> SlotMemory::collect_saved() {
  for (auto& saving : saving_) {
    if (saving->written.wait_for(std::chrono::seconds(0)) != std::future_status::ready) continue;
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
    saved_.push_back(saving->place);
    saving->done(report, failure);
    saving.reset();
  }
  std::erase(saving_, nullptr);
  return std::exchange(saved_, {});
}

bool SlotMemory::finish_saves() {
  if (saving_.empty()) return false;
  for (const auto& saving : saving_) saving->written.wait();
  saved_ = collect_saved();
  return true;
}

void SlotMemory::restore(std::size_t place, const fs::path& path, const SlotDone& done) {
  SlotReport report;
  std::exception_ptr failure;
  try {
    const auto began = Clock::now();
    if (!fs::is_regular_file(path))
      fail(ErrorCode::not_found, "there is no saved slot \"{}\"", printable(path.filename().string(), 80));
    report.bytes = fs::file_size(path);
    memory::Sequence fresh = engine_.new_sequence();
    try {
      fresh.restore(path, engine_.model().fingerprint());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) throw;
      engine_.free_pages(report.bytes / fresh.pool()->page_bytes() + 1);  // idle ones make room
      fresh.restore(path, engine_.model().fingerprint());
    }
    report.tokens = fresh.length();
    if (places_[place].parked != 0) engine_.take_sequence(std::exchange(places_[place].parked, 0));
    if (report.tokens > 0) places_[place].parked = engine_.park(std::move(fresh));
    places_[place].last_used = ++clock_;
    report.milliseconds = milliseconds_since(began);
  } catch (...) {
    failure = std::current_exception();
  }
  done(report, failure);
}

void SlotMemory::erase(std::size_t place, const SlotDone& done) {
  SlotReport report;
  if (places_[place].parked != 0) {
    if (auto stored = engine_.take_sequence(std::exchange(places_[place].parked, 0)))
      report.tokens = stored->length();
  }
  done(report, nullptr);
}

fs::path slot_file(const fs::path& folder, const std::string& name) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::invalid_argument, "filename is \"{}\", which {}; expected a plain file name",
         printable(name, 80), why);
  };
  if (name.empty()) refuse("is empty");
  if (name.size() > 255) refuse("is longer than 255 bytes");
  if (name.front() == '.') refuse("begins with a dot");
  if (text::valid_prefix(name) != name.size()) refuse("is not valid UTF-8");
  for (const char c : name) {
    if (c == '/' || c == '\\' || c == ':') refuse("is a path");
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) refuse("holds a control character");
  }
  return folder / name;
}

}  // namespace quipu::server

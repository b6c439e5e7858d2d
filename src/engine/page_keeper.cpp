#include "engine/page_keeper.hpp"

#include <algorithm>
#include <utility>

namespace quipu::engine {

void Unclaimed::add(RequestId id, memory::Sequence sequence) {
  if (sequences_.size() >= most_) drop_oldest();
  sequences_.emplace(id, std::move(sequence));
}

std::optional<memory::Sequence> Unclaimed::take(RequestId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return std::nullopt;
  std::optional<memory::Sequence> sequence(std::move(it->second));
  sequences_.erase(it);
  return sequence;
}

const memory::Sequence* Unclaimed::find(RequestId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

bool Unclaimed::drop_oldest() {
  if (sequences_.empty()) return false;
  sequences_.erase(sequences_.begin());
  return true;
}

bool PageHolders::release_idle() {
  if (tree != nullptr && tree->evict()) return true;
  if (unclaimed.drop_oldest()) return true;
  for (auto it = waiting.rbegin(); it != waiting.rend(); ++it) {
    if ((*it)->sequence().pages().empty()) continue;
    (*it)->drop_memory();
    return true;
  }
  return false;
}

Room make_page_room(ActiveRequest& request, std::int64_t& rows, PageHolders holders) {
  memory::Sequence& sequence = request.sequence();
  Running& running = holders.running;
  const std::int64_t least = request.must_encode() ? rows : 1;
  while (!sequence.reserve(rows)) {
    if (holders.release_idle()) continue;
    if (running.size() > 1) {
      holders.preempted.push_back(std::move(running.back()));
      running.pop_back();
      ActiveRequest& youngest = *holders.preempted.back();
      if (holders.tree != nullptr && youngest.computed_here()) holders.tree->insert(youngest.sequence());
      youngest.drop_memory();
      if (&youngest == &request) return Room::preempted;
      continue;
    }
    if (rows > least) {
      rows = rows / 2;
      continue;
    }
    if (!holders.last_resort || !holders.last_resort()) return Room::exhausted;
  }
  return Room::granted;
}

}  // namespace quipu::engine

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

bool Unclaimed::drop_oldest() {
  if (sequences_.empty()) return false;
  sequences_.erase(sequences_.begin());
  return true;
}

Room make_page_room(ActiveRequest& request, std::int64_t& rows, Running& running, Running& preempted,
                    Unclaimed& unclaimed) {
  memory::Sequence& sequence = request.sequence();
  while (!sequence.reserve(rows)) {
    if (unclaimed.drop_oldest()) continue;
    if (running.size() > 1) {
      preempted.push_back(std::move(running.back()));
      running.pop_back();
      preempted.back()->drop_memory();
      if (preempted.back().get() == &request) return Room::preempted;
      continue;
    }
    if (rows == 1) return Room::exhausted;
    rows = rows / 2;
  }
  return Room::granted;
}

}  // namespace quipu::engine

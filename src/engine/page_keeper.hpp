// Who gets cache pages when they are short.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/active_request.hpp"

namespace quipu::engine {

/// Running requests in order of age, oldest first.
using Running = std::vector<std::unique_ptr<ActiveRequest>>;
/// Requests that do not run yet, or wait to be computed again; by age as well.
using Queue = std::deque<std::unique_ptr<ActiveRequest>>;

/// Memory of finished requests, kept until taken, and given up, oldest first, when pages are short.
class Unclaimed {
 public:
  explicit Unclaimed(std::size_t most) : most_(most) {}
  void add(RequestId id, memory::Sequence sequence);
  std::optional<memory::Sequence> take(RequestId id);
  const memory::Sequence* find(RequestId id) const;  ///< null: none
  /// Gives up the oldest one; false when there is none.
  bool drop_oldest();

 private:
  std::size_t most_;
  std::map<RequestId, memory::Sequence> sequences_;
};

enum class Room {
  granted,    ///< the pages are the request's
  preempted,  ///< the request itself was the youngest and gave up its pages; it must wait
  exhausted,  ///< it runs alone and the pool has no page left
};

/// Who may have to give.
struct PageHolders {
  memory::PrefixTree* tree;  ///< null: none
  Unclaimed& unclaimed;
  Queue& waiting;
  Running& running;
  Running& preempted;                        ///< gets those that leave `running`
  const std::function<bool()>& last_resort;  ///< see EngineOptions

  /// Gives up pages nobody computes with; false when there are none.
  bool release_idle();
};

/// Finds pages for `rows` more positions of `request`: free ones, else idle ones (the prefix tree's, those of
/// unclaimed sequences, what waiting requests brought along), else those of the youngest running request,
/// which then waits and is computed again. The oldest request can always go on, so work never stalls. A
/// request that runs alone gets as many rows as there is room for, but all that an encoder reads.
Room make_page_room(ActiveRequest& request, std::int64_t& rows, PageHolders holders);

}  // namespace quipu::engine

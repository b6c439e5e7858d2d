// Weights, KV cache and scratch against the memory there is: decides the context before anything is
// allocated.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.hpp"
#include "engine/machine_memory.hpp"

namespace quipu::engine {

struct MemoryNeeds {
  std::uint64_t weights = 0, scratch = 0;
  std::uint64_t page_bytes = 0;  ///< of graph::kPagePositions positions
  std::int64_t sequences = 1;
  std::int64_t trained_context = 0;
  std::int64_t context = 0;      ///< asked for; 0: decide
  std::uint32_t pool_pages = 0;  ///< asked for; 0: context * sequences
  bool shrink_pool = false;      ///< see EngineOptions
};

struct MemoryDecision {
  MemoryReport report;
  std::uint32_t pages = 0;
};

/// A context that was asked for must fit; otherwise the trained context is taken, or as much of it as fits (a
/// multiple of the page size, at least one page). Throws `Error` (out_of_memory) that says what is needed and
/// what there is.
MemoryDecision plan_engine_memory(const MemoryNeeds& needs, const FreeMemory& available);

}  // namespace quipu::engine

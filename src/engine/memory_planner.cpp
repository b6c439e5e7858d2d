#include "engine/memory_planner.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "graph/step.hpp"

namespace quipu::engine {

namespace {

constexpr auto kPage = graph::kPagePositions;

/// Saturates: a context of 2^60 is an answerable question.
std::uint64_t pages_for(std::int64_t context, std::int64_t sequences) {
  const auto pages =
      static_cast<unsigned __int128>((context - 1) / kPage + 1) * static_cast<std::uint64_t>(sequences);
  return static_cast<std::uint64_t>(std::min<unsigned __int128>(pages, UINT64_MAX));
}

}  // namespace

MemoryDecision plan_engine_memory(const MemoryNeeds& needs, const FreeMemory& available) {
  MemoryDecision decision;
  MemoryReport& report = decision.report;
  report.weights = needs.weights;
  report.scratch = needs.scratch;
  report.budget = available.bytes;
  report.trained_context = needs.trained_context;
  const std::uint64_t fixed = needs.weights + needs.scratch;
  const std::uint64_t left = available.bytes > fixed ? available.bytes - fixed : 0;
  const auto refuse = [&](std::string_view what, std::uint64_t pages) {
    const auto kv = static_cast<double>(pages) * static_cast<double>(needs.page_bytes);
    fail(ErrorCode::out_of_memory,
         "{} needs {} for keys and values ({} per token), beside {} of weights and {} of scratch; there are "
         "{}",
         what, kv < 1e19 ? format_bytes(static_cast<std::uint64_t>(kv)) : "more than 8 EiB",
         format_bytes(needs.page_bytes / static_cast<std::uint64_t>(kPage)), format_bytes(needs.weights),
         format_bytes(needs.scratch), available.reason);
  };
  // Page numbers have 32 bits.
  const std::uint64_t affordable =
      std::min<std::uint64_t>(needs.page_bytes > 0 ? left / needs.page_bytes : UINT32_MAX, UINT32_MAX);
  std::uint64_t fixed_pages = needs.pool_pages;
  const std::int64_t wanted_context = needs.context > 0 ? needs.context : needs.trained_context;
  if (needs.shrink_pool && fixed_pages == 0 && wanted_context > 0) {
    const std::uint64_t one = pages_for(wanted_context, 1), all = pages_for(wanted_context, needs.sequences);
    const std::uint64_t half = std::max(affordable / 2, one);
    if (one <= affordable && all > half) fixed_pages = half;
  }
  const auto fits = [&](std::int64_t context) {
    return (fixed_pages > 0 ? fixed_pages : pages_for(context, needs.sequences)) <= affordable;
  };

  if (needs.context > 0) {
    report.context = needs.context;
    report.context_reason = "asked for";
    if (!fits(needs.context)) {
      refuse(
          fmt::format("a context of {} tokens{}", needs.context,
                      needs.sequences > 1 ? fmt::format(" for each of {} sequences", needs.sequences) : ""),
          fixed_pages > 0 ? fixed_pages : pages_for(needs.context, needs.sequences));
    }
  } else if (fits(needs.trained_context)) {
    report.context = needs.trained_context;
    report.context_reason = "the model's trained context";
  } else {
    const auto pages = static_cast<std::int64_t>(affordable) / needs.sequences;
    if (pages < 1) refuse("the smallest context", static_cast<std::uint64_t>(needs.sequences));
    report.context = std::min(pages * kPage, needs.trained_context);
    report.context_reason = "limited by " + available.reason;
  }
  decision.pages =
      static_cast<std::uint32_t>(fixed_pages > 0 ? fixed_pages : pages_for(report.context, needs.sequences));
  report.kv = decision.pages * needs.page_bytes;
  return decision;
}

}  // namespace quipu::engine

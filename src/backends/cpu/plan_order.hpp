// What follows from the order of a plan's steps.
#pragma once

#include "backends/cpu/schedule.hpp"

namespace quipu::backends::cpu {

/// Sets `barrier_before` where a step meets bytes that another thread may have used since the last barrier.
void place_barriers(Steps& steps);

/// Tells each linear which one comes next, the last one the first of the next run; not across experts, which
/// a step chooses.
void link_linears(Steps& steps);

}  // namespace quipu::backends::cpu

// The two halves of the filter table.
#pragma once

#include <span>

#include "text/jinja/functions.hpp"

namespace quipu::text::jinja {

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> list_filters();

}  // namespace quipu::text::jinja

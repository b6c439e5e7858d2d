// Strings that are safe to put into JSON.
#pragma once

#include "text/unicode.hpp"

namespace quipu::app {

using text::valid_utf8;

}  // namespace quipu::app

// The general category of a character, by utf8proc.
#pragma once

#include <utf8proc.h>

namespace quipu::text {

inline utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace quipu::text

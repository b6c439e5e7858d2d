// Tokens to the tree of a program: Jinja's grammar, with nesting bounded.
#pragma once

#include <string_view>

#include "text/jinja/ast.hpp"

namespace quipu::text::jinja {

/// Throws `TemplateError` (syntax).
Program parse_template(std::string_view source);

}  // namespace quipu::text::jinja

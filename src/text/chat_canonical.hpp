// A Jinja template in one spelling, so that markers can be looked for in it.
#pragma once

#include <string>
#include <string_view>

namespace quipu::text {

/// White space control applied as Hugging Face's environment does (trim_blocks, lstrip_blocks, `-` marks),
/// comments and white space between the words of a tag removed, strings in single quotes with their white
/// space kept and line ends as `\n`, and x['key'] as x.key. Two templates of one canonical form render alike.
std::string canonical_template(std::string_view source);

}  // namespace quipu::text

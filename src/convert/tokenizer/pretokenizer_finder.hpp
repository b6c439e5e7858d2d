// The pre-tokenizer of a tokenizer.json, as one of the names that GGUF files give them.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::convert {

/// The expressions of `pre_tokenizer` in PCRE2 syntax, in order. Throws `Error` (unsupported) for a part that
/// has no such form; `file` names the tokenizer.json.
std::vector<std::string> pretokenizer_steps(const boost::json::value& pre_tokenizer, const std::string& file);

/// The first name of the table whose rule cuts a text of many scripts, digits, cases and spaces just as
/// `steps` do, and treats whole pieces the same. Empty: there is none. Expressions are compared by what they
/// do: models write the same one in many ways.
std::string find_pretokenizer_name(const std::vector<std::string>& steps, bool ignore_merges);

/// The text that is cut.
std::string_view pretokenizer_probe();

}  // namespace quipu::convert

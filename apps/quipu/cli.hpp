// Options that validate strictly, read the environment and name themselves in errors.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace quipu::app {

/// `names` as CLI11 writes them: "-c,--ctx-size". Each option also reads QUIPU_<LONG_NAME> from the
/// environment
/// (`--ctx-size`: QUIPU_CTX_SIZE); the command line wins, and the last of several wins. A value that is
/// refused ends the program with one line that names the option, the value and what is allowed.
void text_option(CLI::App& app, const std::string& names, std::string& target, const std::string& help);
/// May be given several times.
void text_list_option(CLI::App& app, const std::string& names, std::vector<std::string>& target,
                      const std::string& help);
void choice_option(CLI::App& app, const std::string& names, std::string& target,
                   const std::vector<std::string>& choices, const std::string& help);
void flag_option(CLI::App& app, const std::string& names, bool& target, const std::string& help);

struct IntegerRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  std::string_view note = {};  ///< e.g. "-1: until the model stops"
};
void integer_option(CLI::App& app, const std::string& names, std::int64_t& target, IntegerRange range,
                    const std::string& help);

struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;  ///< the minimum itself is refused
  std::string_view note = {};
};
/// Finite decimal numbers only.
void number_option(CLI::App& app, const std::string& names, double& target, NumberRange range,
                   const std::string& help);
void number_option(CLI::App& app, const std::string& names, std::optional<double>& target, NumberRange range,
                   const std::string& help);

/// An option with its own parser; `parse` throws std::string, the reason, for a value it refuses.
void parsed_option(CLI::App& app, const std::string& names, const std::string& type, const std::string& help,
                   std::function<void(const std::string&)> parse);

/// Whole-string, finite, decimal; nothing when `text` is anything else.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);

/// The arguments with llama.cpp's multi-letter short options (`-ngl`, `-ctk`, `-ctv` …) spelled out.
std::vector<std::string> spell_out(int argc, const char* const* argv);

}  // namespace quipu::app

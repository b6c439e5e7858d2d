// Options that validate strictly, read the environment and name themselves in errors.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace quipu::app {

/// A subcommand of `parent`. Only cli.cpp and the files that look into CLI11's objects include its headers:
/// they take longer to compile than most of this program.
CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& help);
/// What the command does when it is the one on the command line.
void on_run(CLI::App& command, std::function<void()> work);
void require_subcommand(CLI::App& command);
/// A word without a name in front that must be there.
void argument(CLI::App& command, const std::string& name, std::string& target, const std::string& help);
/// The words without a name in front, any number of them.
void arguments(CLI::App& command, const std::string& name, std::vector<std::string>& target,
               const std::string& help);

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

/// An option with two values, which may be given several times; `parse` as above.
void pair_option(CLI::App& app, const std::string& name, const std::pair<std::string, std::string>& types,
                 const std::string& help, std::function<void(const std::string&, const std::string&)> parse);

/// Puts the options added so far that have no heading yet under this one in the help.
void group_options(CLI::App& app, const std::string& heading);
/// How the help of `app` and of the subcommands added to it afterwards is laid out.
void format_help(CLI::App& app);

/// Whole-string, finite, decimal; nothing when `text` is anything else.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);

/// The arguments with llama.cpp's multi-letter short options (`-ngl`, `-ctk`, `-ctv` …) spelled out.
std::vector<std::string> spell_out(int argc, const char* const* argv);

}  // namespace quipu::app

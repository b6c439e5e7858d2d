#include "cli.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include "core/error.hpp"

namespace quipu::app {
namespace {

std::string environment_name(const std::string& names) {
  const std::size_t start = names.find("--");
  if (start == std::string::npos) return {};
  std::string name = "QUIPU_";
  for (std::size_t i = start + 2; i < names.size() && names[i] != ','; ++i)
    name += names[i] == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(names[i])));
  return name;
}

/// "-c" of "-c,--ctx-size": how a message calls the option.
std::string display_name(const std::string& names) { return names.substr(0, names.find(',')); }

[[noreturn]] void refuse(const std::string& names, const std::string& value, const std::string& reason) {
  throw CLI::ValidationError(fmt::format("{} {}", display_name(names), printable(value, 60)), reason);
}

std::string range_text(const IntegerRange& range) {
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min();
  constexpr auto highest = std::numeric_limits<std::int64_t>::max();
  std::string text = "expected a whole number";
  if (range.min != lowest && range.max != highest)
    text += fmt::format(" from {} to {}", range.min, range.max);
  else if (range.min != lowest)
    text += fmt::format(" >= {}", range.min);
  else if (range.max != highest)
    text += fmt::format(" <= {}", range.max);
  if (!range.note.empty()) text += fmt::format(" ({})", range.note);
  return text;
}

std::string range_text(const NumberRange& range) {
  std::string text = "expected a finite number";
  if (std::isfinite(range.min)) text += fmt::format(" {} {}", range.min_open ? ">" : ">=", range.min);
  if (std::isfinite(range.max))
    text += fmt::format("{} <= {}", std::isfinite(range.min) ? " and" : "", range.max);
  if (!range.note.empty()) text += fmt::format(" ({})", range.note);
  return text;
}

/// "help [40; 0: off]": the default, unless the option has none, and what the special values mean.
std::string described(const std::string& help, const std::string& standard, std::string_view note) {
  if (standard.empty() && note.empty()) return help;
  return fmt::format("{} [{}{}{}]", help, standard, standard.empty() || note.empty() ? "" : "; ", note);
}

/// Every option reads the environment; the footer of the help says so once.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
};

double checked_number(const std::string& names, const NumberRange& range, const std::string& value) {
  const auto number = parse_number(value);
  if (!number || *number < range.min || *number > range.max || (range.min_open && *number == range.min))
    refuse(names, value, range_text(range));
  return *number;
}

}  // namespace

CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& help) {
  return *parent.add_subcommand(name, help);
}

void on_run(CLI::App& command, std::function<void()> work) { command.callback(std::move(work)); }

void require_subcommand(CLI::App& command) { command.require_subcommand(1); }

void argument(CLI::App& command, const std::string& name, std::string& target, const std::string& help) {
  command.add_option(name, target, help)->required();
}

void arguments(CLI::App& command, const std::string& name, std::vector<std::string>& target,
               const std::string& help) {
  command.add_option(name, target, help);
}

void parsed_option(CLI::App& app, const std::string& names, const std::string& type, const std::string& help,
                   std::function<void(const std::string&)> parse) {
  auto store = [names, parse = std::move(parse)](const std::string& value) {
    try {
      parse(value);
    } catch (const std::string& reason) {
      refuse(names, value, reason);
    }
  };
  app.add_option_function<std::string>(names, store, help)
      ->type_name(type)
      ->envname(environment_name(names))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void text_option(CLI::App& app, const std::string& names, std::string& target, const std::string& help) {
  parsed_option(app, names, "TEXT", help, [&target](const std::string& value) { target = value; });
}

void text_list_option(CLI::App& app, const std::string& names, std::vector<std::string>& target,
                      const std::string& help) {
  auto store = [&target](const std::vector<std::string>& values) {
    target.insert(target.end(), values.begin(), values.end());
  };
  // One value each time the option is given, so that a positional argument behind it stays one.
  app.add_option_function<std::vector<std::string>>(names, store, help)
      ->type_name("TEXT")
      ->envname(environment_name(names))
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void pair_option(CLI::App& app, const std::string& name, const std::pair<std::string, std::string>& types,
                 const std::string& help, std::function<void(const std::string&, const std::string&)> parse) {
  auto store = [name, parse = std::move(parse)](const std::vector<std::string>& values) {
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) try {
        parse(values[i], values[i + 1]);
      } catch (const std::string& reason) {
        refuse(name, values[i] + " " + values[i + 1], reason);
      }
  };
  app.add_option_function<std::vector<std::string>>(name, store, help)
      ->type_name(types.first + " " + types.second)
      ->type_size(2)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void choice_option(CLI::App& app, const std::string& names, std::string& target,
                   const std::vector<std::string>& choices, const std::string& help) {
  const std::string list = fmt::format("{}", fmt::join(choices, "|"));
  parsed_option(app, names, list, described(help, target, {}),
                [&target, choices, list](const std::string& value) {
                  for (const std::string& choice : choices) {
                    if (choice != value) continue;
                    target = value;
                    return;
                  }
                  throw fmt::format("expected one of {}", list);
                });
}

void flag_option(CLI::App& app, const std::string& names, bool& target, const std::string& help) {
  app.add_flag(names, target, help)->envname(environment_name(names));
}

void integer_option(CLI::App& app, const std::string& names, std::int64_t& target, IntegerRange range,
                    const std::string& help) {
  // A default outside the range stands for "not given".
  const std::string standard =
      target >= range.min && target <= range.max ? fmt::format("{}", target) : std::string();
  parsed_option(app, names, "N", described(help, standard, range.note),
                [&target, range](const std::string& value) {
                  const auto number = parse_integer(value);
                  if (!number || *number < range.min || *number > range.max) throw range_text(range);
                  target = *number;
                });
}

void number_option(CLI::App& app, const std::string& names, double& target, NumberRange range,
                   const std::string& help) {
  parsed_option(
      app, names, "X", described(help, fmt::format("{}", target), range.note),
      [&target, range, names](const std::string& value) { target = checked_number(names, range, value); });
}

void number_option(CLI::App& app, const std::string& names, std::optional<double>& target, NumberRange range,
                   const std::string& help) {
  parsed_option(app, names, "X", help, [&target, range, names](const std::string& value) {
    target = checked_number(names, range, value);
  });
}

void group_options(CLI::App& app, const std::string& heading) {
  for (CLI::Option* option : app.get_options())
    if (option != app.get_help_ptr() && option->get_group() == "Options") option->group(heading);
}

void format_help(CLI::App& app) { app.formatter(std::make_shared<HelpFormatter>()); }

std::optional<std::int64_t> parse_integer(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::vector<std::string> spell_out(int argc, const char* const* argv) {
  static constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {{"-ngl", "--n-gpu-layers"},
                                                                                 {"-ctk", "--cache-type-k"},
                                                                                 {"-ctv", "--cache-type-v"},
                                                                                 {"-sys", "--system"},
                                                                                 {"-np", "--parallel"}};
  std::vector<std::string> arguments;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    options = options && argument != "--";
    for (const auto& [name, spelled] : kLongNames)
      if (options && argument == name) argument = spelled;
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

}  // namespace quipu::app

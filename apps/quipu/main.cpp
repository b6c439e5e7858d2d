// quipu: the command-line program.
#include <langinfo.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <clocale>
#include <iterator>
#include <new>
#include <string>
#include <string_view>

#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "output.hpp"

namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

/// Line editing counts characters as the locale says; text is UTF-8 whatever the locale.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

/// One line on stderr, whatever the message holds.
int report(std::string message, int status) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  quipu::app::write_stderr("quipu: error: " + message + "\n");
  return status;
}

struct Command {
  std::string_view name;
  void (*add)(CLI::App&);
};

constexpr Command kCommands[] = {
    {"run", quipu::app::add_run},
    {"chat", quipu::app::add_chat},
    {"serve", quipu::app::add_serve},
    {"embed", quipu::app::add_embed},
    {"rerank", quipu::app::add_rerank},
    {"tokenize", quipu::app::add_tokenize},
    {"template", quipu::app::add_template},
    {"inspect", quipu::app::add_inspect},
    {"quantize", quipu::app::add_quantize},
    {"convert", quipu::app::add_convert},
    {"bench", quipu::app::add_bench},
    {"eval", quipu::app::add_eval},
    {"pull", quipu::app::add_pull},
    {"models", quipu::app::add_models},
    {"completion", quipu::app::add_completion},
};

/// Describing hundreds of options takes two milliseconds, so a command that is called is the only one there
/// is; `completion` writes about all of them.
void add_commands(CLI::App& app, std::string_view chosen) {
  const auto is_chosen = [&](const Command& command) { return command.name == chosen; };
  const bool alone =
      chosen != "completion" && std::any_of(std::begin(kCommands), std::end(kCommands), is_chosen);
  for (const Command& command : kCommands)
    if (!alone || is_chosen(command)) command.add(app);
}

/// Only the subcommand that runs reads the environment: CLI11 would check the variables against all of them.
void ignore_environment_of_others(CLI::App& app, std::string_view chosen) {
  for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == chosen) continue;
    std::vector<CLI::App*> branch{sub};
    for (std::size_t i = 0; i < branch.size(); ++i) {
      for (CLI::Option* option : branch[i]->get_options()) option->envname("");
      for (CLI::App* child : branch[i]->get_subcommands([](const CLI::App*) { return true; }))
        branch.push_back(child);
    }
  }
}

/// "quipu eval": how the help of a subcommand calls it, without its own name.
std::string call_of(const CLI::App* app) {
  std::string call;
  for (const CLI::App* parent = app->get_parent(); parent != nullptr; parent = parent->get_parent())
    call = parent->get_name() + (call.empty() ? "" : " ") + call;
  return call;
}

int parse_and_run(CLI::App& app, int argc, char** argv) {
  using namespace quipu::app;
  std::vector<std::string> arguments = spell_out(argc, argv);
  const auto word = std::find_if(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--" || !argument.starts_with('-');
  });
  const std::string chosen = word == arguments.end() || *word == "--" ? "" : *word;
  add_commands(app, chosen);
  ignore_environment_of_others(app, chosen);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
    if (app.get_subcommands().empty()) write_stdout(app.help());
    return 0;
  } catch (const CLI::CallForHelp&) {
    const CLI::App* target = &app;
    while (!target->get_subcommands().empty()) target = target->get_subcommands().front();
    write_stdout(target->help(call_of(target)));
    return 0;
  } catch (const CLI::CallForVersion& version) {
    write_stdout(std::string(version.what()) + "\n");
    return 0;
  } catch (const CLI::ValidationError& error) {
    return report(error.what(), kUsage);
  } catch (const CLI::ParseError& error) {
    return report(std::string(error.what()) + " (see `quipu --help`)", kUsage);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace quipu::app;
  prepare_standard_streams();
  use_utf8();
  try {
    CLI::App app("Runs large language models from GGUF files.", "quipu");
    app.set_version_flag("--version", "quipu " QUIPU_VERSION);
    app.require_subcommand(0, 1);
    app.footer(
        "Each option also reads the environment: --ctx-size is QUIPU_CTX_SIZE. The command line wins.");
    format_help(app);
    return parse_and_run(app, argc, argv);
  } catch (const Exit& exit) {
    return exit.status;
  } catch (const quipu::Error& error) {
    return report(error.message(), kFailure);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kFailure);
  } catch (const std::exception& error) {
    return report(std::string("unexpected: ") + error.what(), kFailure);
  }
}

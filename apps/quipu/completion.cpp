// `quipu completion bash|zsh|fish`: completion scripts made from the option tree itself.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "commands.hpp"
#include "output.hpp"

namespace quipu::app {
namespace {

std::vector<const CLI::App*> visible_subcommands(const CLI::App& app) {
  std::vector<const CLI::App*> result;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!sub->get_name().empty() && !sub->get_group().empty()) result.push_back(sub);
  return result;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string words(const CLI::App& app) {
  std::vector<std::string> list;
  for (const CLI::App* sub : visible_subcommands(app)) list.push_back(sub->get_name());
  for (std::string& name : option_names(app)) list.push_back(std::move(name));
  return fmt::format("{}", fmt::join(list, " "));
}

std::string bash_script(const CLI::App& app) {
  std::string script =
      "# bash completion for quipu: eval \"$(quipu completion bash)\"\n"
      "_quipu() {\n"
      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" command=\"\" word list\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$word\" in -*) ;; *) command=\"$word\"; break ;; esac\n"
      "  done\n"
      "  case \"$command\" in\n";
  for (const CLI::App* sub : visible_subcommands(app))
    script += fmt::format("    {}) list=\"{}\" ;;\n", sub->get_name(), words(*sub));
  script += fmt::format("    *) list=\"{}\" ;;\n", words(app));
  script +=
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$list\" -- \"$current\"))\n"
      "}\n"
      "complete -o default -F _quipu quipu\n";
  return script;
}

std::string zsh_script(const CLI::App& app) {
  return "#compdef quipu\n# zsh completion for quipu: eval \"$(quipu completion zsh)\"\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_script(app);
}

/// Single quotes of a fish string.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + "'";
}

std::string fish_script(const CLI::App& app) {
  std::string script = "# fish completion for quipu: quipu completion fish | source\n";
  for (const CLI::App* sub : visible_subcommands(app)) {
    script += fmt::format("complete -c quipu -f -n __fish_use_subcommand -a {} -d {}\n", sub->get_name(),
                          quoted(sub->get_description()));
    for (const CLI::App* child : visible_subcommands(*sub))
      script += fmt::format("complete -c quipu -f -n '__fish_seen_subcommand_from {}' -a {} -d {}\n",
                            sub->get_name(), child->get_name(), quoted(child->get_description()));
    for (const CLI::Option* option : sub->get_options()) {
      if (option->get_lnames().empty()) continue;
      script += fmt::format("complete -c quipu -n '__fish_seen_subcommand_from {}' -l {} -d {}{}\n",
                            sub->get_name(), option->get_lnames().front(), quoted(option->get_description()),
                            option->get_expected_max() > 0 ? " -r" : "");
    }
  }
  return script;
}

}  // namespace

void add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell] {
    if (*shell == "bash")
      write_stdout(bash_script(app));
    else if (*shell == "zsh")
      write_stdout(zsh_script(app));
    else
      write_stdout(fish_script(app));
  });
}

}  // namespace quipu::app

// `quipu pull NAME`: download a model into the cache.
#include <filesystem>
#include <memory>
#include <string>

#include "catalogue.hpp"
#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "hub.hpp"
#include "model_files.hpp"
#include "output.hpp"

namespace quipu::app {

void add_pull(CLI::App& app) {
  CLI::App& command = add_command(app, "pull", "Download a model into the cache and print its path");
  auto name = std::make_shared<std::string>();
  argument(command, "name", *name, "a catalogue name (see `quipu models`) or hf:org/repo[@revision][:file]");
  on_run(command, [name] {
    std::filesystem::path path;
    if (name->rfind("hf:", 0) == 0) {
      path = fetch_from_hub(parse_hub_reference(*name));
    } else if (const CatalogueEntry* entry = find_in_catalogue(*name)) {
      path = fetch_entry(*entry);
    } else {
      std::string known;
      for (const CatalogueEntry& other : catalogue()) known += (known.empty() ? "" : ", ") + other.name;
      fail(ErrorCode::not_found, "there is no model {} in the catalogue; names are: {}", printable(*name),
           known);
    }
    write_stdout(path.string() + "\n");
  });
}

}  // namespace quipu::app

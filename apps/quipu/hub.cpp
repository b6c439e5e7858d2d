#include "hub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <cstdlib>
#include <regex>

#include "catalogue.hpp"
#include "core/error.hpp"
#include "model_files.hpp"

namespace quipu::app {
namespace {

namespace json = boost::json;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool is_model_name(std::string_view name) {
  return name.size() > 5 && lower(name.substr(name.size() - 5)) == ".gguf";
}

/// Safe to append to the cache folder: no empty, "." or ".." component, nothing absolute.
bool is_plain_path(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string_view::npos ||
        part.find('\\') != std::string_view::npos)
      return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::string escaped(std::string_view path) {
  std::string result;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '-' || c == '_' || c == '.' || c == '~' || c == '/')
      result += c;
    else
      result += fmt::format("%{:02X}", byte);
  }
  return result;
}

std::string endpoint() {
  for (const char* name : {"QUIPU_HF_ENDPOINT", "HF_ENDPOINT"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    std::string url = value;
    while (url.back() == '/') url.pop_back();
    return url;
  }
  return "https://huggingface.co";
}

HttpSource with_token(std::string url) {
  const char* token = std::getenv("HF_TOKEN");
  return {std::move(url), token == nullptr ? "" : token};
}

std::filesystem::path folder_of(const HubReference& reference) {
  std::string folder = reference.repository;
  if (reference.revision != "main") folder += "@" + reference.revision;
  return model_cache() / "hf" / folder;
}

std::string names(const std::vector<HubFile>& files) {
  std::string list;
  for (const HubFile& file : files) list += (list.empty() ? "" : ", ") + printable(file.path, 80);
  return list;
}

/// "-00002-of-00005.gguf" → the shard's number and count.
std::optional<std::pair<int, int>> shard_of(const std::string& path) {
  static const std::regex pattern("-([0-9]{5})-of-([0-9]{5})\\.gguf$", std::regex::icase);
  std::smatch match;
  if (!std::regex_search(path, match, pattern)) return std::nullopt;
  return std::pair{std::stoi(match[1]), std::stoi(match[2])};
}

/// All shards of the split model that `file` belongs to, or just the file.
std::vector<HubFile> with_siblings(const HubFile& file, const std::vector<HubFile>& files) {
  const auto shard = shard_of(file.path);
  if (!shard) return {file};
  const std::string stem =
      file.path.substr(0, file.path.size() - std::string_view("-00001-of-00001.gguf").size());
  std::vector<HubFile> result;
  for (const HubFile& other : files) {
    const auto number = shard_of(other.path);
    if (number && number->second == shard->second && other.path.size() == file.path.size() &&
        other.path.compare(0, stem.size(), stem) == 0)
      result.push_back(other);
  }
  std::sort(result.begin(), result.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  if (static_cast<int>(result.size()) != shard->second)
    fail(ErrorCode::not_found, "the repository holds {} of the {} shards of {}", result.size(), shard->second,
         printable(file.path));
  return result;
}

}  // namespace

HubReference parse_hub_reference(std::string_view text) {
  const std::string whole(text);
  const auto refuse = [&] {
    fail(ErrorCode::invalid_argument, "\"{}\" is no hub reference, expected hf:org/repo[@revision][:file]",
         printable(whole));
  };
  if (text.substr(0, 3) != "hf:") refuse();
  text.remove_prefix(3);
  HubReference reference;
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    reference.file = text.substr(colon + 1);
    if (!is_plain_path(reference.file)) refuse();
    text = text.substr(0, colon);
  }
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    reference.revision = text.substr(at + 1);
    if (!is_plain_path(reference.revision)) refuse();
    text = text.substr(0, at);
  }
  reference.repository = text;
  if (!is_plain_path(text) || std::count(text.begin(), text.end(), '/') != 1) refuse();
  return reference;
}

HttpSource hub_source(const HubReference& reference, const std::string& file) {
  return with_token(fmt::format("{}/{}/resolve/{}/{}", endpoint(), escaped(reference.repository),
                                escaped(reference.revision), escaped(file)));
}

std::vector<HubFile> list_hub_files(const HubReference& reference) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint(),
                                      escaped(reference.repository), escaped(reference.revision));
  const std::string text = http_get(with_token(url));
  json::error_code error;
  const json::value root = json::parse(text, error);
  const json::value* siblings =
      !error && root.is_object() ? root.get_object().if_contains("siblings") : nullptr;
  if (siblings == nullptr || !siblings->is_array())
    fail(ErrorCode::bad_file, "{} does not answer with a list of files for {}", host_of(url),
         printable(reference.repository));
  std::vector<HubFile> files;
  for (const json::value& item : siblings->get_array()) {
    const json::value* name = item.is_object() ? item.get_object().if_contains("rfilename") : nullptr;
    if (name == nullptr || !name->is_string()) continue;
    HubFile file;
    file.path.assign(name->get_string().data(), name->get_string().size());
    if (!is_model_name(file.path) || !is_plain_path(file.path)) continue;
    const json::object& object = item.get_object();
    if (const json::value* size = object.if_contains("size"); size != nullptr && size->is_int64())
      file.bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(0, size->get_int64()));
    const json::value* lfs = object.if_contains("lfs");
    if (lfs != nullptr && lfs->is_object()) {
      const json::value* digest = lfs->get_object().if_contains("sha256");
      if (digest != nullptr && digest->is_string()) file.sha256 = lower(digest->get_string().c_str());
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::vector<HubFile> choose_hub_files(const HubReference& reference, const std::vector<HubFile>& files) {
  if (files.empty()) fail(ErrorCode::not_found, "{} holds no .gguf file", printable(reference.repository));
  for (const HubFile& file : files)
    if (file.path == reference.file) return with_siblings(file, files);
  // Vision projectors are parts of a model, never the model.
  std::vector<HubFile> models;
  for (const HubFile& file : files) {
    const auto shard = shard_of(file.path);
    if (lower(file.path).find("mmproj") == std::string::npos && (!shard || shard->first == 1))
      models.push_back(file);
  }
  std::vector<std::string> wanted;
  if (!reference.file.empty())
    wanted = {reference.file};
  else if (models.size() == 1)
    return with_siblings(models.front(), files);
  else
    wanted = {"q4_k_m", "q4_0", "q8_0"};
  for (const std::string& quantisation : wanted)
    for (const HubFile& file : models)
      if (lower(file.path).find(lower(quantisation)) != std::string::npos) return with_siblings(file, files);
  if (reference.file.empty())
    fail(ErrorCode::not_found, "{} holds several models, add :FILE to choose one of: {}",
         printable(reference.repository), names(models));
  fail(ErrorCode::not_found, "{} holds no file {}; there are: {}", printable(reference.repository),
       printable(reference.file), names(files));
}

std::filesystem::path fetch_from_hub(const HubReference& reference) {
  const std::filesystem::path folder = folder_of(reference);
  if (is_model_name(reference.file) && !shard_of(reference.file)) {
    const std::filesystem::path cached = folder / reference.file;
    if (std::filesystem::is_regular_file(cached)) return cached;
  }
  const std::vector<HubFile> files = choose_hub_files(reference, list_hub_files(reference));
  for (const HubFile& file : files)
    fetch_file({folder / file.path, file.bytes, file.sha256, file.path}, [&](PartFile& part) {
      http_download(hub_source(reference, file.path), part, file.bytes, file.path);
    });
  return folder / files.front().path;
}

}  // namespace quipu::app

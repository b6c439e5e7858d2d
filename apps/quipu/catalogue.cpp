#include "catalogue.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>

#include "catalogue_data.hpp"
#include "core/error.hpp"
#include "core/mapped_file.hpp"

namespace quipu::app {
namespace {

namespace json = boost::json;

const std::string& require_text(const json::object& object, std::string_view key, const std::string& where,
                                std::string& out) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string() || value->get_string().empty())
    fail(ErrorCode::bad_file, "{}: \"{}\" is missing or no text", where, key);
  out.assign(value->get_string().data(), value->get_string().size());
  return out;
}

CatalogueEntry parse_entry(const json::value& value, const std::string& where) {
  if (!value.is_object()) fail(ErrorCode::bad_file, "{} is no object", where);
  const json::object& object = value.get_object();
  CatalogueEntry entry;
  require_text(object, "name", where, entry.name);
  const std::string place = where + " (" + printable(entry.name, 40) + ")";
  require_text(object, "file", place, entry.file);
  require_text(object, "sha256", place, entry.sha256);
  if (const json::value* text = object.if_contains("description"); text != nullptr && text->is_string())
    entry.description = text->get_string().c_str();
  if (const json::value* text = object.if_contains("license"); text != nullptr && text->is_string())
    entry.license = text->get_string().c_str();
  if (entry.file.find('/') != std::string::npos || entry.file.front() == '.')
    fail(ErrorCode::bad_file, "{}: \"file\" is {}, expected a plain file name", place, printable(entry.file));
  if (entry.sha256.size() != 64 || entry.sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
    fail(ErrorCode::bad_file, "{}: \"sha256\" is {}, expected 64 lower-case hexadecimal digits", place,
         printable(entry.sha256, 80));
  const json::value* bytes = object.if_contains("bytes");
  if (bytes == nullptr || !bytes->is_int64() || bytes->get_int64() <= 0)
    fail(ErrorCode::bad_file, "{}: \"bytes\" is missing or no positive whole number", place);
  entry.bytes = static_cast<std::uint64_t>(bytes->get_int64());
  const json::value* sources = object.if_contains("sources");
  if (sources == nullptr || !sources->is_array() || sources->get_array().empty())
    fail(ErrorCode::bad_file, "{}: \"sources\" is missing or no list", place);
  for (const json::value& source : sources->get_array()) {
    if (!source.is_string()) fail(ErrorCode::bad_file, "{}: a source is no text", place);
    entry.sources.emplace_back(source.get_string().c_str());
  }
  return entry;
}

void parse_catalogue(std::string_view text, const std::string& name, std::vector<CatalogueEntry>& entries) {
  json::error_code error;
  const json::value root = json::parse({text.data(), text.size()}, error);
  if (error) fail(ErrorCode::bad_file, "{} is no valid JSON: {}", name, error.message());
  const json::value* models = root.is_object() ? root.get_object().if_contains("models") : nullptr;
  if (models == nullptr || !models->is_array())
    fail(ErrorCode::bad_file, "{}: expected an object with a list \"models\"", name);
  std::size_t index = 0;
  for (const json::value& model : models->get_array()) {
    CatalogueEntry entry = parse_entry(model, name + ": model " + std::to_string(index++));
    const bool known = std::any_of(entries.begin(), entries.end(),
                                   [&](const CatalogueEntry& other) { return other.name == entry.name; });
    if (!known) entries.push_back(std::move(entry));
  }
}

std::vector<CatalogueEntry> load() {
  std::vector<CatalogueEntry> entries;
  if (const char* path = std::getenv("QUIPU_CATALOGUE"); path != nullptr && *path != 0) {
    const MappedFile file(path, MappedFile::Mode::read);
    const auto bytes = file.bytes();
    parse_catalogue({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, printable(path), entries);
  }
  parse_catalogue(kCatalogueJson, "the built-in catalogue", entries);
  return entries;
}

}  // namespace

const std::vector<CatalogueEntry>& catalogue() {
  static const std::vector<CatalogueEntry> entries = load();
  return entries;
}

const CatalogueEntry* find_in_catalogue(std::string_view name) {
  for (const CatalogueEntry& entry : catalogue())
    if (entry.name == name) return &entry;
  return nullptr;
}

std::filesystem::path model_cache() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const auto cache = variable("QUIPU_CACHE"); !cache.empty()) return cache / "models";
  if (const auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "quipu" / "models";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache" / "quipu" / "models";
  fail(ErrorCode::io, "no folder for downloaded models: neither QUIPU_CACHE nor HOME is set");
}

}  // namespace quipu::app

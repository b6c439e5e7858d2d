// Hugging Face folders put together from tests/goldens/convert: a tiny model and the tokenizer it names.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support.hpp"
#include "temporary_folder.hpp"

namespace quipu::test {

inline std::filesystem::path convert_golden(const std::string& name) {
  return source_path("tests/goldens/convert") / name;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A copy whose files a test may change.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& model) {
    namespace fs = std::filesystem;
    copy(convert_golden(model));
    std::string tokenizer = read_text(convert_golden(model) / "tokenizer");
    while (!tokenizer.empty() && tokenizer.back() == '\n') tokenizer.pop_back();
    copy(convert_golden("tokenizers") / tokenizer);
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  /// Replaces the first `from` in a file, which must hold it.
  void edit(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = read_text(folder_ / name);
    const std::size_t at = text.find(from);
    if (at == text.npos) throw std::runtime_error(name + " does not hold " + from);
    write(name, text.replace(at, from.size(), to));
  }

 private:
  void copy(const std::filesystem::path& from) const {
    for (const auto& entry : std::filesystem::directory_iterator(from))
      std::filesystem::copy(entry.path(), folder_ / entry.path().filename().string());
  }
  TemporaryFolder folder_;
};

/// Names of the golden models.
inline std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(convert_golden("")))
    if (std::filesystem::exists(entry.path() / "config.json"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// As GoogleTest wants names of parameters.
inline std::string plain_name(std::string name) {
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) c = '_';
  return name;
}

}  // namespace quipu::test

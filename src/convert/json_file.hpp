// The JSON files of a Hugging Face folder, read with limits; every error names the file and the key.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::convert {

/// One parsed file, or a part of one. Keys are given as alternatives, "hidden_size|n_embd": the first that is
/// there and not null counts. A dot descends: "rope_scaling.factor". Getters throw `Error` (bad_file) with
/// file, key, what was found and what was expected.
class JsonFile {
 public:
  /// Throws `Error`: not_found, io, bad_file.
  static JsonFile open(const std::filesystem::path& path);
  /// Nothing when there is no such file.
  static std::optional<JsonFile> try_open(const std::filesystem::path& path);
  /// A text in memory (tests, fuzzing).
  static JsonFile parse(std::string_view text, std::string name);

  const std::string& name() const { return name_; }
  const boost::json::value& root() const { return *root_; }
  const boost::json::value* find(std::string_view keys) const;
  bool has(std::string_view keys) const { return find(keys) != nullptr; }

  std::optional<std::uint64_t> try_count(std::string_view keys) const;
  std::uint64_t count(std::string_view keys) const;
  /// Finite; a whole number counts as a number.
  std::optional<double> try_number(std::string_view keys) const;
  double number(std::string_view keys) const;
  std::optional<bool> try_flag(std::string_view keys) const;
  bool flag_or(std::string_view keys, bool fallback) const { return try_flag(keys).value_or(fallback); }
  std::optional<std::string> try_text(std::string_view keys) const;
  std::optional<std::vector<double>> try_numbers(std::string_view keys) const;
  std::optional<std::vector<std::string>> try_texts(std::string_view keys) const;

  /// Sets a key of the outermost object that is absent or null.
  void set_default(std::string_view key, boost::json::value value);
  /// Sets a key of the outermost object, whatever it was.
  void set(std::string_view key, boost::json::value value);
  /// Lays the object at `key` over the outermost object: its keys win. Nothing when there is none.
  void raise(std::string_view key);

  [[noreturn]] void reject(std::string_view keys, std::string_view found, std::string_view expected) const;
  [[noreturn]] void reject_missing(std::string_view keys) const;

 private:
  std::string name_;
  std::shared_ptr<boost::json::value> root_;
};

/// "a string", "an array of 3": for messages.
std::string kind_of(const boost::json::value& value);

}  // namespace quipu::convert

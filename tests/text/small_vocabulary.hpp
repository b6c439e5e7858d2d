// The project's own small vocabularies and expected ids (tests/goldens/text, by make_tokenizer_goldens.py).
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <vector>

#include "formats/gguf/gguf.hpp"
#include "shared_vectors.hpp"
#include "text/tokenizer.hpp"

namespace quipu::test {

inline boost::json::value read_golden(const std::string& name) {
  return boost::json::parse(read_file(source_path("tests/goldens/text/" + name)));
}

inline gguf::Value string_value(std::string text) { return {gguf::ValueType::string, std::move(text)}; }
inline gguf::Value bool_value(bool value) { return {gguf::ValueType::boolean, value}; }
inline gguf::Value uint_value(std::uint64_t value) { return {gguf::ValueType::u32, value}; }
inline gguf::Value strings_value(const std::vector<std::string>& items) {
  return gguf::Value::of_strings(items);
}
inline gguf::Value floats_value(std::vector<double> items) {
  return {gguf::ValueType::array, gguf::Array{gguf::ValueType::f32, std::move(items)}};
}
inline gguf::Value ints_value(std::vector<std::int64_t> items) {
  return {gguf::ValueType::array, gguf::Array{gguf::ValueType::i32, std::move(items)}};
}
inline gguf::Value bytes_value(std::vector<std::uint64_t> items) {
  return {gguf::ValueType::array, gguf::Array{gguf::ValueType::u8, std::move(items)}};
}

inline gguf::Value metadata_value(const std::string& key, const boost::json::value& value) {
  if (value.is_string()) return string_value(std::string(value.as_string()));
  if (value.is_bool()) return bool_value(value.as_bool());
  if (!value.is_array()) return uint_value(value.to_number<std::uint64_t>());
  const boost::json::array& array = value.as_array();
  if (key == "scores") {
    std::vector<double> items;
    for (const auto& item : array) items.push_back(item.to_number<double>());
    return floats_value(std::move(items));
  }
  if (key == "token_type") {
    std::vector<std::int64_t> items;
    for (const auto& item : array) items.push_back(item.to_number<std::int64_t>());
    return ints_value(std::move(items));
  }
  if (key == "precompiled_charsmap") {
    std::vector<std::uint64_t> items;
    for (const auto& item : array) items.push_back(item.to_number<std::uint64_t>());
    return bytes_value(std::move(items));
  }
  std::vector<std::string> items;
  for (const auto& item : array) items.emplace_back(item.as_string());
  return strings_value(std::move(items));
}

/// The `tokenizer.ggml.*` keys of a golden file.
inline gguf::Metadata small_metadata(const boost::json::value& golden) {
  gguf::Metadata metadata;
  metadata.set_origin("small.gguf");
  for (const auto& entry : golden.as_object().at("metadata").as_object()) {
    const std::string key(entry.key());
    metadata.set("tokenizer.ggml." + key, metadata_value(key, entry.value()));
  }
  return metadata;
}

inline std::unique_ptr<text::Tokenizer> small_tokenizer(const std::string& name) {
  return text::Tokenizer::from_metadata(small_metadata(read_golden(name)));
}

struct Case {
  std::string text;
  std::vector<text::Token> ids;
  std::string decoded;  ///< what the original library decodes, where the golden says it
};

inline std::vector<Case> small_cases(const std::string& name) {
  std::vector<Case> cases;
  const boost::json::value golden = read_golden(name);
  for (const auto& value : golden.as_object().at("cases").as_array()) {
    const boost::json::object& object = value.as_object();
    Case item;
    item.text = std::string(object.at("text").as_string());
    for (const auto& id : object.at("ids").as_array()) item.ids.push_back(id.to_number<text::Token>());
    if (const auto* decoded = object.if_contains("decoded")) item.decoded = std::string(decoded->as_string());
    cases.push_back(std::move(item));
  }
  return cases;
}

}  // namespace quipu::test

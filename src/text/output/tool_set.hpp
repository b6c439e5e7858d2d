// What a parser must know of the tools that were offered.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/conversation/conversation.hpp"

namespace quipu::text {

class ToolSet {
 public:
  ToolSet() = default;
  explicit ToolSet(std::span<const Tool> tools);

  /// Whether a schema lets a parameter be a text.
  enum class Texts { unknown, always, never, sometimes };

  bool empty() const { return tools_.empty(); }
  bool has(std::string_view tool) const { return find(tool) != nullptr; }
  Texts texts(std::string_view tool, std::string_view parameter) const;
  /// Names of a tool's parameters in the order of its schema; empty for an unknown one.
  std::vector<std::string> parameters(std::string_view tool) const;
  /// The schema of a tool's parameters; null for an unknown one.
  const jinja::Data* schema(std::string_view tool) const;
  /// Whether a schema lets a value be a text.
  static Texts texts_of(const jinja::Data& schema);

 private:
  struct Entry {
    std::string name;
    std::vector<std::pair<std::string, Texts>> parameters;
    jinja::Data schema;
  };
  const Entry* find(std::string_view tool) const;
  std::vector<Entry> tools_;
};

}  // namespace quipu::text

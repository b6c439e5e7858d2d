#include "text/grammar/schema/document.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace quipu::text::grammar::schema {

namespace {

/// A step of a JSON pointer (RFC 6901) inside of a URI fragment.
std::string unescaped(std::string_view step) {
  std::string percent;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const auto hex = [&](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
      return -1;
    };
    if (step[i] == '%' && i + 2 < step.size() && hex(step[i + 1]) >= 0 && hex(step[i + 2]) >= 0) {
      percent += static_cast<char>(hex(step[i + 1]) * 16 + hex(step[i + 2]));
      i += 2;
    } else {
      percent += step[i];
    }
  }
  std::string out;
  for (std::size_t i = 0; i < percent.size(); ++i) {
    if (percent[i] == '~' && i + 1 < percent.size() && (percent[i + 1] == '0' || percent[i + 1] == '1'))
      out += percent[++i] == '0' ? '~' : '/';
    else
      out += percent[i];
  }
  return out;
}

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

/// Takes out what draft 4 does not know: there it means nothing.
void strip_to_draft4(Data& schema) {
  auto* mapping = std::get_if<Data::Mapping>(&schema.value);
  if (mapping == nullptr) return;
  constexpr std::array<std::string_view, 16> kLater{"const",
                                                    "contains",
                                                    "propertyNames",
                                                    "if",
                                                    "then",
                                                    "else",
                                                    "prefixItems",
                                                    "dependentRequired",
                                                    "dependentSchemas",
                                                    "minContains",
                                                    "maxContains",
                                                    "unevaluatedProperties",
                                                    "unevaluatedItems",
                                                    "$dynamicRef",
                                                    "$recursiveRef",
                                                    "$dynamicAnchor"};
  std::erase_if(*mapping, [&](const auto& entry) {
    return std::find(kLater.begin(), kLater.end(), entry.first) != kLater.end();
  });
  for (auto& [key, value] : *mapping) {
    const bool named = key == "properties" || key == "patternProperties" || key == "definitions" ||
                       key == "$defs" || key == "dependencies";
    if (key == "enum" || key == "default" || key == "examples") continue;
    if (auto* inner = std::get_if<Data::Mapping>(&value.value); inner != nullptr && named) {
      for (auto& [name, child] : *inner) strip_to_draft4(child);
    } else if (auto* list = std::get_if<Data::List>(&value.value)) {
      for (Data& child : *list) strip_to_draft4(child);
    } else {
      strip_to_draft4(value);
    }
  }
}

/// A reference without its fragment, seen from a document.
std::string absolute(const std::string& base, const std::string& reference) {
  if (reference.find("://") != std::string::npos || reference.substr(0, 4) == "urn:") return reference;
  const std::size_t slash = base.rfind('/');
  return slash == std::string::npos ? reference : base.substr(0, slash + 1) + reference;
}

}  // namespace

Document::Document(Data root, std::string what) : root_(std::move(root)), what_(std::move(what)) {
  if (!std::holds_alternative<Data::Mapping>(root_.value) && !std::holds_alternative<bool>(root_.value))
    fail(ErrorCode::invalid_argument, "{} is neither an object nor a boolean", what_);
  paths_[&root_] = "#";
  if (const auto name = std::holds_alternative<bool>(root_.value) ? std::nullopt : text(&root_, "$schema")) {
    const auto says = [&](std::string_view draft) { return name->find(draft) != std::string::npos; };
    draft4_ = says("draft-04") || says("draft-03");
    old_ = draft4_ || says("draft-06") || says("draft-07");
  }
  if (draft4_) strip_to_draft4(root_);
  index(root_, "", 0);
}

/// Finds the names that references may use.
void Document::index(const Data& value, const std::string& base, int depth) {
  if (const auto* list = std::get_if<Data::List>(&value.value)) {
    for (const Data& item : *list) index(item, base, depth + 1);
    return;
  }
  const auto* mapping = std::get_if<Data::Mapping>(&value.value);
  if (mapping == nullptr) return;
  std::string here = base;
  const auto string_of = [&](std::string_view key) -> const std::string* {
    const Data* found = find(&value, key);
    const auto* text = found == nullptr ? nullptr : std::get_if<Data::Text>(&found->value);
    return text == nullptr ? nullptr : &text->bytes;
  };
  if (const std::string* id = string_of("$id")) {
    here = absolute(base, *id);
    ids_.emplace(here.substr(0, here.find('#')), &value);
    if (const std::size_t hash = id->find('#'); hash != std::string::npos && hash + 1 < id->size())
      anchors_.emplace(id->substr(hash + 1), &value);  // how drafts 6 and 7 write an anchor
  }
  if (const std::string* anchor = string_of("$anchor")) anchors_.emplace(*anchor, &value);
  if (const std::string* anchor = string_of("$dynamicAnchor")) {
    anchors_.emplace(*anchor, &value);
    ++dynamic_anchors_[*anchor];
  }
  for (const auto& [key, child] : *mapping) {
    if (key == "enum" || key == "const" || key == "default" || key == "examples") continue;
    index(child, here, depth + 1);
  }
}

const Data* Document::find(const Data* schema, std::string_view keyword) {
  const auto* mapping = std::get_if<Data::Mapping>(&schema->value);
  if (mapping == nullptr) return nullptr;
  for (const auto& [key, value] : *mapping) {
    if (key == keyword) return &value;
  }
  return nullptr;
}

const Data* Document::pointer(std::string_view steps) const {
  const Data* at = &root_;
  while (!steps.empty()) {
    steps.remove_prefix(1);  // the slash
    const std::size_t end = std::min(steps.find('/'), steps.size());
    const std::string step = unescaped(steps.substr(0, end));
    steps.remove_prefix(end);
    if (const auto* list = std::get_if<Data::List>(&at->value)) {
      const bool number =
          !step.empty() && step.size() < 9 && step.find_first_not_of("0123456789") == std::string::npos;
      const std::size_t i = number ? static_cast<std::size_t>(std::stoul(step)) : list->size();
      if (i >= list->size()) return nullptr;
      at = &(*list)[i];
    } else {
      at = find(at, step);
      if (at == nullptr) return nullptr;
    }
  }
  return at;
}

const Data* Document::resolve(const Data* schema, std::string_view keyword, const std::string& reference) {
  const auto nowhere = [&](std::string_view why) {
    refuse(schema, keyword, fmt::format("\"{}\" {}", printable(reference, 100), why),
           ErrorCode::invalid_argument);
  };
  const std::size_t hash = reference.find('#');
  const std::string place = reference.substr(0, hash);
  const std::string fragment = hash == std::string::npos ? "" : reference.substr(hash + 1);
  if (keyword == "$dynamicRef") {
    const auto it = dynamic_anchors_.find(fragment);
    if (it != dynamic_anchors_.end() && it->second > 1)
      refuse(schema, keyword, "has several targets, which is not supported");
  }
  const Data* target = &root_;
  if (!place.empty()) {
    const Data* id = find(&root_, "$id");
    const auto* base = id == nullptr ? nullptr : std::get_if<Data::Text>(&id->value);
    auto it = ids_.find(place);
    if (it == ids_.end() && base != nullptr) it = ids_.find(absolute(base->bytes, place));
    if (it == ids_.end()) nowhere("is another document, and nothing is fetched");
    target = it->second;
  }
  if (!fragment.empty() && fragment.front() == '/') {
    if (target != &root_) refuse(schema, keyword, "points into an embedded schema, which is not supported");
    target = pointer(fragment);
    if (target == nullptr) nowhere("points to nothing");
  } else if (!fragment.empty()) {
    const auto it = anchors_.find(fragment);
    if (it == anchors_.end()) nowhere("points to nothing");
    target = it->second;
  }
  if (!paths_.contains(target)) {
    paths_[target] = place.empty() && !fragment.empty() && fragment.front() == '/'
                         ? "#" + fragment
                         : fmt::format("{} (through {})", reference, path(schema));
    if (!std::holds_alternative<Data::Mapping>(target->value) && !std::holds_alternative<bool>(target->value))
      nowhere("points to something that is no schema");
  }
  return target;
}

const Data* Document::child(const Data* schema, std::string_view keyword, const Data& value,
                            std::string_view name) {
  const auto [it, fresh] = paths_.emplace(&value, std::string());
  if (!fresh) return &value;
  std::string place = fmt::format("{}/{}", paths_.at(schema), keyword);
  if (find(schema, keyword) != &value) place += "/" + escaped(name);
  it->second = std::move(place);
  if (!std::holds_alternative<Data::Mapping>(value.value) && !std::holds_alternative<bool>(value.value))
    fail(ErrorCode::invalid_argument, "{} is at fault: {} is neither an object nor a boolean", what_,
         printable(it->second));
  return &value;
}

std::string Document::path(const Data* schema) const {
  const auto it = paths_.find(schema);
  return it == paths_.end() ? "#" : it->second;
}

const Data* Document::invent(Data schema, const Data* like) {
  invented_.push_back(std::move(schema));
  paths_[&invented_.back()] = path(like);
  return &invented_.back();
}

void Document::refuse(const Data* schema, std::string_view keyword, std::string_view why,
                      ErrorCode code) const {
  const std::string place = keyword.empty() ? path(schema) : fmt::format("{}/{}", path(schema), keyword);
  fail(code, "{} is at fault: {} {}", what_, printable(place), why);
}

const Data::Mapping* Document::mapping(const Data* schema, std::string_view keyword) const {
  const Data* value = find(schema, keyword);
  if (value == nullptr) return nullptr;
  const auto* mapping = std::get_if<Data::Mapping>(&value->value);
  if (mapping == nullptr) malformed(schema, keyword, "is no object");
  return mapping;
}

const Data::List* Document::list(const Data* schema, std::string_view keyword) const {
  const Data* value = find(schema, keyword);
  if (value == nullptr) return nullptr;
  const auto* list = std::get_if<Data::List>(&value->value);
  if (list == nullptr) malformed(schema, keyword, "is no list");
  return list;
}

std::optional<std::string> Document::text(const Data* schema, std::string_view keyword) const {
  const Data* value = find(schema, keyword);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<Data::Text>(&value->value);
  if (text == nullptr) malformed(schema, keyword, "is no string");
  return text->bytes;
}

std::optional<bool> Document::flag(const Data* schema, std::string_view keyword) const {
  const Data* value = find(schema, keyword);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(&value->value);
  if (flag == nullptr) malformed(schema, keyword, "is no boolean");
  return *flag;
}

std::vector<std::string> Document::names(const Data* schema, std::string_view keyword) const {
  std::vector<std::string> names;
  const Data::List* items = list(schema, keyword);
  if (items == nullptr) return names;
  for (const Data& item : *items) {
    const auto* text = std::get_if<Data::Text>(&item.value);
    if (text == nullptr) malformed(schema, keyword, "holds something that is no string");
    names.push_back(text->bytes);
  }
  return names;
}

std::optional<std::uint32_t> Document::count(const Data* schema, std::string_view keyword) const {
  const Data* value = find(schema, keyword);
  if (value == nullptr) return std::nullopt;
  double number = -1;
  if (const auto* integer = std::get_if<std::int64_t>(&value->value)) number = static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value->value)) number = *real;
  if (number < 0 || number != std::floor(number))
    malformed(schema, keyword, "is no whole number of 0 or more");
  return number >= 4294967295.0 ? 0xfffffffe : static_cast<std::uint32_t>(number);
}

}  // namespace quipu::text::grammar::schema

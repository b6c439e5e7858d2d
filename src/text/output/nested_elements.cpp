#include "text/output/nested_elements.hpp"

#include <algorithm>

#include "text/output/json_scanner.hpp"
#include "text/output/literals.hpp"
#include "text/output/tool_set.hpp"

namespace quipu::text {

using jinja::Data;

namespace {

constexpr std::size_t kMostNesting = 60;

bool is_type(const Data* schema, std::string_view wanted) {
  const Data* type = schema == nullptr ? nullptr : find_member(*schema, "type");
  const std::string* name = type == nullptr ? nullptr : text_of(*type);
  return name != nullptr && *name == wanted;
}

const Data* member_schema(const Data* schema, std::string_view key) {
  const Data* properties = schema == nullptr ? nullptr : find_member(*schema, "properties");
  return properties == nullptr ? nullptr : find_member(*properties, key);
}

bool only_space(std::string_view text) { return std::all_of(text.begin(), text.end(), is_space); }

class Elements {
 public:
  Elements(std::string_view text, std::string_view mark) : text_(text), open_(mark), close_(mark) {
    open_ += '<';
    close_ += "</";
  }

  std::string out;

  bool at_end() const { return position_ == text_.size(); }

  /// Elements as the members of an object, or the items of a list; nothing else but white space beside them.
  bool elements(const Data* schema, bool list, std::size_t depth) {
    if (depth > kMostNesting) return false;
    std::vector<std::string_view> keys;
    out += list ? '[' : '{';
    bool first = true;
    while (true) {
      const std::size_t next = std::min(text_.find(open_, position_), text_.size());
      if (!only_space(text_.substr(position_, next - position_))) return false;
      const bool closes = text_.substr(next, close_.size()) == close_;
      position_ = next;
      if (closes || at_end()) break;
      position_ += open_.size();
      const std::string_view key = name();
      if (key.empty() || std::find(keys.begin(), keys.end(), key) != keys.end()) return false;
      if (!list) keys.push_back(key);
      if (!first) out += ", ";
      first = false;
      if (!list) {
        out += '"';
        append_json_escaped(out, key);
        out += "\": ";
      }
      const Data* inner = member_schema(schema, key);
      if (list) inner = schema == nullptr ? nullptr : find_member(*schema, "items");
      if (!value(inner, depth + 1)) return false;
      if (text_.substr(position_, close_.size()) != close_) return false;
      position_ += close_.size();
      if (name() != key) return false;
    }
    out += list ? ']' : '}';
    return true;
  }

 private:
  /// Up to and with the tag's end.
  std::string_view name() {
    const std::size_t end = text_.find('>', position_);
    if (end == std::string_view::npos) return {};
    const std::string_view found = text_.substr(position_, end - position_);
    position_ = end + 1;
    return found;
  }

  bool value(const Data* schema, std::size_t depth) {
    const std::size_t next = text_.find(open_, position_);
    if (next == std::string_view::npos) return false;
    const std::string_view inside = text_.substr(position_, next - position_);
    if (text_.substr(next, close_.size()) != close_) {  // elements inside
      const std::string_view first = text_.substr(next + open_.size(), 5);
      const bool list = is_type(schema, "array") || (!is_type(schema, "object") && first == "item>");
      return elements(schema, list, depth);
    }
    position_ = next;
    if (inside.empty() && (is_type(schema, "array") || is_type(schema, "object"))) {
      out += is_type(schema, "array") ? "[]" : "{}";
      return true;
    }
    std::string_view trimmed = inside;
    while (!trimmed.empty() && is_space(trimmed.front())) trimmed.remove_prefix(1);
    while (!trimmed.empty() && is_space(trimmed.back())) trimmed.remove_suffix(1);
    const auto texts = schema == nullptr ? ToolSet::Texts::unknown : ToolSet::texts_of(*schema);
    if (texts != ToolSet::Texts::always && is_json(trimmed) && trimmed.front() != '"') {
      out += trimmed;
      return true;
    }
    out += '"';
    append_json_escaped(out, inside);
    out += '"';
    return true;
  }

  std::string_view text_;
  std::string open_, close_;
  std::size_t position_ = 0;
};

}  // namespace

NestedScanner::Status NestedScanner::push(std::string_view read) {
  if (tag_ == 0) {
    if (read.ends_with(mark_)) tag_ = read.size();
    return Status::more;
  }
  const std::string_view tag = read.substr(tag_);
  if (tag.front() != '<') return Status::failed;
  if (tag.back() != '>') return tag.size() > 200 ? Status::failed : Status::more;
  const bool closes = tag.size() > 2 && tag[1] == '/';
  const std::string_view name = tag.substr(closes ? 2 : 1, tag.size() - (closes ? 3 : 2));
  tag_ = 0;
  if (!closes) {
    if (name.empty() || open_.size() >= kMostNesting) return Status::failed;
    open_.emplace_back(name);
    return Status::more;
  }
  if (open_.empty()) return name == closing_ ? Status::done : Status::failed;
  if (open_.back() != name) return Status::failed;
  open_.pop_back();
  return Status::more;
}

std::optional<std::string> nested_to_json(std::string_view text, std::string_view mark, const Data* schema) {
  Elements elements(text, mark);
  if (!elements.elements(schema, false, 0) || !elements.at_end()) return std::nullopt;
  return std::move(elements.out);
}

}  // namespace quipu::text

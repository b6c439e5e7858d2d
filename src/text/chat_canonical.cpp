#include "text/chat_canonical.hpp"

#include <algorithm>

namespace quipu::text {

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// The inside of a tag: strings kept, other white space dropped.
class TagReader {
 public:
  explicit TagReader(std::string_view source) : source_(source) {}

  /// Appends the tag's content to `out`; returns the position of the closing mark.
  std::size_t read(std::size_t position, std::string_view close, std::string& out) {
    while (position < source_.size() && source_.compare(position, close.size(), close) != 0) {
      const char c = source_[position];
      if (c == '\'' || c == '"') {
        position = read_string(position, out);
      } else {
        if (!is_space(c)) out.push_back(c);
        ++position;
      }
    }
    return position;
  }

 private:
  std::size_t read_string(std::size_t position, std::string& out) {
    const char quote = source_[position++];
    std::string text;
    bool plain_name = true;
    while (position < source_.size() && source_[position] != quote) {
      char c = source_[position++];
      if (c == '\\' && position < source_.size()) {
        text.push_back('\\');
        c = source_[position++];
        plain_name = false;
      }
      if (c == '\n')
        text += "\\n";
      else
        text.push_back(c);
      plain_name = plain_name && is_name(c);
    }
    if (position < source_.size()) ++position;
    // x['key'] -> x.key
    const bool index = plain_name && !text.empty() && out.size() >= 2 && out.back() == '[' &&
                       (is_name(out[out.size() - 2]) || out[out.size() - 2] == ']');
    const bool closed = position < source_.size() && source_[position] == ']';
    if (index && closed) {
      out.back() = '.';
      out += text;
      return position + 1;
    }
    out.push_back('\'');
    out += text;
    out.push_back('\'');
    return position;
  }

  std::string_view source_;
};

}  // namespace

std::string canonical_template(std::string_view source) {
  if (!source.empty() && source.back() == '\n') source.remove_suffix(1);
  std::string out;
  TagReader reader(source);
  std::size_t text_begin = 0;  // in `out`: text since the last tag, for the marks that strip it
  std::size_t position = 0;
  bool strip_next = false, drop_newline = false;
  while (position < source.size()) {
    const std::size_t open = std::min({source.find("{{", position), source.find("{%", position),
                                       source.find("{#", position), source.size()});
    std::string_view text = source.substr(position, open - position);
    if (strip_next)
      while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    else if (drop_newline && !text.empty() && text.front() == '\n')
      text.remove_prefix(1);
    text_begin = out.size();
    out += text;
    if (open == source.size()) break;

    const char kind = source[open + 1];
    position = open + 2;
    const char mark = position < source.size() ? source[position] : '\0';
    if (mark == '-') {
      while (out.size() > text_begin && is_space(out.back())) out.pop_back();
      ++position;
    } else if (kind != '{' && mark != '+') {  // lstrip_blocks: blanks between the line's begin and the tag
      std::size_t line = out.size();
      while (line > text_begin && (out[line - 1] == ' ' || out[line - 1] == '\t')) --line;
      const bool at_line_begin =
          line > text_begin ? out[line - 1] == '\n'
                            : open == out.size() - line || source[open - (out.size() - line) - 1] == '\n';
      if (at_line_begin) out.resize(line);
    }
    const std::string_view close = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    if (kind == '#') {
      position = std::min(source.find(close, position), source.size());
    } else {
      out += kind == '{' ? "{{" : "{%";
      position = reader.read(position, close, out);
    }
    strip_next = position > 0 && position < source.size() && source[position - 1] == '-';
    if (kind != '#') {
      if (strip_next && out.back() == '-') out.pop_back();
      out += close;
    }
    drop_newline = kind != '{';
    position = std::min(position + 2, source.size());
  }
  return out;
}

}  // namespace quipu::text

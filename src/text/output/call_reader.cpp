#include "text/output/call_reader.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "text/output/json_scanner.hpp"

namespace quipu::text {

namespace {

using Part = PatternPart::Kind;
constexpr std::size_t kMaxName = 128;
constexpr std::string_view kCdata = "<![CDATA[";

bool is_name_byte(char c) {
  return static_cast<unsigned char>(c) > 0x20 &&
         std::string_view("\"'`()[]{}<>\\,=").find(c) == std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Puts `literal` in front of a pattern's parts and drops literals of white space alone.
std::vector<PatternPart> with_front(const std::string& literal, std::vector<PatternPart> parts) {
  if (parts.empty() || parts.front().kind != Part::literal)
    parts.insert(parts.begin(), PatternPart{Part::literal, literal});
  else
    parts.front().text = literal + parts.front().text;
  parts.erase(std::remove_if(parts.begin(), parts.end(),
                             [](const PatternPart& part) {
                               return part.kind == Part::literal && trimmed(part.text).empty();
                             }),
              parts.end());
  return parts;
}

/// The part of an opening that is looked for: up to the end of its first tag or word.
std::string trigger_of(const std::vector<PatternPart>& opening) {
  if (opening.empty() || opening.front().kind != Part::literal) return {};
  const std::string_view literal = trimmed(opening.front().text);
  std::size_t end = literal.find_first_of(" \t\r\n");
  if (literal.front() == '<')
    end = std::min(end, literal.find('>') == literal.npos ? end : literal.find('>') + 1);
  if (literal.front() == '[')
    end = std::min(end, literal.find(']') == literal.npos ? end : literal.find(']') + 1);
  return std::string(literal.substr(0, end));
}

}  // namespace

LiteralMatcher::LiteralMatcher(std::string literal) : literal_(std::move(literal)), size_(literal_.size()) {
  while (size_ > 0 && is_space(literal_[size_ - 1])) --size_;
}

LiteralMatcher::Status LiteralMatcher::push(char byte) {
  bool space_here = position_ == 0;
  std::size_t next = position_;
  while (next < size_ && is_space(literal_[next])) ++next, space_here = true;
  if (space_here && is_space(byte)) return Status::more;
  if (next >= size_ || literal_[next] != byte) return Status::failed;
  position_ = next + 1;
  return position_ == size_ ? Status::done : Status::more;
}

CompiledCall::CompiledCall(const CallFormat& source) : format(&source) {
  std::vector<PatternPart> parts;
  if (source.object) {
    // Literal, object, literal: the object's own text is read as JSON, not as a pattern.
    const std::size_t begin = source.call.find('{');
    const std::size_t end = source.call.rfind('}') + 1;
    parts = {{Part::literal, source.call.substr(0, begin)}, {Part::arguments}};
    closer = source.call.substr(end);
  } else {
    parts = parse_pattern(source.call);
    const auto arguments = std::find_if(parts.begin(), parts.end(),
                                        [](const auto& part) { return part.kind == Part::arguments; });
    if (arguments + 1 < parts.end()) closer = (arguments + 1)->text;
    // The parenthesis belongs to the arguments.
    if (source.arguments == ArgumentSyntax::python && !closer.empty()) closer.erase(0, 1);
    parts.erase(arguments + 1, parts.end());
  }
  opening = with_front(source.section_open, parts);
  next = with_front(source.separator, std::move(parts));
  trigger = source.bare ? std::string() : trigger_of(opening);
  if (!source.parameter.empty()) parameter = parse_pattern(source.parameter);
  const bool has_section = !trimmed(source.section_open).empty() || !trimmed(source.section_close).empty();
  chained = source.parallel && (has_section || (source.bare && !trimmed(source.separator).empty()));
}

CallReader::CallReader(const CompiledCall& call, const ToolSet& tools, bool next)
    : call_(&call), tools_(&tools), steps_(next ? &call.next : &call.opening) {
  if (!call.parameter.empty()) {
    for (std::size_t i = 1; i + 1 < call.parameter.size(); ++i) {
      if (call.parameter[i].kind != Part::value) continue;
      const std::string& before = call.parameter[i - 1].text;
      const std::string& after = call.parameter[i + 1].text;
      break_before_ = before.back() == '\n';
      break_after_ = after.front() == '\n';
      value_end_ = trimmed(after);
    }
  }
  enter_step();
}

CallReader::Status CallReader::enter_step() {
  const PatternPart& part = (*steps_)[step_];
  if (part.kind == Part::literal) literal_ = LiteralMatcher(part.text);
  if (part.kind != Part::arguments) return Status::more;
  const CallFormat& format = *call_->format;
  if (format.arguments == ArgumentSyntax::xml) {
    arguments_ = "{";
    part_ = 0;
    literal_ = LiteralMatcher(call_->parameter.front().text);
    closing_ = LiteralMatcher(call_->closer);
    opening_alive_ = closing_alive_ = true;
  }
  if (format.arguments == ArgumentSyntax::nested) {
    const std::string& first = call_->parameter.front().text;  // the mark and <
    const std::string_view closer = trimmed(call_->closer);    // the mark, </, the name, >
    nested_ = NestedScanner(first.substr(0, first.size() - 1),
                            closer.substr(first.size() + 1, closer.size() - first.size() - 2));
  }
  if (format.arguments == ArgumentSyntax::code) {
    for (const char* name : {"python", "code_interpreter", "ipython"})
      if (name_.empty() && tools_->has(name)) name_ = name;
    if (name_.empty()) return Status::failed;
  }
  return Status::more;
}

bool CallReader::committed() const {
  const ArgumentSyntax syntax = call_->format->arguments;
  const bool whole = syntax == ArgumentSyntax::python || syntax == ArgumentSyntax::gemma ||
                     syntax == ArgumentSyntax::code || syntax == ArgumentSyntax::nested;
  const std::size_t begun = syntax == ArgumentSyntax::xml ? 1 : 0;  // with the first argument
  return !whole && !name_.empty() && arguments_.size() > begun && (*steps_)[step_].kind == Part::arguments;
}

CallReader::Status CallReader::leave_capture(std::string& captured, char byte) {
  // A literal such as ":" may be of bytes that names have too: then its last place counts.
  std::string rest;
  if (step_ + 1 < steps_->size() && (*steps_)[step_ + 1].kind == Part::literal) {
    const std::string_view literal = trimmed((*steps_)[step_ + 1].text);
    std::size_t length = 0;
    while (length < literal.size() && is_name_byte(literal[length])) ++length;
    if (length > 0) {
      const std::size_t place = captured.rfind(literal.substr(0, length));
      if (place == std::string::npos) return Status::failed;
      rest = captured.substr(place);
      captured.erase(place);
    }
  }
  if (captured.empty() && &captured == &name_) return Status::failed;
  ++step_;
  if (enter_step() == Status::failed) return Status::failed;
  for (const char c : rest)
    if (const Status status = push(c); status != Status::more) return status;
  return push(byte);
}

CallReader::Status CallReader::push_name(char byte) {
  std::string& captured = (*steps_)[step_].kind == Part::name ? name_ : id_;
  if (captured.empty() && is_space(byte)) return Status::more;
  if (!is_name_byte(byte)) return leave_capture(captured, byte);
  if (captured.size() >= kMaxName + 32) return Status::failed;
  captured += byte;
  return Status::more;
}

CallReader::Status CallReader::push(char byte) {
  switch ((*steps_)[step_].kind) {
    case Part::literal:
      switch (literal_.push(byte)) {
        case LiteralMatcher::Status::more:
          return Status::more;
        case LiteralMatcher::Status::failed:
          return Status::failed;
        case LiteralMatcher::Status::done:
          ++step_;
          return enter_step();
      }
      return Status::failed;
    case Part::name:
    case Part::id:
      return push_name(byte);
    default:
      return call_->format->object ? push_object(byte) : push_arguments(byte);
  }
}

CallReader::Status CallReader::finish() {
  if ((*steps_)[step_].kind != Part::arguments || call_->format->arguments != ArgumentSyntax::code ||
      trimmed(raw_).empty())
    return Status::failed;
  const std::vector<std::string> parameters = tools_->parameters(name_);
  arguments_ = "{\"";
  append_json_escaped(arguments_, parameters.empty() ? std::string_view("code") : parameters.front());
  arguments_ += "\": \"";
  append_json_escaped(arguments_, raw_);
  arguments_ += "\"}";
  return Status::accepted;
}

CallReader::Status CallReader::push_arguments(char byte) {
  switch (call_->format->arguments) {
    case ArgumentSyntax::json: {
      if (arguments_.empty() && is_space(byte)) return Status::more;
      if (arguments_.empty() && byte != '{') return Status::failed;
      const JsonScanner::Status status = json_.push(byte);
      if (status == JsonScanner::Status::failed) return Status::failed;
      arguments_ += byte;
      return status == JsonScanner::Status::done ? Status::accepted : Status::more;
    }
    case ArgumentSyntax::xml:
      return push_xml(byte);
    case ArgumentSyntax::python: {
      const PythonScanner::Status status = python_.push(byte);
      if (status == PythonScanner::Status::failed) return Status::failed;
      if (status == PythonScanner::Status::more) return raw_ += byte, Status::more;
      const auto json = python_arguments_to_json(raw_, tools_->parameters(name_));
      if (!json) return Status::failed;
      arguments_ = *json;
      return Status::accepted;
    }
    case ArgumentSyntax::gemma: {
      if (raw_.empty() && is_space(byte)) return Status::more;
      if (raw_.empty() && byte != '{') return Status::failed;  // a list is no arguments
      raw_ += byte;
      const GemmaScanner::Status status = gemma_.push(byte);
      if (status == GemmaScanner::Status::more) return Status::more;
      const auto json = status == GemmaScanner::Status::done ? gemma_to_json(raw_) : std::nullopt;
      if (!json) return Status::failed;
      arguments_ = *json;
      return Status::accepted;
    }
    case ArgumentSyntax::code:
      raw_ += byte;
      return Status::more;
    case ArgumentSyntax::nested: {
      raw_ += byte;
      const NestedScanner::Status status = nested_.push(raw_);
      if (status == NestedScanner::Status::failed) return Status::failed;
      if (status == NestedScanner::Status::more) return Status::more;
      const auto json = nested_to_json(nested_.inside(raw_), nested_.mark(), tools_->schema(name_));
      if (!json) return Status::failed;
      arguments_ = *json;
      return Status::accepted;
    }
  }
  return Status::failed;
}

CallReader::Status CallReader::push_object(char byte) {
  if (raw_.empty() && is_space(byte)) return Status::more;
  if (raw_.empty() && byte != '{') return Status::failed;
  const std::size_t depth = json_.depth();
  const bool was_text = json_.in_text();
  const JsonScanner::Status status = json_.push(byte);
  if (status == JsonScanner::Status::failed) return Status::failed;
  raw_ += byte;
  if (!was_text && json_.in_text()) text_begin_ = raw_.size();
  if (json_.key_ended() && depth == 1) {
    key_ = raw_.substr(text_begin_, raw_.size() - 1 - text_begin_);
    const CallFormat& format = *call_->format;
    constexpr std::array<std::string_view, 6> kKnown = {"name", "type",      "function",
                                                        "id",   "arguments", "parameters"};
    if (format.bare && key_ != format.name_key &&
        std::find(kKnown.begin(), kKnown.end(), key_) == kKnown.end())
      return Status::failed;
  }
  if (json_.value_began() && depth == 1) {
    value_begin_ = raw_.size() - 1;
    const bool is_arguments =
        key_ == call_->format->arguments_key || key_ == "arguments" || key_ == "parameters";
    in_arguments_ = is_arguments && !has_arguments_;
    if (in_arguments_) {
      has_arguments_ = true;
      if (byte != '{') in_arguments_ = false;
      if (byte != '{' && byte != '"' && byte != 'n') return Status::failed;
    }
  }
  if (in_arguments_) arguments_ += byte;
  if (json_.value_ended() && json_.depth() == 1) {
    if (const Status ended = object_value_ended(); ended == Status::failed) return ended;
  }
  if (status == JsonScanner::Status::more) return Status::more;
  if (name_.empty()) return Status::failed;
  if (arguments_.empty()) arguments_ = "{}";
  return Status::accepted;
}

CallReader::Status CallReader::object_value_ended() {
  if (in_arguments_) {
    in_arguments_ = false;
    return Status::more;
  }
  if (raw_.back() != '"') return Status::more;
  const CallFormat& format = *call_->format;
  std::string text;
  try {
    const jinja::Data decoded = jinja::parse_json(std::string_view(raw_).substr(value_begin_), "call");
    if (const std::string* bytes = text_of(decoded)) text = *bytes;
  } catch (const Error&) {
    return Status::failed;
  }
  if (key_ == format.name_key || key_ == "name" || (key_ == "function" && format.name_key == "name")) {
    if (text.empty() || text.size() > kMaxName || !std::all_of(text.begin(), text.end(), is_name_byte))
      return Status::failed;
    if (format.bare && !tools_->has(text)) return Status::failed;
    if (name_.empty()) name_ = std::move(text);
  } else if (key_ == format.id_key || key_ == "id") {
    id_ = std::move(text);
  } else if (arguments_.empty() &&
             (key_ == format.arguments_key || key_ == "arguments" || key_ == "parameters")) {
    // Arguments as a text that holds JSON.
    const std::string_view inside = trimmed(text);
    if (!inside.empty() && (inside.front() != '{' || !is_json(inside))) return Status::failed;
    arguments_ = inside.empty() ? std::string("{}") : std::string(inside);
  }
  return Status::more;
}

std::size_t CallReader::hidden() const {
  if (call_->format->arguments != ArgumentSyntax::xml || (*steps_)[step_].kind != Part::arguments) return 0;
  return xml_ == Xml::value && known_text_ ? value_.size() - shown_ : unseen_;
}

CallReader::Status CallReader::push_xml(char byte) {
  ++unseen_;
  switch (xml_) {
    case Xml::between: {
      const auto opening = opening_alive_ ? literal_.push(byte) : LiteralMatcher::Status::failed;
      const auto closing = closing_alive_ ? closing_.push(byte) : LiteralMatcher::Status::failed;
      opening_alive_ = opening != LiteralMatcher::Status::failed;
      closing_alive_ = closing != LiteralMatcher::Status::failed;
      if (closing == LiteralMatcher::Status::done) return arguments_ += '}', Status::accepted;
      if (!opening_alive_ && !closing_alive_) return Status::failed;
      if (opening != LiteralMatcher::Status::done) return Status::more;
      part_ = 1;
      xml_ = Xml::key;
      key_.clear();
      type_.clear();
      return Status::more;
    }
    case Xml::key:
    case Xml::type: {
      std::string& captured = xml_ == Xml::key ? key_ : type_;
      if (byte != call_->parameter[part_ + 1].text.front()) {
        if (byte == '\n' || byte == '<' || captured.size() >= kMaxName) return Status::failed;
        captured += byte;
        return Status::more;
      }
      if (trimmed(key_).empty()) return Status::failed;
      ++part_;
      literal_ = LiteralMatcher(call_->parameter[part_].text);
      xml_ = xml_ == Xml::key ? Xml::after_key : Xml::after_type;
      [[fallthrough]];
    }
    case Xml::after_key:
    case Xml::after_type: {
      const auto status = literal_.push(byte);
      if (status == LiteralMatcher::Status::failed) return Status::failed;
      if (status == LiteralMatcher::Status::more) return Status::more;
      ++part_;
      if (call_->parameter[part_].kind == Part::type) return xml_ = Xml::type, Status::more;
      xml_ = Xml::value;
      value_.clear();
      shown_ = 0;
      key_ = trimmed(key_);
      known_text_ = type_.empty() ? tools_->texts(name_, key_) == ToolSet::Texts::always
                                  : type_ == "true" || type_ == "string";
      arguments_ += arguments_.size() > 1 ? ", \"" : "\"";
      append_json_escaped(arguments_, key_);
      arguments_ += "\": ";
      if (known_text_) arguments_ += '"';
      return Status::more;
    }
    case Xml::value:
      return push_value(byte);
  }
  return Status::failed;
}

CallReader::Status CallReader::push_value(char byte) {
  value_ += byte;
  const std::string_view value = value_;
  if (value.size() >= value_end_.size() && value.substr(value.size() - value_end_.size()) == value_end_) {
    std::string_view inside = value.substr(0, value.size() - value_end_.size());
    if (call_->format->cdata && inside.substr(0, kCdata.size()) == kCdata) {
      if (inside.size() < kCdata.size() + 3 || inside.substr(inside.size() - 3) != "]]>") return Status::more;
      inside = inside.substr(kCdata.size(), inside.size() - kCdata.size() - 3);
    }
    end_value(inside);
    unseen_ = 0;
    xml_ = Xml::between;
    part_ = 0;
    literal_ = LiteralMatcher(call_->parameter.front().text);
    closing_ = LiteralMatcher(call_->closer);
    opening_alive_ = closing_alive_ = true;
    return Status::more;
  }
  if (!known_text_ || call_->format->cdata) return Status::more;
  // Show what can no longer be the end of the value.
  std::size_t held = std::min(value.size(), value_end_.size() - 1);
  while (held > 0 && value.substr(value.size() - held) != std::string_view(value_end_).substr(0, held))
    --held;
  std::size_t certain = value.size() - held;
  if (break_after_ && certain > 0 && value[certain - 1] == '\n') --certain;
  if (break_before_ && shown_ == 0 && value.front() == '\n') shown_ = 1;
  if (certain > shown_) {
    append_json_escaped(arguments_, value.substr(shown_, certain - shown_));
    shown_ = certain;
  }
  return Status::more;
}

void CallReader::end_value(std::string_view raw) {
  if (known_text_) {
    if (break_before_ && shown_ == 0 && !raw.empty() && raw.front() == '\n') shown_ = 1;
    if (break_after_ && raw.size() > shown_ && raw.back() == '\n') raw.remove_suffix(1);
    append_json_escaped(arguments_, raw.substr(std::min(shown_, raw.size())));
    arguments_ += '"';
    return;
  }
  const std::string_view inside = trimmed(raw);
  if (is_json(inside) &&
      (inside.front() != '"' || tools_->texts(name_, key_) != ToolSet::Texts::sometimes || !type_.empty())) {
    arguments_ += inside;
    return;
  }
  if (const auto json = python_to_json(inside); json && (json->front() != '"')) {
    arguments_ += *json;
    return;
  }
  if (break_before_ && !raw.empty() && raw.front() == '\n') raw.remove_prefix(1);
  if (break_after_ && !raw.empty() && raw.back() == '\n') raw.remove_suffix(1);
  arguments_ += '"';
  append_json_escaped(arguments_, raw);
  arguments_ += '"';
}

}  // namespace quipu::text

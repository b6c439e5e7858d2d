#include "text/output/output_parser.hpp"

#include <algorithm>

#include "text/output/machine.hpp"

namespace quipu::text {

using Kind = OutputEvent::Kind;

OutputParser::Machine::Machine(std::shared_ptr<const OutputFormat> format, const OutputOptions& options)
    : format_(std::move(format)), tools_(options.tools), options_(options) {
  options_.tools = {};  // the caller's, perhaps gone when the text comes
}

std::vector<OutputEvent> OutputParser::Machine::push(std::string_view text) {
  text_ += text;
  run(false);
  if (begin_ > text_.size() / 2) {
    text_.erase(0, begin_);
    begin_ = 0;
  }
  return std::exchange(events_, {});
}

std::vector<OutputEvent> OutputParser::Machine::finish() {
  run(true);
  return std::exchange(events_, {});
}

void OutputParser::Machine::take(Kind kind, std::size_t size) {
  if (size == 0) return;
  const std::string_view bytes = pending().substr(0, size);
  if (!events_.empty() && events_.back().kind == kind) {
    events_.back().text += bytes;
    events_.back().bytes += size;
  } else {
    events_.push_back({.kind = kind, .text = std::string(bytes), .bytes = size});
  }
  begin_ += size;
  taken_ += size;
}

void OutputParser::Machine::begin_call(std::string_view id, std::string_view name, std::size_t size) {
  OutputEvent event{.kind = Kind::tool_call, .bytes = size, .call = calls_};
  event.name = name;
  if (id.empty())
    event.id = make_call_id(format_->ids, options_.id_seed, calls_, name);
  else if (format_->ids == IdStyle::kimi)
    event.id = "functions." + event.name + ":" + std::string(id);
  else
    event.id = id;
  events_.push_back(std::move(event));
  begin_ += size;
  taken_ += size;
}

void OutputParser::Machine::begin_call(const CallReader& reader, std::size_t size) {
  begin_call(reader.id(), reader.name(), size);
}

void OutputParser::Machine::grow_call(std::string_view arguments, std::size_t size) {
  if (arguments.empty()) return;
  events_.push_back({.kind = Kind::arguments, .text = std::string(arguments), .bytes = size, .call = calls_});
  begin_ += size;
  taken_ += size;
}

void OutputParser::Machine::end_call(bool complete, std::size_t size) {
  events_.push_back({.kind = Kind::tool_call_end, .bytes = size, .call = calls_, .complete = complete});
  begin_ += size;
  taken_ += size;
  ++calls_;
}

MarkSearch find_mark(std::string_view text, std::size_t from, const std::vector<std::string>& marks,
                     bool final) {
  for (std::size_t i = from; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    std::size_t found = MarkSearch::kNone;
    bool open = false;
    for (std::size_t m = 0; m < marks.size(); ++m) {
      const std::string& mark = marks[m];
      if (mark.empty() || mark.front() != rest.front()) continue;
      if (rest.size() < mark.size()) {
        open = open || (!final && std::string_view(mark).substr(0, rest.size()) == rest);
      } else if (rest.substr(0, mark.size()) == mark) {
        if (found == MarkSearch::kNone || mark.size() > marks[found].size()) found = m;
      }
    }
    if (open) return {i, MarkSearch::kNone};
    if (found != MarkSearch::kNone) return {i, found};
  }
  return {text.size(), MarkSearch::kNone};
}

OutputParser::OutputParser(std::shared_ptr<const OutputFormat> format, const OutputOptions& options)
    : machine_(format->channels ? make_channel_machine(format, options) : make_tag_machine(format, options)) {
}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

std::vector<OutputEvent> OutputParser::push(std::string_view text) { return machine_->push(text); }
std::vector<OutputEvent> OutputParser::finish() { return machine_->finish(); }

ParsedOutput parse_output(std::shared_ptr<const OutputFormat> format, const OutputOptions& options,
                          std::string_view text) {
  OutputParser parser(std::move(format), options);
  ParsedOutput output;
  for (const OutputEvent& event : parser.push(text)) output.add(event);
  for (const OutputEvent& event : parser.finish()) output.add(event);
  return output;
}

}  // namespace quipu::text

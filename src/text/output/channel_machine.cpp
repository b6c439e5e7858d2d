// Answers made of messages with headers: GPT-OSS (https://cookbook.openai.com/articles/openai-harmony),
// Functionary v3.2 and Muse.
#include <algorithm>
#include <array>
#include <optional>

#include "text/output/machine.hpp"

namespace quipu::text {

namespace {

using Kind = OutputEvent::Kind;

constexpr std::size_t kLongestHeader = 300;
constexpr std::string_view kChannel = "<|channel|>";

bool is_program_tool(std::string_view name) { return name == "python" || name == "code_interpreter"; }

class ChannelMachine : public OutputParser::Machine {
 public:
  ChannelMachine(std::shared_ptr<const OutputFormat> format, const OutputOptions& options)
      : Machine(std::move(format), options), channels_(*format_->channels) {
    ends_ = channels_.ends;
    if (std::find(ends_.begin(), ends_.end(), channels_.open) == ends_.end()) ends_.push_back(channels_.open);
    if (addressed()) read_bodies();
    if (options.start == OutputStart::answer || options.start == OutputStart::after_reasoning) return;
    state_ = State::body;
    body_ =
        options.start == OutputStart::reasoning && options_.parse_reasoning ? Kind::reasoning : Kind::content;
  }

  void run(bool final) override {
    while (step(final)) {
    }
  }

 private:
  enum class State { open, header, body, call, program, elements, closer };

  bool addressed() const { return channels_.header == ChannelFormat::Header::addressed; }

  /// How the body of a call is written: the family's call without its header. What follows the element of the
  /// call may be missing.
  void read_bodies() {
    body_format_ = format_->calls.front();
    std::string& call = body_format_.call;
    call.erase(0, call.find(channels_.header_end) + channels_.header_end.size());
    const std::size_t end = call.find('>', call.find("{arguments}")) + 1;
    closer_ = call.substr(end);
    call.resize(end);
    compiled_.emplace(body_format_);
  }

  bool step(bool final) {
    if (pending().empty() && state_ != State::program) return false;
    switch (state_) {
      case State::open:
        return open(final);
      case State::header:
        return header(final);
      case State::body:
        return body(final);
      case State::call:
        return call(final);
      case State::program:
        return program(final);
      case State::elements:
        return elements(final);
      case State::closer:
        return closer(final);
    }
    return false;
  }

  /// Goes on as a body, nothing taken.
  bool as_text(Kind kind) {
    state_ = State::body;
    body_ = kind;
    return true;
  }

  bool open(bool final) {
    const std::string_view text = pending();
    std::size_t space = 0;
    while (space < text.size() && is_output_space(text[space])) ++space;
    const std::string_view rest = text.substr(space);
    if (rest.substr(0, channels_.open.size()) == channels_.open) {
      take(Kind::markup, space + channels_.open.size());
      state_ = State::header;
      return true;
    }
    if (rest.empty() && final) take(Kind::markup, space);
    if (!final && std::string_view(channels_.open).substr(0, rest.size()) == rest) return false;
    return !pending().empty() && as_text(Kind::content);
  }

  /// Whether `text` can be a header or the beginning of one.
  bool may_be_header(std::string_view text) const {
    if (text.size() > kLongestHeader) return false;
    if (channels_.header == ChannelFormat::Header::recipient)
      return std::all_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) > 0x20 &&
               std::string_view("\"'`()[]{}<>").find(c) == std::string_view::npos;
      });
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    if (text.find('\n') != std::string_view::npos) return false;
    for (const std::string_view first : {kChannel, std::string_view("to=")})
      if (first.substr(0, text.size()) == text.substr(0, first.size())) return true;
    return false;
  }

  bool header(bool final) {
    const std::string_view text = pending();
    const std::size_t end =
        text.substr(0, kLongestHeader + channels_.header_end.size()).find(channels_.header_end);
    if (end == std::string_view::npos) {
      // The mark itself may be in the making.
      std::string_view certain = text;
      const MarkSearch search = find_mark(text, 0, {channels_.header_end}, false);
      certain = certain.substr(0, search.position);
      if (final || !may_be_header(certain)) return as_text(Kind::content);
      return false;
    }
    const std::string_view head = text.substr(0, end);
    if (!may_be_header(head)) return as_text(Kind::content);
    header_size_ = end + channels_.header_end.size();
    name_.clear();
    Kind kind = Kind::content;
    if (channels_.header == ChannelFormat::Header::recipient) {
      if (head != "all") name_ = head;
    } else {
      if (const std::size_t to = head.find("to="); to != std::string_view::npos) {
        std::string_view recipient = head.substr(to + 3);
        recipient = recipient.substr(0, recipient.find_first_of(" <"));
        if (recipient.substr(0, 10) == "functions.") recipient.remove_prefix(10);
        name_ = recipient;
      }
      if (addressed() && name_ == "self" && options_.parse_reasoning) kind = Kind::reasoning;
      if (addressed() && (name_ == "self" || name_ == "user")) name_.clear();
      const std::size_t channel = head.find(kChannel);
      if (channel != std::string_view::npos && head.substr(channel + kChannel.size(), 8) == "analysis")
        kind = options_.parse_reasoning ? Kind::reasoning : Kind::content;
    }
    if (!name_.empty() && !tools_.empty()) {
      fed_ = header_size_;
      if (addressed()) {
        reader_.emplace(*compiled_, tools_, false);
        state_ = State::elements;
        return true;
      }
      json_ = {};
      in_arguments_ = committed_ = false;
      arguments_.clear();
      state_ = State::call;
      return true;
    }
    if (!name_.empty()) return as_text(Kind::content);
    take(Kind::markup, header_size_);
    return as_text(kind);
  }

  bool body(bool final) {
    const std::string_view text = pending();
    std::size_t from = scanned_ > taken() ? scanned_ - taken() : 0;
    if (after_call_) {  // white space after a call's arguments
      std::size_t space = 0;
      while (space < text.size() && is_output_space(text[space])) ++space;
      take(Kind::markup, space);
      if (pending().empty()) return false;
      after_call_ = false;
      return true;
    }
    const MarkSearch search = find_mark(text, from, ends_, final);
    scanned_ = taken() + search.position;
    take(body_, search.position);
    if (search.mark == MarkSearch::kNone) return false;
    take(Kind::markup, ends_[search.mark].size());
    state_ = ends_[search.mark] == channels_.open ? State::header : State::open;
    return true;
  }

  bool call(bool final) {
    const std::string_view text = pending();
    while (fed_ < text.size()) {
      const char byte = text[fed_];
      if (!in_arguments_ && is_output_space(byte)) {
        ++fed_;
        continue;
      }
      const bool good = (in_arguments_ || byte == '{') && json_.push(byte) != JsonScanner::Status::failed;
      if (!good) return no_arguments();
      if (!in_arguments_ && options_.stream_arguments) {
        begin_call("", name_, 0);
        committed_ = true;
      }
      in_arguments_ = true;
      ++fed_;
      arguments_ += byte;
      if (json_.depth() == 0) return accept();
    }
    if (committed_) {
      grow_call(std::exchange(arguments_, {}), fed_);
      fed_ = 0;
    }
    if (!final) return false;
    if (committed_) {
      end_call(false, 0);
      committed_ = false;
      return as_text(Kind::content);
    }
    if (is_program_tool(name_) && !in_arguments_) {
      state_ = State::program;
      return true;
    }
    return as_text(Kind::content);
  }

  bool elements(bool final) {
    const std::string_view text = pending();
    while (fed_ < text.size()) {
      switch (reader_->push(text[fed_++])) {
        case CallReader::Status::more:
          continue;
        case CallReader::Status::failed:
          return as_text(Kind::content);
        case CallReader::Status::accepted:
          break;
      }
      begin_call(*reader_, 0);
      grow_call(reader_->arguments(), 0);
      end_call(true, fed_);
      closing_ = LiteralMatcher(closer_);
      fed_ = 0;
      state_ = State::closer;
      return true;
    }
    return final && as_text(Kind::content);
  }

  /// After a call's element.
  bool closer(bool final) {
    const std::string_view text = pending();
    while (fed_ < text.size()) {
      const auto status = closing_.push(text[fed_++]);
      if (status == LiteralMatcher::Status::more) continue;
      if (status == LiteralMatcher::Status::done) take(Kind::markup, fed_);
      after_call_ = true;
      return as_text(Kind::content);
    }
    if (final) take(Kind::markup, pending().size());
    return false;
  }

  bool accept() {
    if (!committed_) begin_call("", name_, 0);
    grow_call(arguments_, 0);
    end_call(true, fed_);
    committed_ = false;
    after_call_ = true;
    return as_text(Kind::content);
  }

  bool no_arguments() {
    if (committed_) {
      grow_call(arguments_, fed_);
      end_call(false, 0);
      committed_ = false;
      return as_text(Kind::content);
    }
    if (is_program_tool(name_) && !in_arguments_) {
      state_ = State::program;
      return true;
    }
    return as_text(Kind::content);
  }

  /// The body is not JSON but the source of a program.
  bool program(bool final) {
    const std::string_view text = pending();
    const std::size_t from = std::max(header_size_, scanned_ > taken() ? scanned_ - taken() : 0);
    const MarkSearch search = find_mark(text, std::min(from, text.size()), ends_, final);
    scanned_ = taken() + search.position;
    if (search.mark == MarkSearch::kNone && !final) return false;
    const std::string_view source =
        text.substr(std::min(header_size_, text.size()), search.position - header_size_);
    const std::vector<std::string> parameters = tools_.parameters(name_);
    arguments_ = "{\"";
    append_json_escaped(arguments_, parameters.empty() ? std::string_view("code") : parameters.front());
    arguments_ += "\": \"";
    append_json_escaped(arguments_, source);
    arguments_ += "\"}";
    fed_ = search.position;
    return accept();
  }

  const ChannelFormat& channels_;
  std::vector<std::string> ends_;
  State state_ = State::header;
  Kind body_ = Kind::content;
  bool after_call_ = false;
  std::size_t scanned_ = 0;

  // Of a call.
  std::string name_, arguments_;
  std::size_t header_size_ = 0, fed_ = 0;
  JsonScanner json_;
  bool in_arguments_ = false, committed_ = false;

  // Of calls as elements.
  CallFormat body_format_;
  std::string closer_;
  std::optional<CompiledCall> compiled_;
  std::optional<CallReader> reader_;
  LiteralMatcher closing_;
};

}  // namespace

std::unique_ptr<OutputParser::Machine> make_channel_machine(std::shared_ptr<const OutputFormat> format,
                                                            const OutputOptions& options) {
  return std::make_unique<ChannelMachine>(std::move(format), options);
}

}  // namespace quipu::text

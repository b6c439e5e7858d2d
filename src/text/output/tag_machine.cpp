// Answers as most families write them: reasoning between tags, then text with calls between tags.
#include <algorithm>

#include "text/output/machine.hpp"

namespace quipu::text {

namespace {

using Kind = OutputEvent::Kind;

std::string without_space_at_end(std::string text) {
  while (!text.empty() && is_output_space(text.back())) text.pop_back();
  return text;
}

std::size_t space_at_start(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size() && is_output_space(text[size])) ++size;
  return size;
}

/// White space before a mark is form, not text; of a long run only so much, for it must be held back.
constexpr std::size_t kMostSpace = 256;

std::size_t size_without_space(std::string_view text) {
  std::size_t size = text.size();
  while (size > 0 && text.size() - size < kMostSpace && is_output_space(text[size - 1])) --size;
  return size;
}

class TagMachine : public OutputParser::Machine {
 public:
  TagMachine(std::shared_ptr<const OutputFormat> format, const OutputOptions& options)
      : Machine(std::move(format), options) {
    if (!tools_.empty())
      for (const CallFormat& call : format_->calls) compiled_.emplace_back(call);
    for (const CompiledCall& call : compiled_) {
      has_bare_ = has_bare_ || call.trigger.empty();
      if (!call.trigger.empty() && std::find(marks_.begin(), marks_.end(), call.trigger) == marks_.end())
        marks_.push_back(call.trigger);
    }
    triggers_ = marks_.size();
    marks_.insert(marks_.end(), format_->markup.begin(), format_->markup.end());
    open_ = marks_.size();
    if (options_.parse_reasoning) {
      open_mark_ = without_space_at_end(format_->reasoning.open);
      if (format_->reasoning.anywhere) marks_.push_back(open_mark_);
      if (format_->reasoning.calls_end_it)
        marks_in_reasoning_.assign(marks_.begin(), marks_.begin() + triggers_);
      marks_in_reasoning_.push_back(without_space_at_end(format_->reasoning.close));
      close_ = marks_in_reasoning_.size() - 1;
    }
    hold_space_ = !compiled_.empty() || format_->reasoning.anywhere;
    at_start_ = options.start != OutputStart::content;
    if (options.start == OutputStart::after_reasoning) before_ = Before::reasoning;
    if (options.start == OutputStart::reasoning && options_.parse_reasoning) state_ = State::reasoning;
  }

  void run(bool final) override {
    while (step(final)) {
    }
  }

 private:
  enum class State { content, reasoning, call, closer };
  /// What white space at the front of pending() is.
  enum class Before { text, call, reasoning };

  /// False: nothing more to do with this text.
  bool step(bool final) {
    if (pending().empty() && state_ != State::call) return false;
    switch (state_) {
      case State::content:
        return content(final);
      case State::reasoning:
        return reasoning(final);
      case State::call:
        return call(final);
      case State::closer:
        return closer(final);
    }
    return false;
  }

  bool content(bool final) {
    std::string_view text = pending();
    std::size_t space = space_at_start(text);
    if (before_ == Before::reasoning && space > 0) {
      take(Kind::markup, space);
      text = pending();
      space = 0;
    }
    if (at_start_ && has_bare_ && space < text.size() && text[space] == '{') {
      begin_reading("", space, Kind::content);
      return true;
    }
    if (at_start_ && !open_mark_.empty() && space < text.size()) {
      const std::string_view rest = text.substr(space, open_mark_.size());
      if (rest == open_mark_) {
        begin_reasoning(space + open_mark_.size());
        return true;
      }
      if (!final && rest == std::string_view(open_mark_).substr(0, rest.size())) return false;
    }
    const MarkSearch search = find_mark(text, scanned_ > taken() ? scanned_ - taken() : 0, marks_, final);
    scanned_ = taken() + search.position;
    const bool found = search.mark != MarkSearch::kNone;
    std::size_t said = search.position;
    if ((hold_space_ || at_start_) && !(final && !found)) said = size_without_space(text.substr(0, said));
    if (said == text.size() && space == said && before_ == Before::call) {
      take(Kind::markup, said);  // white space after the last call
      return false;
    }
    if (said > 0) {
      take(Kind::content, said);
      if (said > space) {
        at_start_ = false;
        before_ = Before::text;
      }
    }
    if (!found) return false;
    space = search.position - said;
    if (search.mark < triggers_) {
      begin_reading(marks_[search.mark], space, Kind::content);
    } else if (search.mark == open_) {
      begin_reasoning(space + marks_[search.mark].size());
    } else {
      take(at_start_ || before_ != Before::text ? Kind::markup : Kind::content, space);
      take(Kind::markup, marks_[search.mark].size());
    }
    return true;
  }

  void begin_reasoning(std::size_t opening) {
    take(Kind::markup, opening);
    state_ = State::reasoning;
    fresh_ = true;
  }

  bool reasoning(bool final) {
    std::string_view text = pending();
    if (fresh_) {
      take(Kind::markup, space_at_start(text));
      text = pending();
      if (text.empty()) return false;
      fresh_ = false;
    }
    const MarkSearch search =
        find_mark(text, scanned_ > taken() ? scanned_ - taken() : 0, marks_in_reasoning_, final);
    scanned_ = taken() + search.position;
    const bool found = search.mark != MarkSearch::kNone;
    std::size_t thought = search.position;
    if (!(final && !found)) thought = size_without_space(text.substr(0, thought));
    take(Kind::reasoning, thought);
    if (!found) return false;
    const std::size_t space = search.position - thought;
    if (search.mark == close_) {
      take(Kind::markup, space + marks_in_reasoning_[close_].size());
      state_ = State::content;
      before_ = Before::reasoning;
      return true;
    }
    begin_reading(marks_in_reasoning_[search.mark], space, Kind::reasoning);
    return true;
  }

  /// A call may begin after `space` bytes of white space.
  void begin_reading(const std::string& trigger, std::size_t space, Kind origin) {
    readers_.clear();
    for (const CompiledCall& call : compiled_)
      if (call.trigger == trigger) readers_.emplace_back(call, tools_, false);
    state_ = State::call;
    origin_ = origin;
    space_ = fed_ = space;
    further_ = closing_alive_ = committed_ = false;
  }

  bool call(bool final) {
    std::string_view text = pending();
    while (fed_ < text.size()) {
      const char byte = text[fed_++];
      if (closing_alive_) {
        const auto status = closing_.push(byte);
        if (status == LiteralMatcher::Status::done) {
          take(Kind::markup, fed_);
          return end_section();
        }
        closing_alive_ = status != LiteralMatcher::Status::failed;
      }
      for (auto reader = readers_.begin(); reader != readers_.end();) {
        const CallReader::Status status = reader->push(byte);
        if (status == CallReader::Status::accepted) return accept(*reader);
        if (status == CallReader::Status::failed && committed_) return break_off(1, false);
        reader = status == CallReader::Status::failed ? readers_.erase(reader) : reader + 1;
      }
      if (readers_.empty() && !closing_alive_) return give_up(final);
      if (options_.stream_arguments && !committed_ && begin_to_show()) text = pending();
    }
    if (committed_) show_progress();
    if (!final) return false;
    for (CallReader& reader : readers_)
      if (reader.finish() == CallReader::Status::accepted) return accept(reader);
    if (committed_) return break_off(0, true);
    if (pending().empty()) return false;
    take(closing_alive_ ? Kind::markup : origin_, pending().size());
    return false;
  }

  /// Lets a call appear before it is whole, when nothing else can come of the text.
  bool begin_to_show() {
    if (readers_.size() != 1 || !readers_.front().committed() || (closing_alive_ && closing_.started()))
      return false;
    take(Kind::markup, space_);
    begin_call(readers_.front(), 0);
    fed_ -= space_;
    space_ = grown_ = 0;
    closing_alive_ = false;
    committed_ = true;
    return true;
  }

  void show_progress() {
    const CallReader& reader = readers_.front();
    if (reader.arguments().size() == grown_) return;
    const std::size_t shown = fed_ - std::min(fed_, reader.hidden());
    grow_call(std::string_view(reader.arguments()).substr(grown_), shown);
    grown_ = reader.arguments().size();
    fed_ -= shown;
  }

  bool accept(const CallReader& reader) {
    if (committed_) {
      grow_call(std::string_view(reader.arguments()).substr(grown_), 0);
    } else {
      take(Kind::markup, space_);
      fed_ -= space_;
      begin_call(reader, 0);
      grow_call(reader.arguments(), 0);
    }
    end_call(true, fed_);
    current_ = &reader.call();
    closing_ = LiteralMatcher(current_->closer);
    fed_ = 0;
    at_start_ = committed_ = false;
    state_ = State::closer;
    if (closing_.empty()) after_closer();
    return true;
  }

  /// A call that has appeared breaks off; its last `spoilt` bytes are not part of it.
  bool break_off(std::size_t spoilt, bool final) {
    const CallReader& reader = readers_.front();
    std::size_t hidden = std::min(fed_, std::max(spoilt, reader.hidden()));
    const std::size_t shown = fed_ - hidden;
    grow_call(std::string_view(reader.arguments()).substr(grown_), 0);
    end_call(false, shown);
    committed_ = at_start_ = false;
    readers_.clear();
    state_ = State::content;
    before_ = Before::text;
    reread_ += hidden;
    if (final || reread_ > 8 * (taken() + hidden) + 65536) {  // keeps the time linear
      const std::string_view text = pending();
      while (hidden < text.size() && hidden > 1 && (static_cast<unsigned char>(text[hidden]) & 0xc0) == 0x80)
        --hidden;
      take(Kind::content, hidden);
    }
    return true;
  }

  /// What was read is no call: it is text, in which another call may begin.
  bool give_up(bool final) {
    if (further_) {
      reread_ += fed_;
      fed_ = 0;
      return end_section();
    }
    std::size_t size = space_ + 1;
    if (reread_ + fed_ > 8 * (taken() + fed_) + 65536) size = fed_;  // keeps the time linear
    reread_ += fed_ - size;
    const std::string_view text = pending();
    while (size < text.size() && size > 1 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
    take(origin_, size);
    at_start_ = false;
    if (origin_ == Kind::content) before_ = Before::text;
    state_ = origin_ == Kind::content ? State::content : State::reasoning;
    return !pending().empty() || final;
  }

  bool closer(bool final) {
    std::string_view text = pending();
    while (fed_ < text.size()) {
      const auto status = closing_.push(text[fed_++]);
      if (status == LiteralMatcher::Status::more) continue;
      if (status == LiteralMatcher::Status::done) take(Kind::markup, fed_);
      after_closer();
      return true;
    }
    if (final) take(Kind::markup, pending().size());
    return false;
  }

  void after_closer() {
    fed_ = 0;
    if (!current_->chained) {
      end_section();
      return;
    }
    readers_.clear();
    readers_.emplace_back(*current_, tools_, true);
    closing_ = LiteralMatcher(current_->format->section_close);
    closing_alive_ = !closing_.empty();
    state_ = State::call;
    origin_ = Kind::content;
    further_ = true;
    committed_ = false;
    space_ = 0;
  }

  bool end_section() {
    state_ = State::content;
    before_ = Before::call;
    at_start_ = false;
    return true;
  }

  std::vector<CompiledCall> compiled_;
  std::vector<std::string> marks_, marks_in_reasoning_;
  std::string open_mark_;     ///< of reasoning; empty: not looked for
  std::size_t triggers_ = 0;  ///< how many of the marks begin a call
  std::size_t open_ = 0, close_ = 0;
  bool has_bare_ = false, hold_space_ = false;

  State state_ = State::content;
  Before before_ = Before::text;
  bool at_start_ = true, fresh_ = true;
  std::size_t scanned_ = 0;  ///< before this byte of the answer there is no mark

  // Of a call that is being read.
  std::vector<CallReader> readers_;
  const CompiledCall* current_ = nullptr;
  LiteralMatcher closing_;
  bool closing_alive_ = false;
  bool further_ = false;    ///< a further call of a section
  bool committed_ = false;  ///< it has appeared
  Kind origin_ = Kind::content;
  std::size_t space_ = 0, fed_ = 0, grown_ = 0;
  std::size_t reread_ = 0;  ///< bytes read more than once
};

}  // namespace

std::unique_ptr<OutputParser::Machine> make_tag_machine(std::shared_ptr<const OutputFormat> format,
                                                        const OutputOptions& options) {
  return std::make_unique<TagMachine>(std::move(format), options);
}

}  // namespace quipu::text

// What the machines behind OutputParser share: the text not yet accounted for, and the events.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/output/call_reader.hpp"
#include "text/output/output_parser.hpp"

namespace quipu::text {

struct OutputParser::Machine {
  Machine(std::shared_ptr<const OutputFormat> format, const OutputOptions& options);
  virtual ~Machine() = default;

  /// Reads on in `pending()`; `final`: nothing follows.
  virtual void run(bool final) = 0;

  std::vector<OutputEvent> push(std::string_view text);
  std::vector<OutputEvent> finish();

 protected:
  /// The text that no event stands for yet.
  std::string_view pending() const { return std::string_view(text_).substr(begin_); }
  /// Bytes of the answer before pending().
  std::size_t taken() const { return taken_; }

  /// Takes `size` bytes from pending() as an event of this kind; neighbours of one kind become one.
  void take(OutputEvent::Kind kind, std::size_t size);

  // A call: begins with `size` bytes of pending(), grows, ends.
  void begin_call(const CallReader& reader, std::size_t size);
  void begin_call(std::string_view id, std::string_view name, std::size_t size);
  void grow_call(std::string_view arguments, std::size_t size);
  void end_call(bool complete, std::size_t size);

  std::shared_ptr<const OutputFormat> format_;
  ToolSet tools_;
  OutputOptions options_;
  std::size_t calls_ = 0;

 private:
  std::string text_;
  std::size_t begin_ = 0, taken_ = 0;
  std::vector<OutputEvent> events_;
};

/// Where the first of several marks is, or may be.
struct MarkSearch {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t position;  ///< of the mark; else of what may become one; else the text's size
  std::size_t mark;      ///< index of the longest mark that is whole there; kNone
};
/// Empty marks are skipped. `final`: what is not whole is none.
MarkSearch find_mark(std::string_view text, std::size_t from, const std::vector<std::string>& marks,
                     bool final);

inline bool is_output_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::unique_ptr<OutputParser::Machine> make_tag_machine(std::shared_ptr<const OutputFormat> format,
                                                        const OutputOptions& options);
std::unique_ptr<OutputParser::Machine> make_channel_machine(std::shared_ptr<const OutputFormat> format,
                                                            const OutputOptions& options);

}  // namespace quipu::text

// Takes a model's text apart while it is generated: what it thinks, what it says, which tools it calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/output/events.hpp"
#include "text/output/output_format.hpp"

namespace quipu::text {

/// Where in an answer the model's text begins: the prompt may have opened the reasoning, or closed it again,
/// or given the beginning of what is said.
enum class OutputStart { answer, reasoning, after_reasoning, content };

struct OutputOptions {
  /// The tools that were offered. None: nothing is a call.
  std::span<const Tool> tools = {};
  OutputStart start = OutputStart::answer;
  /// False: a call appears when it is whole, so that each one that appears is valid; what turns out to be no
  /// call is content. True: arguments appear as they are written. Then a call that breaks off has appeared
  /// already, and ends with `complete` false and what is certain of its arguments; the bytes that spoil it
  /// are content. For text that a grammar holds to the form, only the length limit can do that.
  bool stream_arguments = false;
  bool parse_reasoning = true;  ///< false: marks of reasoning are content
  std::uint64_t id_seed = 0;    ///< for the ids of calls that come without one
};

/// One per answer. Takes the text in pieces of any size; the pieces make no difference to the result. Holds
/// text back only while it may be part of a mark or of a call. Time is linear in the text.
class OutputParser {
 public:
  OutputParser(std::shared_ptr<const OutputFormat> format, const OutputOptions& options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  /// What this piece of the model's text made certain.
  std::vector<OutputEvent> push(std::string_view text);
  /// The rest: what was held back is content or reasoning after all. The parser is then spent.
  std::vector<OutputEvent> finish();

  struct Machine;

 private:
  std::unique_ptr<Machine> machine_;
};

/// The whole of a text at once.
ParsedOutput parse_output(std::shared_ptr<const OutputFormat> format, const OutputOptions& options,
                          std::string_view text);

}  // namespace quipu::text

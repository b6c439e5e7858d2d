// Reads one tool call, byte by byte, as one format writes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/output/json_scanner.hpp"
#include "text/output/literals.hpp"
#include "text/output/nested_elements.hpp"
#include "text/output/output_format.hpp"
#include "text/output/tool_set.hpp"

namespace quipu::text {

/// Matches a literal byte by byte; white space in it stands for any white space, and any may come before.
class LiteralMatcher {
 public:
  enum class Status { more, done, failed };
  LiteralMatcher() = default;
  explicit LiteralMatcher(std::string literal);
  /// Nothing but white space to match.
  bool empty() const { return size_ == 0; }
  bool started() const { return position_ > 0; }
  /// `done`: this byte is the last one that is no white space.
  Status push(char byte);

 private:
  std::string literal_;
  std::size_t size_ = 0;  ///< without white space at the end
  std::size_t position_ = 0;
};

/// A format made ready for reading.
struct CompiledCall {
  explicit CompiledCall(const CallFormat& source);

  const CallFormat* format;
  std::string trigger;               ///< with this text a call begins; empty: with the call's own first byte
  std::vector<PatternPart> opening;  ///< section and call up to the arguments
  std::vector<PatternPart> next;     ///< the same for a further call of the section
  std::string closer;                ///< literal after the arguments
  std::vector<PatternPart> parameter;
  bool chained;  ///< further calls follow without a trigger of their own
};

class CallReader {
 public:
  enum class Status { more, accepted, failed };

  /// Both must outlive the reader. `next`: a further call of the section.
  CallReader(const CompiledCall& call, const ToolSet& tools, bool next);

  /// `accepted`: the call is whole with this byte; what may still follow is the closer.
  Status push(char byte);
  /// The answer ends here.
  Status finish();

  /// The name is known and the arguments have begun: more of the same can only lengthen `arguments()`.
  bool committed() const;
  const CompiledCall& call() const { return *call_; }
  const std::string& id() const { return id_; }
  const std::string& name() const { return name_; }
  /// JSON text, as far as it is certain.
  const std::string& arguments() const { return arguments_; }
  /// How many of the last bytes `arguments()` does not show yet.
  std::size_t hidden() const;

 private:
  Status enter_step();
  Status push_name(char byte);
  Status push_arguments(char byte);
  Status push_object(char byte);
  Status object_value_ended();
  Status push_xml(char byte);
  Status push_value(char byte);
  void end_value(std::string_view raw);
  Status leave_capture(std::string& captured, char byte);

  const CompiledCall* call_;
  const ToolSet* tools_;
  const std::vector<PatternPart>* steps_;
  std::size_t step_ = 0;
  LiteralMatcher literal_;
  std::string id_, name_, arguments_;
  JsonScanner json_;
  PythonScanner python_;
  GemmaScanner gemma_;
  NestedScanner nested_;
  std::string raw_;  ///< object, python, gemma, code, nested: what was read of it

  // Of the object: where its present key and value begin.
  std::size_t text_begin_ = 0, value_begin_ = 0;
  std::string key_;
  bool in_arguments_ = false, has_arguments_ = false;

  // Of xml.
  enum class Xml { between, key, after_key, type, after_type, value };
  Xml xml_ = Xml::between;
  LiteralMatcher closing_;
  bool opening_alive_ = true, closing_alive_ = true;
  std::size_t part_ = 0;
  std::string type_, value_;
  std::string value_end_;                            ///< what ends a value, without white space
  bool break_before_ = false, break_after_ = false;  ///< line feeds around a value are not part of it
  std::size_t shown_ = 0;                            ///< bytes of the value that are in `arguments_`
  bool known_text_ = false;
  std::size_t unseen_ = 0;  ///< bytes since the last argument was whole
};

}  // namespace quipu::text

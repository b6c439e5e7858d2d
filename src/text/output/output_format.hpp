// How models of one family write reasoning and tool calls: a description that serves the parser of their
// output, the grammar of a forced call, and the choice of control tokens to print.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace quipu::text {

/// How the arguments of a call are written.
enum class ArgumentSyntax {
  json,    ///< one JSON object
  xml,     ///< `parameter` once for each argument, texts as they are, other values as JSON
  python,  ///< keyword arguments of a call in Python: a='x', b=[1, None]
  gemma,   ///< {key:<|"|>text<|"|>,other:[1,true]}
  nested,  ///< elements that each begin with one mark; objects and lists are elements inside
  code,    ///< the rest of the answer is a program, the argument "code" of the tool "python"
};

/// One way to write calls. In patterns white space stands for any white space or none when read, and for
/// itself when written.
struct CallFormat {
  std::string section_open = {};   ///< literal before all calls of an answer, once; empty: calls stand alone
  std::string section_close = {};  ///< literal after them
  /// One call: literal text with the places {name}, {arguments}, and {id} where calls have one.
  std::string call;
  std::string separator = {};  ///< literal between two calls
  ArgumentSyntax arguments = ArgumentSyntax::json;
  /// xml: one argument, with the places {key}, {value}, perhaps {type}. nested: one element; what stands
  /// before its < is the mark of all tags.
  std::string parameter = {};
  bool cdata = false;  ///< xml: a value may stand in <![CDATA[…]]>
  /// The call is a JSON object between the literals: its keys may come in any order, with others among them.
  bool object = false;
  std::string name_key = "name", arguments_key = "arguments", id_key = "id";  ///< of the object
  /// Only as the whole answer, and only with the name of a tool that was offered: nothing else tells such
  /// a call from JSON that a person asked for.
  bool bare = false;
  bool parallel = true;  ///< several calls in one answer
};

/// Where a model writes what it thinks.
struct ReasoningFormat {
  std::string open = "<think>", close = "</think>";
  bool anywhere = false;      ///< also after the answer has begun; else only at its start
  bool calls_end_it = false;  ///< a call inside ends the reasoning
};

/// Answers made of messages that each begin with a header: <open>HEADER<header_end>BODY<one of ends>.
struct ChannelFormat {
  enum class Header {
    harmony,    ///< assistant[ to=RECIPIENT]<|channel|>analysis|commentary|final[ to=RECIPIENT][ json]
    recipient,  ///< the tool's name, or "all" for people
    addressed,  ///< to=RECIPIENT: a tool, "user", or "self" for thoughts; calls are elements in the body
  };
  Header header = Header::harmony;
  std::string open;               ///< before a header; the prompt has given the first one
  std::string header_end;         ///< between header and body
  std::vector<std::string> ends;  ///< after a body; may be the next `open`
};

/// The shape of the ids that a family's templates and models expect.
enum class IdStyle { openai, mistral, kimi, count };

struct OutputFormat {
  std::string family;
  std::vector<CallFormat> calls;  ///< the first one is how a forced call is written; all are read
  ReasoningFormat reasoning = {};
  std::optional<ChannelFormat> channels = {};
  std::vector<std::string> markup = {};  ///< literals around the answer itself, not part of it
  IdStyle ids = IdStyle::openai;
};

/// The family of a chat template, from marks in its source. Never null: the last family is the general one,
/// calls as {"name", "arguments"} between <tool_call> tags.
std::shared_ptr<const OutputFormat> output_format_for(std::string_view template_source);
/// All families, the general one last.
const std::vector<std::shared_ptr<const OutputFormat>>& output_formats();
const OutputFormat& general_output_format();

/// A pattern taken apart.
struct PatternPart {
  enum class Kind { literal, name, id, arguments, key, value, type };
  Kind kind = Kind::literal;
  std::string text = {};  ///< of a literal
  bool operator==(const PatternPart&) const = default;
};
std::vector<PatternPart> parse_pattern(std::string_view pattern);

/// The control tokens of a vocabulary that are marks of the format: what a stream must print for the parser
/// to see them. Ascending.
std::vector<Token> marker_tokens(const OutputFormat& format, const Tokenizer& tokenizer);

/// An id for a call without one. The same seed, index and name give the same id.
std::string make_call_id(IdStyle style, std::uint64_t seed, std::size_t index, std::string_view name);

}  // namespace quipu::text

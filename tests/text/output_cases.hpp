// Runs a parser of model output over one text in many ways that must not differ.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include <string>
#include <vector>

#include "text/output/output_parser.hpp"

namespace quipu::test {

inline std::vector<text::Tool> tools_from(std::string_view json) {
  return text::read_tools(text::jinja::parse_json(json, "tools"));
}

/// Content, reasoning and calls on one line each, as the tests write them.
inline std::string describe(const text::ParsedOutput& output) {
  std::string out;
  if (!output.reasoning.empty()) out += "R|" + output.reasoning + "\n";
  if (!output.content.empty()) out += "C|" + output.content + "\n";
  for (const text::ToolCall& call : output.tool_calls) out += "T|" + call.name + " " + call.arguments + "\n";
  return out;
}

/// In pieces of `size` bytes (0: all at once). Checks that the events account for each byte of the text.
inline text::ParsedOutput parse_in_pieces(const std::shared_ptr<const text::OutputFormat>& format,
                                          const text::OutputOptions& options, std::string_view text,
                                          std::size_t size) {
  using Kind = text::OutputEvent::Kind;
  text::OutputParser parser(format, options);
  text::ParsedOutput output;
  std::size_t bytes = 0, pushed = 0;
  std::vector<int> ended;
  const auto take = [&](const std::vector<text::OutputEvent>& events) {
    for (const text::OutputEvent& event : events) {
      const bool literal =
          event.kind == Kind::content || event.kind == Kind::reasoning || event.kind == Kind::markup;
      if (literal) {
        EXPECT_EQ(event.text, text.substr(bytes, event.bytes)) << "a text event stands for other bytes";
      }
      if (event.kind == Kind::tool_call) {
        EXPECT_EQ(event.call, output.tool_calls.size());
        EXPECT_FALSE(event.id.empty());
        EXPECT_FALSE(event.name.empty());
        ended.push_back(0);
      }
      if (event.kind == Kind::tool_call_end) {
        EXPECT_LT(event.call, ended.size());
        ++ended[event.call];
        EXPECT_TRUE(event.complete || options.stream_arguments);
      }
      bytes += event.bytes;
      EXPECT_LE(bytes, pushed);
      output.add(event);
    }
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view piece = text.substr(i, size == 0 ? text.size() : size);
    i += piece.size();
    pushed = i;
    take(parser.push(piece));
  }
  take(parser.finish());
  EXPECT_EQ(bytes, text.size()) << "the events do not account for the text";
  for (const int count : ended) EXPECT_EQ(count, 1);
  return output;
}

/// The same result whole and in pieces, arguments streamed or not. Returns it.
inline text::ParsedOutput parse_all_ways(const std::shared_ptr<const text::OutputFormat>& format,
                                         text::OutputOptions options, std::string_view text,
                                         bool breaks_off = false) {
  const text::ParsedOutput whole = parse_in_pieces(format, options, text, 0);
  for (const bool streamed : {false, true}) {
    options.stream_arguments = streamed;
    const std::string expected =
        describe(streamed && breaks_off ? parse_in_pieces(format, options, text, 0) : whole);
    for (const std::size_t size : {1, 2, 3, 7, 64}) {
      const text::ParsedOutput pieces = parse_in_pieces(format, options, text, size);
      EXPECT_EQ(describe(pieces), expected)
          << "in pieces of " << size << ", streamed " << streamed << ": " << text;
      for (std::size_t i = 0; i < pieces.tool_calls.size() && !streamed; ++i)
        EXPECT_EQ(pieces.tool_calls[i].id, whole.tool_calls[i].id);
    }
  }
  return whole;
}

}  // namespace quipu::test

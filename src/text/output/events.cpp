#include "text/output/events.hpp"

namespace quipu::text {

void ParsedOutput::add(const OutputEvent& event) {
  switch (event.kind) {
    case OutputEvent::Kind::content:
      content += event.text;
      return;
    case OutputEvent::Kind::reasoning:
      reasoning += event.text;
      return;
    case OutputEvent::Kind::tool_call:
      tool_calls.push_back({event.id, event.name, ""});
      return;
    case OutputEvent::Kind::arguments:
      tool_calls[event.call].arguments += event.text;
      return;
    case OutputEvent::Kind::tool_call_end:
    case OutputEvent::Kind::markup:
      return;
  }
}

}  // namespace quipu::text

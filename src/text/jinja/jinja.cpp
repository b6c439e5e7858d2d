#include "text/jinja/jinja.hpp"

#include "text/jinja/context.hpp"
#include "text/jinja/parser.hpp"

namespace quipu::text::jinja {

namespace {

ErrorCode code_of(TemplateError::Kind kind) {
  switch (kind) {
    case TemplateError::Kind::syntax:
      return ErrorCode::bad_file;
    case TemplateError::Kind::limit:
      return ErrorCode::unsupported;
    default:
      return ErrorCode::invalid_argument;
  }
}

std::string sentence(TemplateError::Kind kind, std::string_view detail, std::uint32_t line) {
  const std::string place = line > 0 ? fmt::format(", line {}", line) : std::string();
  if (kind == TemplateError::Kind::syntax)
    return fmt::format("the chat template does not parse{}: {}", place, detail);
  if (kind == TemplateError::Kind::raised)
    return fmt::format("the chat template refuses the conversation{}: {}", place, printable(detail, 500));
  return fmt::format("the chat template cannot be rendered{}: {}", place, detail);
}

}  // namespace

TemplateError::TemplateError(Kind kind, std::string detail, std::uint32_t line)
    : Error(code_of(kind), sentence(kind, detail, line)),
      kind_(kind),
      detail_(std::move(detail)),
      line_(line) {}

Template::Template(std::string_view source)
    : program_(std::make_shared<const Program>(parse_template(source))) {}

Rendered Template::render(const Variables& variables, const Limits& limits, const Clock& clock) const {
  return Context(*program_, limits, clock).run(variables);
}

}  // namespace quipu::text::jinja

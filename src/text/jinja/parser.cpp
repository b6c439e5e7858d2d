#include "text/jinja/parser.hpp"

#include <algorithm>

#include "text/jinja/jinja.hpp"
#include "text/jinja/parser_impl.hpp"

namespace quipu::text::jinja {

namespace {

/// Machine stack that parsing may take; reached only in builds with large frames.
constexpr std::ptrdiff_t kParserStack = 160 << 10;

const char* frame_address() { return static_cast<const char*>(__builtin_frame_address(0)); }

}  // namespace

Parser::Parser(std::string_view source)
    : source_(normalize_source(source)), tokens_(tokenize(source_)), stack_base_(frame_address()) {}

void Parser::enter() {
  if (++nesting_ > kMaxNesting || std::abs(stack_base_ - frame_address()) > kParserStack) {
    --nesting_;
    fail_at(fmt::format("blocks and expressions are nested deeper than {} levels", kMaxNesting));
  }
}

void Parser::fail_at(std::string reason) const {
  throw TemplateError(TemplateError::Kind::syntax, std::move(reason), current().line);
}

std::string Parser::describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::variable_end:
    case TokenKind::block_end:
      return "the end of the tag";
    case TokenKind::data:
      return "text";
    default:
      return "'" + printable(text(token), 40) + "'";
  }
}

void Parser::fail_unexpected() const { fail_at("unexpected " + describe(current())); }

bool Parser::accept(Symbol symbol) {
  if (!at(symbol)) return false;
  ++position_;
  return true;
}

bool Parser::accept_name(std::string_view name) {
  if (!at_name(name)) return false;
  ++position_;
  return true;
}

void Parser::expect(Symbol symbol, std::string_view spelling) {
  if (!accept(symbol)) fail_at(fmt::format("expected '{}', found {}", spelling, describe(current())));
}

void Parser::expect_name(std::string_view name) {
  if (!accept_name(name)) fail_at(fmt::format("expected '{}', found {}", name, describe(current())));
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) fail_at(fmt::format("expected {}, found {}", what, describe(current())));
  ++position_;
}

std::string_view Parser::take_name(std::string_view what) {
  expect(TokenKind::name, what);
  return text(tokens_[position_ - 1]);
}

Stmt& Parser::make_stmt(StmtKind kind) {
  Stmt& stmt = program_.stmts.emplace_back();
  stmt.kind = kind;
  stmt.line = current().line;
  return stmt;
}

std::int32_t Parser::add_text(std::string text) {
  program_.texts.push_back(std::move(text));
  return static_cast<std::int32_t>(program_.texts.size() - 1);
}

void Parser::forgive_unknown(std::size_t since) {
  const auto begin = unknown_.begin() + static_cast<std::ptrdiff_t>(since);
  unknown_.erase(std::remove_if(begin, unknown_.end(), [](const Unknown& u) { return !u.certain; }),
                 unknown_.end());
}

void Parser::confirm_unknown(std::size_t since) {
  for (std::size_t i = since; i < unknown_.size(); ++i) unknown_[i].certain = true;
}

Program Parser::run() {
  program_.body = parse_body({});
  if (!at(TokenKind::end)) fail_unexpected();
  if (!unknown_.empty())
    throw TemplateError(TemplateError::Kind::syntax, unknown_.front().what, unknown_.front().line);
  return std::move(program_);
}

/// Statements up to a tag whose word is one of `ends` (left current) or the end of the template.
Body Parser::parse_body(std::initializer_list<std::string_view> ends) {
  const Nest nest(*this);
  Body body;
  for (;;) {
    switch (current().kind) {
      case TokenKind::data: {
        Stmt& stmt = make_stmt(StmtKind::text);
        stmt.constant = add_text(std::string(text(current())));
        body.push_back(&stmt);
        ++position_;
        break;
      }
      case TokenKind::variable_begin:
        parse_output(body);
        break;
      case TokenKind::block_begin:
        ++position_;
        if (at(TokenKind::name) && std::find(ends.begin(), ends.end(), text(current())) != ends.end())
          return body;
        body.push_back(parse_statement());
        expect(TokenKind::block_end, "the end of the tag");
        break;
      case TokenKind::end:
        if (ends.size() != 0)
          fail_at(fmt::format("the template ends where '{}' is expected", *(ends.end() - 1)));
        return body;
      default:
        fail_unexpected();
    }
  }
}

void Parser::parse_output(Body& body) {
  Stmt& stmt = make_stmt(StmtKind::output);
  ++position_;
  stmt.exprs.push_back(parse_tuple(true, {}, false));
  body.push_back(&stmt);
  expect(TokenKind::variable_end, "the end of the tag");
}

/// The rest of an opening tag and the body; the closing tag's word is left current.
Body Parser::parse_block_body(std::initializer_list<std::string_view> ends) {
  accept(Symbol::colon);
  expect(TokenKind::block_end, "the end of the tag");
  return parse_body(ends);
}

const Stmt* Parser::parse_statement() {
  if (!at(TokenKind::name)) fail_at("expected the name of a tag, found " + describe(current()));
  const std::string_view tag = text(current());
  if (tag == "set") return parse_set();
  if (tag == "if") return parse_if();
  if (tag == "for") return parse_for();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "filter") return parse_filter_block();
  if (tag == "with") return parse_with();
  if (tag == "generation") return parse_generation();
  if (tag == "print") return parse_print();
  if (tag == "break") return parse_loop_control(StmtKind::leave);
  if (tag == "continue") return parse_loop_control(StmtKind::next);
  if (tag == "include" || tag == "import" || tag == "from" || tag == "extends" || tag == "block" ||
      tag == "autoescape")
    fail_at(fmt::format("the tag '{}' is not supported: a chat template is a single file", tag));
  fail_at("unknown tag " + describe(current()));
}

const Stmt* Parser::parse_set() {
  Stmt& stmt = make_stmt(StmtKind::set);
  ++position_;
  stmt.targets.push_back(parse_target(true, {}));
  if (accept(Symbol::assign)) {
    stmt.exprs.push_back(parse_tuple(true, {}, false));
    return &stmt;
  }
  stmt.kind = StmtKind::set_block;
  const std::size_t unknown = unknown_.size();
  stmt.exprs.push_back(at(Symbol::pipe) ? parse_filter_chain(nullptr) : nullptr);
  stmt.bodies.push_back(parse_block_body({"endset"}));
  confirm_unknown(unknown);
  ++position_;
  return &stmt;
}

const Stmt* Parser::parse_if() {
  Stmt& stmt = make_stmt(StmtKind::branch);
  const std::size_t unknown = unknown_.size();
  for (;;) {
    ++position_;
    stmt.exprs.push_back(parse_tuple(false, {}, false));
    stmt.bodies.push_back(parse_block_body({"elif", "else", "endif"}));
    if (!at_name("elif")) break;
  }
  if (accept_name("else")) stmt.bodies.push_back(parse_block_body({"endif"}));
  ++position_;
  forgive_unknown(unknown);
  return &stmt;
}

const Stmt* Parser::parse_for() {
  Stmt& stmt = make_stmt(StmtKind::loop);
  ++position_;
  stmt.targets.push_back(parse_target(false, "in"));
  expect_name("in");
  stmt.exprs.push_back(parse_tuple(false, "recursive", false));
  const std::size_t unknown = unknown_.size();
  stmt.exprs.push_back(accept_name("if") ? parse_expression() : nullptr);
  stmt.recursive = accept_name("recursive");
  ++loops_;
  stmt.bodies.push_back(parse_block_body({"else", "endfor"}));
  --loops_;
  if (accept_name("else"))
    stmt.bodies.push_back(parse_block_body({"endfor"}));
  else
    stmt.bodies.emplace_back();
  confirm_unknown(unknown);
  ++position_;
  return &stmt;
}

MacroBody& Parser::open_macro() { return program_.macros.emplace_back(); }

void Parser::parse_signature(MacroBody& macro) {
  expect(Symbol::lparen, "(");
  while (!at(Symbol::rparen)) {
    if (!macro.parameters.empty()) expect(Symbol::comma, ",");
    if (at(Symbol::rparen)) break;
    const std::int32_t name = program_.intern(take_name("a parameter"));
    if (std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end())
      fail_at("two parameters have the same name");
    macro.parameters.push_back(name);
    if (accept(Symbol::assign))
      macro.defaults.push_back(parse_expression());
    else if (!macro.defaults.empty())
      fail_at("a parameter without a default follows one that has a default");
  }
  ++position_;
}

void Parser::parse_macro_body(MacroBody& macro, std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  macro.body = parse_block_body({end});
  loops_ = loops;
  ++position_;
}

const Stmt* Parser::parse_macro() {
  Stmt& stmt = make_stmt(StmtKind::macro);
  const std::size_t unknown = unknown_.size();
  ++position_;
  MacroBody& macro = open_macro();
  stmt.macro = &macro;
  macro.name = program_.intern(take_name("the macro's name"));
  macros_.push_back(&macro);
  parse_signature(macro);
  parse_macro_body(macro, "endmacro");
  macros_.pop_back();
  confirm_unknown(unknown);
  return &stmt;
}

const Stmt* Parser::parse_call_block() {
  Stmt& stmt = make_stmt(StmtKind::call_block);
  ++position_;
  MacroBody& macro = open_macro();
  stmt.macro = &macro;
  const std::size_t unknown = unknown_.size();
  macros_.push_back(&macro);
  if (at(Symbol::lparen)) parse_signature(macro);
  macros_.pop_back();
  confirm_unknown(unknown);
  const Expr* call = parse_expression();
  if (call->kind != ExprKind::call) fail_at("expected a call");
  stmt.exprs.push_back(call);
  const std::size_t inside = unknown_.size();
  macros_.push_back(&macro);
  parse_macro_body(macro, "endcall");
  macros_.pop_back();
  confirm_unknown(inside);
  return &stmt;
}

const Stmt* Parser::parse_generation() {
  Stmt& stmt = make_stmt(StmtKind::generation);
  ++position_;
  const std::size_t unknown = unknown_.size();
  const int loops = std::exchange(loops_, 0);
  stmt.bodies.push_back(parse_block_body({"endgeneration"}));
  loops_ = loops;
  confirm_unknown(unknown);
  ++position_;
  return &stmt;
}

const Stmt* Parser::parse_filter_block() {
  Stmt& stmt = make_stmt(StmtKind::filter_block);
  ++position_;
  const std::size_t unknown = unknown_.size();
  const Expr* filter = parse_filter(nullptr);
  stmt.exprs.push_back(at(Symbol::pipe) ? parse_filter_chain(filter) : filter);
  stmt.bodies.push_back(parse_block_body({"endfilter"}));
  confirm_unknown(unknown);
  ++position_;
  return &stmt;
}

const Stmt* Parser::parse_with() {
  Stmt& stmt = make_stmt(StmtKind::with);
  ++position_;
  const std::size_t unknown = unknown_.size();
  while (!at(TokenKind::block_end)) {
    if (!stmt.targets.empty()) expect(Symbol::comma, ",");
    stmt.targets.push_back(parse_target(false, {}));
    expect(Symbol::assign, "=");
    stmt.exprs.push_back(parse_expression());
  }
  stmt.bodies.push_back(parse_block_body({"endwith"}));
  confirm_unknown(unknown);
  ++position_;
  return &stmt;
}

const Stmt* Parser::parse_print() {
  Stmt& stmt = make_stmt(StmtKind::output);
  ++position_;
  while (!at(TokenKind::block_end)) {
    if (!stmt.exprs.empty()) expect(Symbol::comma, ",");
    stmt.exprs.push_back(parse_expression());
  }
  return &stmt;
}

const Stmt* Parser::parse_loop_control(StmtKind kind) {
  if (loops_ == 0) fail_at(describe(current()) + " stands outside of a loop");
  Stmt& stmt = make_stmt(kind);
  ++position_;
  return &stmt;
}

Target Parser::parse_single_target(bool allow_attribute) {
  Target target;
  const Nest nest(*this);
  if (accept(Symbol::lparen)) {
    target = parse_target(false, {});
    expect(Symbol::rparen, ")");
    return target;
  }
  const std::string_view name = take_name("a variable");
  if (name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
      name == "None")
    fail_at(fmt::format("cannot assign to '{}'", name));
  target.name = program_.intern(name);
  if (allow_attribute && accept(Symbol::dot)) target.attribute = program_.intern(take_name("an attribute"));
  return target;
}

Target Parser::parse_target(bool allow_attribute, std::string_view end_name) {
  Target first = parse_single_target(allow_attribute);
  if (!at(Symbol::comma)) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (accept(Symbol::comma)) {
    if (at(Symbol::assign) || at(Symbol::rparen) || at(TokenKind::block_end)) break;
    if (!end_name.empty() && at_name(end_name)) break;
    tuple.parts.push_back(parse_single_target(allow_attribute));
  }
  return tuple;
}

Program parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace quipu::text::jinja

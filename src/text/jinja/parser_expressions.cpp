// Expressions: Jinja's precedence, low to high: inline if, or, and, not, comparisons, + -, ~, * / // %, **,
// sign, postfix, then filters and tests.
#include <algorithm>
#include <charconv>

#include "text/jinja/functions.hpp"
#include "text/jinja/jinja.hpp"
#include "text/jinja/parser_impl.hpp"

namespace quipu::text::jinja {

namespace {

enum Level : int { kOr, kAnd, kNot, kCompare, kSum, kConcat, kProduct, kPower, kNoLevel = -1 };

struct BinaryOperator {
  int level = kNoLevel;
  Operator op = Operator::add;
};

BinaryOperator binary_operator(Symbol symbol) {
  switch (symbol) {
    case Symbol::eq:
      return {kCompare, Operator::equal};
    case Symbol::ne:
      return {kCompare, Operator::not_equal};
    case Symbol::lt:
      return {kCompare, Operator::less};
    case Symbol::le:
      return {kCompare, Operator::less_equal};
    case Symbol::gt:
      return {kCompare, Operator::greater};
    case Symbol::ge:
      return {kCompare, Operator::greater_equal};
    case Symbol::add:
      return {kSum, Operator::add};
    case Symbol::sub:
      return {kSum, Operator::subtract};
    case Symbol::tilde:
      return {kConcat, Operator::add};
    case Symbol::mul:
      return {kProduct, Operator::multiply};
    case Symbol::div:
      return {kProduct, Operator::divide};
    case Symbol::floordiv:
      return {kProduct, Operator::floor_divide};
    case Symbol::mod:
      return {kProduct, Operator::modulo};
    case Symbol::pow:
      return {kPower, Operator::power};
    default:
      return {};
  }
}

}  // namespace

Expr& Parser::make(ExprKind kind, std::uint32_t line) {
  Expr& expr = program_.exprs.emplace_back();
  expr.kind = kind;
  expr.line = line;
  return expr;
}

void Parser::adopt(Expr& parent, const Expr* operand) {
  parent.operands.push_back(operand);
  if (operand == nullptr) return;
  if (operand->depth >= kMaxNesting)
    fail_at(fmt::format("an expression is nested deeper than {} levels", kMaxNesting));
  parent.depth = std::max(parent.depth, static_cast<std::uint16_t>(operand->depth + 1));
}

Expr& Parser::unary(ExprKind kind, const Expr* operand, std::uint32_t line) {
  Expr& expr = make(kind, line);
  adopt(expr, operand);
  return expr;
}

const Expr* Parser::parse_expression(bool conditional) {
  const Nest nest(*this);
  const std::size_t unknown = unknown_.size();
  const Expr* value = parse_level(kOr);
  while (conditional && at_name("if")) {
    Expr& expr = make(ExprKind::conditional, current().line);
    ++position_;
    adopt(expr, parse_level(kOr));
    adopt(expr, value);
    adopt(expr, accept_name("else") ? parse_expression() : nullptr);
    forgive_unknown(unknown);
    value = &expr;
  }
  return value;
}

const Expr* Parser::parse_level(int level) {
  const std::uint32_t line = current().line;
  const Expr* left = nullptr;
  if (level <= kNot && accept_name("not")) {
    const Nest nest(*this);
    left = &unary(ExprKind::logical_not, parse_level(kNot), line);
  } else {
    left = parse_unary(true);
  }
  int previous = kNoLevel;
  for (;;) {
    BinaryOperator found;
    std::size_t words = 1;
    if (at(TokenKind::symbol)) {
      found = binary_operator(current().symbol);
    } else if (at_name("or")) {
      found.level = kOr;
    } else if (at_name("and")) {
      found.level = kAnd;
    } else if (at_name("in")) {
      found = {kCompare, Operator::in};
    } else if (at_name("not") && is_name(look(), "in")) {
      found = {kCompare, Operator::not_in};
      words = 2;
    }
    if (found.level == kNoLevel || found.level < level) return left;
    position_ += words;
    left = combine(left, found.level, found.op, previous == found.level, line);
    previous = found.level;
  }
}

/// Joins `left` and the operand that follows. `extend`: left was made by the operator before, of the same
/// level, so that chains of comparisons and of ~ stay one node.
const Expr* Parser::combine(const Expr* left, int level, Operator op, bool extend, std::uint32_t line) {
  const Expr* right = parse_level(level + 1);
  if (extend && (level == kConcat || level == kCompare)) {
    Expr& chain = const_cast<Expr&>(*left);  // a node of this program, made by the operator before
    adopt(chain, right);
    if (level == kCompare) chain.ops.push_back(op);
    return &chain;
  }
  const ExprKind kind = level == kOr        ? ExprKind::logical_or
                        : level == kAnd     ? ExprKind::logical_and
                        : level == kCompare ? ExprKind::compare
                        : level == kConcat  ? ExprKind::concat
                                            : ExprKind::binary;
  Expr& expr = make(kind, line);
  expr.op = op;
  adopt(expr, left);
  adopt(expr, right);
  if (level == kCompare) expr.ops.push_back(op);
  return &expr;
}

const Expr* Parser::parse_unary(bool with_filters) {
  const std::uint32_t line = current().line;
  const Expr* value = nullptr;
  if (at(Symbol::sub) || at(Symbol::add)) {
    const Nest nest(*this);
    const ExprKind kind = at(Symbol::sub) ? ExprKind::negate : ExprKind::plus;
    ++position_;
    value = &unary(kind, parse_unary(false), line);
  } else {
    value = parse_primary();
  }
  value = parse_postfix(value);
  return with_filters ? parse_filters_and_tests(value) : value;
}

void Parser::note_name(std::string_view name) {
  for (MacroBody* macro : macros_) {
    if (name == "varargs") macro->uses_varargs = true;
    if (name == "kwargs") macro->uses_kwargs = true;
    if (name == "caller") macro->uses_caller = true;
  }
}

const Expr* Parser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::name: {
      const std::string_view name = text(token);
      ++position_;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        Expr& expr = make(ExprKind::literal_bool, token.line);
        expr.integer = name == "true" || name == "True" ? 1 : 0;
        return &expr;
      }
      if (name == "none" || name == "None") return &make(ExprKind::literal_none, token.line);
      note_name(name);
      Expr& expr = make(ExprKind::name, token.line);
      expr.name = program_.intern(name);
      return &expr;
    }
    case TokenKind::string: {
      std::string value;
      for (; at(TokenKind::string); ++position_) value += unescape_string(text(current()), current().line);
      Expr& expr = make(ExprKind::literal_text, token.line);
      expr.constant = add_text(std::move(value));
      return &expr;
    }
    case TokenKind::integer:
    case TokenKind::real:
      return parse_number();
    case TokenKind::symbol:
      if (accept(Symbol::lparen)) {
        const Expr* value = parse_tuple(true, {}, true);
        expect(Symbol::rparen, ")");
        return value;
      }
      if (at(Symbol::lbracket)) return parse_list();
      if (at(Symbol::lbrace)) return parse_mapping();
      break;
    default:
      break;
  }
  fail_unexpected();
}

const Expr* Parser::parse_number() {
  const Token& token = current();
  std::string digits(text(token));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const bool real = token.kind == TokenKind::real;
  Expr& expr = make(real ? ExprKind::literal_real : ExprKind::literal_int, token.line);
  const char* begin = digits.data();
  const char* end = begin + digits.size();
  std::from_chars_result result{};
  if (real) {
    expr.real = 0;
    result = std::from_chars(begin, end, expr.real);
  } else {
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0') {
      const char mark = static_cast<char>(digits[1] | 0x20);
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
      if (base != 10) begin += 2;
    }
    result = std::from_chars(begin, end, expr.integer, base);
  }
  if (result.ec != std::errc() || result.ptr != end)
    fail_at(fmt::format("the number {} is out of range or malformed", printable(digits, 40)));
  ++position_;
  return &expr;
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return at(TokenKind::variable_end) || at(TokenKind::block_end) || at(Symbol::rparen) ||
         (!end_name.empty() && at_name(end_name));
}

const Expr* Parser::parse_tuple(bool conditional, std::string_view end_name, bool parentheses) {
  const std::uint32_t line = current().line;
  if (at_tuple_end(end_name)) {
    if (!parentheses) fail_at("expected an expression, found " + describe(current()));
    return &make(ExprKind::tuple, line);
  }
  const Expr* first = parse_expression(conditional);
  if (!at(Symbol::comma)) return first;
  Expr& tuple = unary(ExprKind::tuple, first, line);
  while (accept(Symbol::comma)) {
    if (at_tuple_end(end_name)) break;
    adopt(tuple, parse_expression(conditional));
  }
  return &tuple;
}

const Expr* Parser::parse_list() {
  Expr& list = make(ExprKind::list, current().line);
  ++position_;
  while (!at(Symbol::rbracket)) {
    if (!list.operands.empty()) expect(Symbol::comma, ",");
    if (at(Symbol::rbracket)) break;
    adopt(list, parse_expression());
  }
  ++position_;
  return &list;
}

const Expr* Parser::parse_mapping() {
  Expr& mapping = make(ExprKind::mapping, current().line);
  ++position_;
  while (!at(Symbol::rbrace)) {
    if (!mapping.operands.empty()) expect(Symbol::comma, ",");
    if (at(Symbol::rbrace)) break;
    adopt(mapping, parse_expression());
    expect(Symbol::colon, ":");
    adopt(mapping, parse_expression());
  }
  ++position_;
  return &mapping;
}

const Expr* Parser::parse_postfix(const Expr* value) {
  for (;;) {
    if (at(Symbol::dot) || at(Symbol::lbracket))
      value = parse_subscript(value);
    else if (at(Symbol::lparen))
      value = parse_call(value);
    else
      return value;
  }
}

const Expr* Parser::parse_filters_and_tests(const Expr* value) {
  for (;;) {
    if (at(Symbol::pipe))
      value = parse_filter_chain(value);
    else if (at_name("is"))
      value = parse_test(value);
    else if (at(Symbol::lparen))
      value = parse_call(value);
    else
      return value;
  }
}

const Expr* Parser::parse_subscript(const Expr* value) {
  const std::uint32_t line = current().line;
  if (!accept(Symbol::dot)) return parse_index(value);
  if (at(TokenKind::name)) {
    Expr& expr = unary(ExprKind::attribute, value, line);
    expr.name = program_.intern(text(current()));
    ++position_;
    return &expr;
  }
  if (!at(TokenKind::integer)) fail_at("expected a name or a number, found " + describe(current()));
  Expr& expr = unary(ExprKind::item, value, line);
  adopt(expr, parse_number());
  return &expr;
}

/// `[index]` or `[start:stop:step]`.
const Expr* Parser::parse_index(const Expr* value) {
  Expr& expr = unary(ExprKind::item, value, current().line);
  ++position_;
  if (at(Symbol::rbracket)) fail_unexpected();
  const Expr* first = at(Symbol::colon) ? nullptr : parse_expression();
  if (accept(Symbol::colon)) {
    expr.kind = ExprKind::slice;
    const auto bound = [&]() -> const Expr* {
      return at(Symbol::colon) || at(Symbol::rbracket) ? nullptr : parse_expression();
    };
    adopt(expr, first);
    adopt(expr, bound());
    adopt(expr, accept(Symbol::colon) ? bound() : nullptr);
  } else if (at(Symbol::comma)) {
    Expr& tuple = unary(ExprKind::tuple, first, expr.line);
    while (accept(Symbol::comma)) {
      if (at(Symbol::rbracket)) break;
      adopt(tuple, parse_expression());
    }
    adopt(expr, &tuple);
  } else {
    adopt(expr, first);
  }
  expect(Symbol::rbracket, "]");
  return &expr;
}

const Expr* Parser::parse_call(const Expr* callee) {
  Expr& call = unary(ExprKind::call, callee, current().line);
  parse_arguments(call);
  return &call;
}

void Parser::parse_arguments(Expr& call) {
  expect(Symbol::lparen, "(");
  Expr::Arguments extra;
  const auto ensure = [&](bool condition) {
    if (!condition) fail_at("the arguments of a call are in the wrong order");
  };
  bool first = true;
  while (!at(Symbol::rparen)) {
    if (!first) expect(Symbol::comma, ",");
    if (!first && at(Symbol::rparen)) break;
    first = false;
    if (accept(Symbol::mul)) {
      ensure(extra.positional_from == nullptr && extra.named_from == nullptr);
      extra.positional_from = parse_expression();
    } else if (accept(Symbol::pow)) {
      ensure(extra.named_from == nullptr);
      extra.named_from = parse_expression();
    } else if (at(TokenKind::name) && is(look(), Symbol::assign)) {
      ensure(extra.named_from == nullptr);
      const std::int32_t name = program_.intern(text(current()));
      position_ += 2;
      const Expr* value = parse_expression();
      for (const auto& other : extra.named)
        if (other.first == name) fail_at("a keyword argument is given twice");
      extra.named.emplace_back(name, value);
      call.depth = std::max(call.depth, static_cast<std::uint16_t>(value->depth + 1));
    } else {
      ensure(extra.positional_from == nullptr && extra.named_from == nullptr && extra.named.empty());
      adopt(call, parse_expression());
    }
  }
  ++position_;
  if (!extra.named.empty() || extra.positional_from != nullptr || extra.named_from != nullptr)
    call.arguments = &program_.arguments.emplace_back(std::move(extra));
}

std::string Parser::parse_dotted_name(std::string_view what) {
  std::string name(take_name(what));
  while (accept(Symbol::dot)) {
    name += '.';
    name += take_name(what);
  }
  return name;
}

const Expr* Parser::parse_filter(const Expr* value) {
  Expr& filter = unary(ExprKind::filter, value, current().line);
  const std::string name = parse_dotted_name("a filter");
  filter.name = program_.intern(name);
  filter.filter = find_filter(name);
  if (filter.filter == nullptr)
    unknown_.push_back({fmt::format("there is no filter '{}'", printable(name, 60)), filter.line, false});
  if (at(Symbol::lparen)) parse_arguments(filter);
  return &filter;
}

const Expr* Parser::parse_filter_chain(const Expr* value) {
  while (accept(Symbol::pipe)) value = parse_filter(value);
  return value;
}

const Expr* Parser::parse_test(const Expr* value) {
  const std::uint32_t line = current().line;
  ++position_;
  const bool negated = accept_name("not");
  Expr& test = unary(ExprKind::test, value, line);
  const std::string name = parse_dotted_name("a test");
  test.name = program_.intern(name);
  test.test = find_test(name);
  if (test.test == nullptr)
    unknown_.push_back({fmt::format("there is no test '{}'", printable(name, 60)), line, false});
  if (at(Symbol::lparen)) {
    parse_arguments(test);
  } else if (at(TokenKind::string) || at(TokenKind::integer) || at(TokenKind::real) || at(Symbol::lbracket) ||
             at(Symbol::lbrace) ||
             (at(TokenKind::name) && !at_name("else") && !at_name("or") && !at_name("and"))) {
    if (at_name("is")) fail_at("tests cannot be chained");
    adopt(test, parse_postfix(parse_primary()));
  }
  return negated ? &unary(ExprKind::logical_not, &test, line) : &test;
}

}  // namespace quipu::text::jinja

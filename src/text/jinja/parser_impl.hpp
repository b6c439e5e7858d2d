// The parser's state, shared by its two halves: statements and expressions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.hpp"
#include "text/jinja/lexer.hpp"

namespace quipu::text::jinja {

class Parser {
 public:
  explicit Parser(std::string_view source);
  Program run();

 private:
  /// Counts one level of nesting while it lives; too deep is an error.
  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser) { parser_.enter(); }
    ~Nest() { --parser_.nesting_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    Parser& parser_;
  };
  void enter();

  // Tokens.
  const Token& current() const { return tokens_[position_]; }
  const Token& look() const { return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_]; }
  std::string_view text(const Token& token) const {
    return std::string_view(source_).substr(token.begin, token.end - token.begin);
  }
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at(Symbol symbol) const { return is(current(), symbol); }
  bool at_name(std::string_view name) const { return is_name(current(), name); }
  static bool is(const Token& token, Symbol symbol) {
    return token.kind == TokenKind::symbol && token.symbol == symbol;
  }
  bool is_name(const Token& token, std::string_view name) const {
    return token.kind == TokenKind::name && text(token) == name;
  }
  bool accept(Symbol symbol);
  bool accept_name(std::string_view name);
  void expect(Symbol symbol, std::string_view spelling);
  void expect_name(std::string_view name);
  void expect(TokenKind kind, std::string_view what);
  std::string_view take_name(std::string_view what);
  [[noreturn]] void fail_at(std::string reason) const;
  [[noreturn]] void fail_unexpected() const;
  std::string describe(const Token& token) const;

  // Nodes.
  Expr& make(ExprKind kind, std::uint32_t line);
  Expr& unary(ExprKind kind, const Expr* operand, std::uint32_t line);
  Stmt& make_stmt(StmtKind kind);
  void adopt(Expr& parent, const Expr* operand);
  std::int32_t add_text(std::string text);

  // Expressions.
  const Expr* parse_expression(bool conditional = true);
  const Expr* parse_level(int level);
  const Expr* combine(const Expr* left, int level, Operator op, bool extend, std::uint32_t line);
  const Expr* parse_unary(bool with_filters);
  const Expr* parse_primary();
  const Expr* parse_number();
  const Expr* parse_tuple(bool conditional, std::string_view end_name, bool parentheses);
  bool at_tuple_end(std::string_view end_name) const;
  const Expr* parse_list();
  const Expr* parse_mapping();
  const Expr* parse_postfix(const Expr* value);
  const Expr* parse_filters_and_tests(const Expr* value);
  const Expr* parse_subscript(const Expr* value);
  const Expr* parse_index(const Expr* value);
  const Expr* parse_call(const Expr* callee);
  void parse_arguments(Expr& call);
  const Expr* parse_filter(const Expr* value);
  const Expr* parse_filter_chain(const Expr* value);
  const Expr* parse_test(const Expr* value);
  std::string parse_dotted_name(std::string_view what);
  void note_name(std::string_view name);

  // Statements.
  Body parse_body(std::initializer_list<std::string_view> ends);
  void parse_output(Body& body);
  const Stmt* parse_statement();
  const Stmt* parse_set();
  const Stmt* parse_if();
  const Stmt* parse_for();
  const Stmt* parse_macro();
  const Stmt* parse_call_block();
  const Stmt* parse_filter_block();
  const Stmt* parse_with();
  const Stmt* parse_generation();
  const Stmt* parse_print();
  const Stmt* parse_loop_control(StmtKind kind);
  Body parse_block_body(std::initializer_list<std::string_view> ends);
  MacroBody& open_macro();
  void parse_signature(MacroBody& macro);
  void parse_macro_body(MacroBody& macro, std::string_view end);
  Target parse_target(bool allow_attribute, std::string_view end_name);
  Target parse_single_target(bool allow_attribute);

  // Filters and tests that do not exist: an error of the whole template, but inside `if` and inline if only
  // when reached. Bodies with a scope of their own inside an `if` do not count as inside it.
  struct Unknown {
    std::string what;
    std::uint32_t line;
    bool certain;
  };
  void forgive_unknown(std::size_t since);
  void confirm_unknown(std::size_t since);

  std::string source_;
  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  ///< around the current statement, within the current macro
  const char* stack_base_;
  Program program_;
  std::vector<MacroBody*> macros_;  ///< being parsed, outermost first
  std::vector<Unknown> unknown_;
};

}  // namespace quipu::text::jinja

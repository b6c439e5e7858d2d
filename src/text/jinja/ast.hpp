// The parsed template. Nodes live in the program's arena, so that freeing them needs no recursion.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace quipu::text::jinja {

struct FilterEntry;
struct TestEntry;

enum class ExprKind : std::uint8_t {
  literal_none,
  literal_bool,
  literal_int,
  literal_real,
  literal_text,
  name,
  list,
  tuple,
  mapping,  ///< operands: key, value, key, value …
  negate,
  plus,
  logical_not,
  logical_and,
  logical_or,
  binary,
  concat,
  compare,      ///< operands: first, then one for each of `ops`
  conditional,  ///< operands: condition, then-value, else-value or null
  attribute,
  item,
  slice,   ///< operands: value, start, stop, step; the last three may be null
  call,    ///< operands: callee, positional arguments
  filter,  ///< operands: value (null in filter blocks), positional arguments
  test,    ///< operands: value, positional arguments
};

enum class Operator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Expr {
  ExprKind kind = ExprKind::literal_none;
  Operator op = Operator::add;
  std::uint16_t depth = 1;
  std::uint32_t line = 0;
  std::int32_t name = -1;      ///< of a variable, attribute, filter or test
  std::int32_t constant = -1;  ///< of a text: index into Program::texts
  union {
    std::int64_t integer = 0;
    double real;
    const FilterEntry* filter;  ///< null when there is none of this name
    const TestEntry* test;
  };
  std::vector<const Expr*> operands;
  std::vector<Operator> ops;
  struct Arguments {
    std::vector<std::pair<std::int32_t, const Expr*>> named;
    const Expr* positional_from = nullptr;  ///< *expr
    const Expr* named_from = nullptr;       ///< **expr
  };
  Arguments* arguments = nullptr;  ///< of a call, filter or test; null when only positional ones are given
};

/// Where a value is stored: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::int32_t name = -1;
  std::int32_t attribute = -1;
  std::vector<Target> parts;
  bool is_tuple = false;
};

enum class StmtKind : std::uint8_t {
  text,
  output,
  set,
  set_block,
  branch,
  loop,
  macro,
  call_block,
  filter_block,
  with,
  generation,
  leave,  ///< break
  next,   ///< continue
};

struct Stmt;
using Body = std::vector<const Stmt*>;

/// A macro, or the body of a call block.
struct MacroBody {
  std::int32_t name = -1;
  std::vector<std::int32_t> parameters;
  std::vector<const Expr*> defaults;  ///< of the last parameters
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  StmtKind kind = StmtKind::text;
  std::uint32_t line = 0;
  std::int32_t constant = -1;  ///< of a text: index into Program::texts
  bool recursive = false;      ///< of a loop
  std::vector<const Expr*>
      exprs;  ///< output; set: value; set_block, filter_block: filter or null; loop: iterable,
              ///< filter or null; call_block: call; with: values; branch: conditions
  std::vector<Target> targets;  ///< set, loop: one; with: one a value
  std::vector<Body> bodies;     ///< branch: one a condition, then perhaps the else; loop: body, else
  MacroBody* macro = nullptr;
};

struct Program {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::deque<Expr::Arguments> arguments;
  std::deque<MacroBody> macros;
  std::vector<std::string> texts;  ///< literals and template data
  std::deque<std::string> names;
  std::unordered_map<std::string_view, std::int32_t> name_ids;  ///< views into `names`
  Body body;

  /// Id of a name, made when new.
  std::int32_t intern(std::string_view name) {
    const auto found = name_ids.find(name);
    if (found != name_ids.end()) return found->second;
    names.emplace_back(name);
    const auto id = static_cast<std::int32_t>(names.size() - 1);
    name_ids.emplace(names.back(), id);
    return id;
  }
  /// Id of a name that the template mentions, -1 for any other.
  std::int32_t find_name(std::string_view name) const {
    const auto found = name_ids.find(name);
    return found == name_ids.end() ? -1 : found->second;
  }
};

}  // namespace quipu::text::jinja

// Evaluation of expressions and statements.
#include <algorithm>

#include "text/jinja/context.hpp"
#include "text/jinja/nest.hpp"

namespace quipu::text::jinja {

using ErrorKind = TemplateError::Kind;

/// Makes a scope the current one while it lives.
class Context::ScopeGuard {
 public:
  ScopeGuard(Context& context, Ref<Scope> scope) : context_(context), outer_(context.scope_) {
    context.scope_ = std::move(scope);
  }
  ~ScopeGuard() { context_.scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Context& context_;
  Ref<Scope> outer_;
};

namespace {

/// Redirects output while it lives.
class OutputGuard {
 public:
  OutputGuard(TextBuilder*& slot, TextBuilder* target) : slot_(slot), outer_(slot) { slot = target; }
  ~OutputGuard() { slot_ = outer_; }
  OutputGuard(const OutputGuard&) = delete;
  OutputGuard& operator=(const OutputGuard&) = delete;

 private:
  TextBuilder*& slot_;
  TextBuilder* outer_;
};

}  // namespace

Context::Context(const Program& program, const Limits& limits, Template::Clock clock)
    : heap_(~std::uint64_t{0}),
      program_(program),
      limits_(limits),
      clock_(std::move(clock)),
      steps_left_(limits.steps),
      stack_base_(static_cast<const char*>(__builtin_frame_address(0))),
      constants_(program.texts.size()) {}

Context::~Context() {
  for (const Ref<Scope>& scope : captured_) scope->variables.clear();
  for (const Ref<NameSpace>& space : namespaces_) space->attributes.clear();
}

Rendered Context::run(const Template::Variables& variables) {
  TextBuilder out;
  scope_ = child_scope({});
  for (const auto& [name, data] : variables) {
    const std::int32_t id = program_.find_name(name);
    if (id >= 0) set(id, from_data(data));
  }
  heap_.set_limit(limits_.memory);
  scope_ = child_scope(scope_);
  const OutputGuard guard(out_, &out);
  exec(program_.body);
  return {std::move(out.bytes), std::move(out.trusted)};
}

void Context::fail_limit(std::string_view what) const {
  fail_with(ErrorKind::limit, fmt::format("rendering needs more {} than are allowed", what));
}
void Context::fail_with(TemplateError::Kind kind, std::string reason) const {
  throw TemplateError(kind, std::move(reason), line_);
}
void Context::fail_undefined(const Value& value) const {
  const std::int32_t name = value.undefined_name();
  const std::string shown = name < 0 ? "a value" : "'" + printable(program_.names[name], 60) + "'";
  if (value.forbidden())
    fail_with(ErrorKind::security,
              shown + " is not open to templates: they change no values and see nothing of the host");
  fail_with(ErrorKind::undefined, shown + " is undefined");
}

Ref<Scope> Context::child_scope(const Ref<Scope>& parent) {
  Ref<Scope> scope(make<Scope>(64));
  scope->parent = parent;
  return scope;
}

void Context::capture(const Ref<Scope>& scope) {
  for (Scope* s = scope.get(); s != nullptr; s = s->parent.get()) {
    if (s->depth != 0) return;  // captured before, and with it all around it
    s->depth = 1;
    captured_.emplace_back(s);
  }
}

Value Context::lookup(std::int32_t name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    for (const auto& variable : scope->variables)
      if (variable.first == name) return variable.second;
  if (const Native* function = find_global(program_.names[name])) return native(function, Value::none());
  return Value::undefined(name);
}

void Context::set(std::int32_t name, Value value) {
  for (auto& variable : scope_->variables) {
    if (variable.first == name) {
      variable.second = std::move(value);
      return;
    }
  }
  if (scope_->variables.size() == scope_->variables.capacity())
    scope_->charge(heap_, 2 * 24 * (scope_->variables.size() + 1));
  scope_->variables.emplace_back(name, std::move(value));
}

Value Context::constant(std::int32_t index) {
  Value& value = constants_[static_cast<std::size_t>(index)];
  if (!value.is(Kind::string)) value = text(program_.texts[static_cast<std::size_t>(index)], true);
  return value;
}

// Expressions.

Value Context::eval(const Expr& expr) {
  const Nest nest(*this);
  step();
  switch (expr.kind) {
    case ExprKind::literal_none:
      return Value::none();
    case ExprKind::literal_bool:
      return Value(expr.integer != 0);
    case ExprKind::literal_int:
      return Value(expr.integer);
    case ExprKind::literal_real:
      return Value(expr.real);
    case ExprKind::literal_text:
      return constant(expr.constant);
    case ExprKind::name:
      return lookup(expr.name);
    case ExprKind::list:
    case ExprKind::tuple:
      return eval_sequence(expr);
    case ExprKind::mapping:
      return eval_mapping(expr);
    case ExprKind::negate:
      return negate(eval(*expr.operands[0]));
    case ExprKind::plus: {
      Value value = eval(*expr.operands[0]);
      if (!value.is_number()) fail_type("bad operand for unary +: {}", type_name(value));
      return value.is(Kind::real) ? value : Value(value.integer());
    }
    case ExprKind::logical_not:
      return Value(!truth(eval(*expr.operands[0])));
    case ExprKind::logical_and:
    case ExprKind::logical_or:
      return eval_logical(expr);
    case ExprKind::binary:
      return eval_binary(expr);
    case ExprKind::concat:
      return eval_concat(expr);
    case ExprKind::compare:
      return eval_compare(expr);
    case ExprKind::conditional:
      return eval_conditional(expr);
    case ExprKind::attribute:
      return attribute(eval(*expr.operands[0]), program_.names[expr.name]);
    case ExprKind::item: {
      const Value object = eval(*expr.operands[0]);
      return item(object, eval(*expr.operands[1]));
    }
    case ExprKind::slice:
      return eval_slice(expr);
    case ExprKind::call:
      return eval_call(expr, nullptr);
    case ExprKind::filter:
      return eval_filter(expr, eval(*expr.operands[0]));
    case ExprKind::test:
      return eval_test(expr);
  }
  return Value::none();
}

Value Context::eval_logical(const Expr& expr) {
  Value left = eval(*expr.operands[0]);
  if (truth(left) == (expr.kind == ExprKind::logical_or)) return left;
  return eval(*expr.operands[1]);
}

Value Context::eval_binary(const Expr& expr) {
  const Value left = eval(*expr.operands[0]);
  const Value right = eval(*expr.operands[1]);
  return binary(expr.op, left, right);
}

Value Context::eval_sequence(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.operands.size());
  for (const Expr* operand : expr.operands) items.push_back(eval(*operand));
  return list(std::move(items), expr.kind == ExprKind::tuple);
}

Value Context::eval_mapping(const Expr& expr) {
  std::vector<std::pair<Value, Value>> entries;
  for (std::size_t i = 0; i < expr.operands.size(); i += 2) {
    Value key = eval(*expr.operands[i]);
    entries.emplace_back(std::move(key), eval(*expr.operands[i + 1]));
  }
  return mapping(std::move(entries));
}

Value Context::eval_concat(const Expr& expr) {
  TextBuilder builder;
  for (const Expr* operand : expr.operands) {
    const Value part = str(eval(*operand));
    heap_.require(builder.bytes.size() + part.text().bytes.size());
    builder.append(part.text());
  }
  return text(std::move(builder));
}

Value Context::eval_compare(const Expr& expr) {
  Value left = eval(*expr.operands[0]);
  for (std::size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.operands[i + 1]);
    if (!compare(expr.ops[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Context::eval_conditional(const Expr& expr) {
  if (truth(eval(*expr.operands[0]))) return eval(*expr.operands[1]);
  return expr.operands[2] != nullptr ? eval(*expr.operands[2]) : Value();
}

Value Context::eval_slice(const Expr& expr) {
  Value parts[4];
  for (std::size_t i = 0; i < 4; ++i)
    parts[i] = expr.operands[i] != nullptr ? eval(*expr.operands[i]) : Value::none();
  return slice_of(parts[0], parts[1], parts[2], parts[3]);
}

Arguments Context::arguments_of(const Expr& expr, const Value* caller) {
  Arguments result;
  for (std::size_t i = 1; i < expr.operands.size(); ++i) result.positional.push_back(eval(*expr.operands[i]));
  if (expr.arguments != nullptr) {
    for (const auto& [name, value] : expr.arguments->named)
      result.named.emplace_back(program_.names[name], eval(*value));
    if (expr.arguments->positional_from != nullptr)
      for (Value& value : elements(eval(*expr.arguments->positional_from)))
        result.positional.push_back(std::move(value));
    if (expr.arguments->named_from != nullptr) {
      const Value more = eval(*expr.arguments->named_from);
      if (!more.is(Kind::mapping))
        fail_type("the argument after ** must be a mapping, not {}", type_name(more));
      for (const auto& [key, value] : more.mapping().entries) {
        if (!key.is(Kind::string)) fail_type("keywords must be strings");
        for (const auto& other : result.named)
          if (other.first == key.text().bytes) fail_type("a keyword argument is given twice");
        result.named.emplace_back(key.text().bytes, value);
      }
    }
  }
  if (caller != nullptr) result.named.emplace_back("caller", *caller);
  return result;
}

Value Context::eval_call(const Expr& expr, const Value* caller) {
  const Value callee = eval(*expr.operands[0]);
  Arguments arguments = arguments_of(expr, caller);
  return call(callee, arguments);
}

Value Context::eval_filter(const Expr& expr, const Value& self) {
  if (expr.filter == nullptr)
    fail_with(ErrorKind::type,
              fmt::format("there is no filter '{}'", printable(program_.names[expr.name], 60)));
  Arguments arguments = arguments_of(expr);
  return apply_filter(*expr.filter, self, arguments);
}

Value Context::eval_test(const Expr& expr) {
  const Value self = eval(*expr.operands[0]);
  if (expr.test == nullptr)
    fail_with(ErrorKind::type,
              fmt::format("there is no test '{}'", printable(program_.names[expr.name], 60)));
  Arguments arguments = arguments_of(expr);
  return Value(apply_test(*expr.test, self, arguments));
}

// Statements.

Context::Flow Context::exec(const Body& body) {
  const Nest nest(*this);
  for (const Stmt* stmt : body) {
    step();
    line_ = stmt->line;
    const Flow flow = exec(*stmt);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Context::Flow Context::exec(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::text:
      out_->append(program_.texts[static_cast<std::size_t>(stmt.constant)], true);
      check_output();
      return Flow::normal;
    case StmtKind::output:
      exec_output(stmt);
      return Flow::normal;
    case StmtKind::set:
      assign(stmt.targets[0], eval(*stmt.exprs[0]));
      return Flow::normal;
    case StmtKind::set_block:
    case StmtKind::filter_block:
      return exec_capture(stmt);
    case StmtKind::branch:
      return exec_branch(stmt);
    case StmtKind::loop:
      return run_loop(stmt, eval(*stmt.exprs[0]), 0);
    case StmtKind::macro:
      set(stmt.macro->name, make_macro(*stmt.macro));
      return Flow::normal;
    case StmtKind::call_block:
      exec_call_block(stmt);
      return Flow::normal;
    case StmtKind::with:
      return exec_with(stmt);
    case StmtKind::generation: {
      const ScopeGuard guard(*this, child_scope(scope_));
      return exec(stmt.bodies[0]);
    }
    case StmtKind::leave:
      return Flow::leave;
    case StmtKind::next:
      return Flow::next;
  }
  return Flow::normal;
}

void Context::check_output() const {
  // Captured output is a value in the making and counts as memory too.
  heap_.require(out_->bytes.size());
  if (out_->bytes.size() > limits_.output) fail_limit("bytes of output");
}

void Context::emit(const Value& value) {
  const Value printed = str(value);
  out_->append(printed.text());
  step(printed.text().bytes.size() / 64);
  check_output();
}

void Context::exec_output(const Stmt& stmt) {
  for (const Expr* expr : stmt.exprs) emit(eval(*expr));
}

Context::Flow Context::exec_branch(const Stmt& stmt) {
  for (std::size_t i = 0; i < stmt.exprs.size(); ++i)
    if (truth(eval(*stmt.exprs[i]))) return exec(stmt.bodies[i]);
  return stmt.bodies.size() > stmt.exprs.size() ? exec(stmt.bodies.back()) : Flow::normal;
}

Context::Flow Context::exec_capture(const Stmt& stmt) {
  TextBuilder captured;
  Value value;
  {
    const ScopeGuard scope(*this, child_scope(scope_));
    {
      const OutputGuard guard(out_, &captured);
      const Flow flow = exec(stmt.bodies[0]);
      if (flow != Flow::normal) return flow;
    }
    value = text(std::move(captured));
    std::vector<const Expr*> filters;
    for (const Expr* f = stmt.exprs[0]; f != nullptr; f = f->operands[0]) filters.push_back(f);
    for (auto filter = filters.rbegin(); filter != filters.rend(); ++filter)
      value = eval_filter(**filter, value);
  }
  if (stmt.kind == StmtKind::filter_block)
    emit(value);
  else
    assign(stmt.targets[0], value);
  return Flow::normal;
}

Context::Flow Context::exec_with(const Stmt& stmt) {
  std::vector<Value> values;
  for (const Expr* expr : stmt.exprs) values.push_back(eval(*expr));
  const ScopeGuard guard(*this, child_scope(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) assign(stmt.targets[i], values[i]);
  return exec(stmt.bodies[0]);
}

Value Context::make_macro(const MacroBody& body) {
  auto* macro = make<Macro>();
  const Value value(Kind::callable, macro);
  macro->body = &body;
  macro->closure = scope_;
  capture(scope_);
  return value;
}

void Context::exec_call_block(const Stmt& stmt) {
  const Value caller = make_macro(*stmt.macro);
  emit(eval_call(*stmt.exprs[0], &caller));
}

void Context::assign(const Target& target, const Value& value) {
  if (target.is_tuple) return assign_tuple(target, value);
  if (target.attribute < 0) return set(target.name, value);
  const Value object = lookup(target.name);
  if (!object.is(Kind::name_space)) fail_type("attributes can only be set on namespace objects");
  auto& space = object.as<NameSpace>();
  const std::string& name = program_.names[target.attribute];
  for (auto& entry : space.attributes) {
    if (entry.first.text().bytes == name) {
      entry.second = value;
      return;
    }
  }
  space.charge(heap_, 64);
  space.attributes.emplace_back(text(name), value);
}

void Context::assign_tuple(const Target& target, const Value& value) {
  const std::vector<Value> items = elements(value);
  if (items.size() != target.parts.size())
    fail_type("cannot unpack {} values into {} variables", items.size(), target.parts.size());
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

Context::Flow Context::run_loop(const Stmt& stmt, const Value& iterable, std::int64_t level) {
  std::vector<Value> items = elements(iterable);
  const Ref<Scope> outer = scope_;
  if (stmt.exprs[1] != nullptr) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const ScopeGuard guard(*this, child_scope(outer));
      assign(stmt.targets[0], item);
      if (truth(eval(*stmt.exprs[1]))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  int depth = 0;
  for (const Value& item : items)
    if (item.is_object()) depth = std::max(depth, item.object()->depth + 1);
  auto* loop = make<Loop>(items.size() * sizeof(Value), depth);
  const Value loop_value(Kind::loop, loop);
  loop->items = std::move(items);
  loop->level = level;
  if (stmt.recursive) {
    loop->statement = &stmt;
    loop->scope = outer;
    capture(outer);
  }
  return exec_loop_body(stmt, *loop, loop_value, outer);
}

Context::Flow Context::exec_loop_body(const Stmt& stmt, Loop& loop, const Value& loop_value,
                                      const Ref<Scope>& outer) {
  const std::int32_t loop_name = program_.find_name("loop");
  bool completed = false;  // a round; as in Jinja, `else` runs unless one reached its end
  Ref<Scope> scope;
  for (; loop.index < loop.items.size(); ++loop.index) {
    step();
    if (scope && scope->references == 1)
      scope->variables.clear();
    else
      scope = child_scope(outer);
    const ScopeGuard guard(*this, scope);
    if (loop_name >= 0) set(loop_name, loop_value);
    assign(stmt.targets[0], loop.items[loop.index]);
    const Flow flow = exec(stmt.bodies[0]);
    if (flow == Flow::leave) break;
    if (flow == Flow::normal) completed = true;
  }
  if (completed || stmt.bodies[1].empty()) return Flow::normal;
  const ScopeGuard guard(*this, child_scope(outer));
  return exec(stmt.bodies[1]);
}

Value Context::run_recursive(const Loop& loop, const Value& iterable) {
  if (loop.statement == nullptr) fail_type("the loop was not marked as recursive");
  TextBuilder captured;
  const OutputGuard output(out_, &captured);
  const ScopeGuard scope(*this, loop.scope);
  run_loop(*loop.statement, iterable, loop.level + 1);
  return text(std::move(captured));
}

Value Context::call_macro(const Macro& macro, Arguments& arguments) {
  const MacroBody& body = *macro.body;
  const Nest nest(*this);
  TextBuilder captured;
  const OutputGuard output(out_, &captured);
  const ScopeGuard guard(*this, child_scope(macro.closure));
  const std::size_t count = body.parameters.size();
  std::vector<std::pair<Value, Value>> rest;
  std::vector<char> bound(count, 0);
  for (std::size_t i = 0; i < count && i < arguments.positional.size(); ++i) {
    set(body.parameters[i], arguments.positional[i]);
    bound[i] = 1;
  }
  bool has_caller = false;
  for (auto& [name, value] : arguments.named) {
    std::size_t i = 0;
    while (i < count && program_.names[body.parameters[i]] != name) ++i;
    if (i < count) {
      if (bound[i] != 0) fail_type("the macro got two values for '{}'", printable(name, 60));
      set(body.parameters[i], value);
      bound[i] = 1;
    } else if (name == "caller" && body.uses_caller) {
      set(program_.find_name("caller"), value);
      has_caller = true;
    } else if (body.uses_kwargs) {
      rest.emplace_back(text(name), value);
    } else {
      fail_type("the macro takes no keyword argument '{}'", printable(name, 60));
    }
  }
  if (body.uses_caller && !has_caller) {
    const std::int32_t id = program_.find_name("caller");
    if (std::find(body.parameters.begin(), body.parameters.end(), id) == body.parameters.end())
      set(id, Value::undefined(id));
  }
  if (body.uses_kwargs) set(program_.find_name("kwargs"), mapping(std::move(rest)));
  const std::size_t taken = std::min(count, arguments.positional.size());
  std::vector<Value> more(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                          arguments.positional.end());
  if (body.uses_varargs)
    set(program_.find_name("varargs"), list(std::move(more), true));
  else if (!more.empty())
    fail_type("the macro takes not more than {} arguments", count);
  for (std::size_t i = 0; i < count; ++i) {
    if (bound[i] != 0) continue;
    const std::size_t first_default = count - body.defaults.size();
    set(body.parameters[i],
        i >= first_default ? eval(*body.defaults[i - first_default]) : Value::undefined(body.parameters[i]));
  }
  exec(body.body);
  return text(std::move(captured));
}

Value NativeCallable::call(Context& context, Arguments& arguments) {
  context.bind(native->name, native->parameters, arguments);
  return native->function(context, self, arguments);
}
Value Macro::call(Context& context, Arguments& arguments) { return context.call_macro(*this, arguments); }
Value Joiner::call(Context& context, Arguments&) {
  if (std::exchange(used, true)) return separator;
  return context.text("");
}
Value Loop::call(Context& context, Arguments& arguments) {
  if (arguments.positional.size() != 1) context.fail_type("loop() takes one argument");
  return context.run_recursive(*this, arguments.positional[0]);
}

}  // namespace quipu::text::jinja

// One rendering: scopes, budgets, and the operations of the language on values.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.hpp"
#include "text/jinja/functions.hpp"
#include "text/jinja/jinja.hpp"
#include "text/jinja/value.hpp"

namespace quipu::text::jinja {

/// Text under construction, with the origin of its bytes.
struct TextBuilder {
  std::string bytes;
  std::vector<TextRange> trusted;
  void append(std::string_view text, bool is_trusted = false);
  /// Bytes [begin, end) of `text`.
  void append(const Text& text, std::size_t begin, std::size_t end);
  void append(const Text& text) { append(text, 0, text.bytes.size()); }
};

struct Scope : Object {
  Ref<Scope> parent;
  std::vector<std::pair<std::int32_t, Value>> variables;
};

struct Callable : Object {
  virtual Value call(Context& context, Arguments& arguments) = 0;
};
/// A global function, or a method with its object.
struct NativeCallable : Callable {
  Value call(Context& context, Arguments& arguments) override;
  const Native* native = nullptr;
  Value self;
};
struct Macro : Callable {
  Value call(Context& context, Arguments& arguments) override;
  const MacroBody* body = nullptr;
  Ref<Scope> closure;
};
struct Cycler : Callable {
  Value call(Context&, Arguments&) override { return items[position++ % items.size()]; }
  std::vector<Value> items;
  std::size_t position = 0;
};
struct Joiner : Callable {
  Value call(Context& context, Arguments& arguments) override;
  Value separator;
  bool used = false;
};
/// The variable `loop`.
struct Loop : Callable {
  Value call(Context& context, Arguments& arguments) override;
  std::vector<Value> items;
  std::size_t index = 0;
  std::int64_t level = 0;           ///< of recursion
  Value changed;                    ///< the arguments of changed() in the round before
  const Stmt* statement = nullptr;  ///< of a recursive loop
  Ref<Scope> scope;
};

class Context {
 public:
  Context(const Program& program, const Limits& limits, Template::Clock clock);
  ~Context();
  Rendered run(const Template::Variables& variables);

  // Budgets and errors.
  void step(std::uint64_t count = 1) {
    if (count > steps_left_) fail_limit("evaluation steps");
    steps_left_ -= count;
  }
  [[noreturn]] void fail_limit(std::string_view what) const;
  [[noreturn]] void fail_with(TemplateError::Kind kind, std::string reason) const;
  template <class... Args>
  [[noreturn]] void fail_type(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(TemplateError::Kind::type, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail_undefined(const Value& value) const;
  Heap& heap() { return heap_; }
  const Template::Clock& clock() const { return clock_; }

  // Making values.
  Value text(std::string bytes, bool trusted = false);
  Value text(TextBuilder&& builder, bool markup = false);
  Value slice(const Value& text, std::size_t begin, std::size_t end);  ///< in bytes
  Value list(std::vector<Value> items, bool tuple = false);
  Value generator(std::vector<Value> items);
  Value mapping(std::vector<std::pair<Value, Value>> entries);  ///< of equal keys the last value counts
  Value pair(Value first, Value second);
  Value native(const Native* native, const Value& self);
  Value from_data(const Data& data);
  template <class T>
  T* make(std::uint64_t extra = 0, int depth = 0) {
    if (depth > kMaxValueDepth) fail_limit("levels of nested values");
    heap_.require(sizeof(T) + 32 + extra);
    T* object = new T;
    object->charge(heap_, sizeof(T) + 32 + extra);
    object->depth = static_cast<std::uint16_t>(depth);
    return object;
  }
  Ref<NameSpace> name_space();

  // Operations (operations.cpp).
  bool truth(const Value& value) const;
  bool equal(const Value& a, const Value& b);
  bool less(const Value& a, const Value& b);  ///< throws unless ordered
  std::uint64_t hash(const Value& value) const;
  Value binary(Operator op, const Value& a, const Value& b);
  bool compare(Operator op, const Value& a, const Value& b);
  bool contains(const Value& container, const Value& item);
  Value negate(const Value& value);
  const Value* find(const Mapping& mapping, const Value& key);
  const Value* find(const Mapping& mapping, std::string_view key);
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value slice_of(const Value& object, const Value& start, const Value& stop, const Value& step);
  std::vector<Value> elements(const Value& value);  ///< what a loop walks over
  std::int64_t length(const Value& value);
  Value call(const Value& callee, Arguments& arguments);
  Value apply_filter(const FilterEntry& filter, const Value& self, Arguments& arguments);
  bool apply_test(const TestEntry& test, const Value& self, Arguments& arguments);
  /// Lines arguments up with parameters, see Native.
  void bind(std::string_view name, std::string_view parameters, Arguments& arguments);
  std::size_t byte_offset(const Text& text, std::int64_t index);

  // Printing (print.cpp).
  Value str(const Value& value);
  std::string repr(const Value& value);
  void repr(const Value& value, std::string& out);
  struct JsonStyle {
    std::string indent;  ///< of one level
    bool pretty = false, ascii = false, sort_keys = false;
    std::string comma = ", ", colon = ": ";
  };
  void json(const Value& value, const JsonStyle& style, int level, std::string& out);
  Value percent_format(const Text& format, const Value& arguments);
  Value brace_format(const Text& format, Arguments& arguments);
  Value concat(const Value& a, const Value& b, bool markup);

  // Evaluation.
  enum class Flow : std::uint8_t { normal, leave, next };
  Value eval(const Expr& expr);
  Flow exec(const Body& body);
  Value call_macro(const Macro& macro, Arguments& arguments);
  Flow run_loop(const Stmt& stmt, const Value& iterable, std::int64_t level);
  Value run_recursive(const Loop& loop, const Value& iterable);

 private:
  class Nest;
  class ScopeGuard;
  Flow exec(const Stmt& stmt);
  Flow exec_branch(const Stmt& stmt);
  Flow exec_loop_body(const Stmt& stmt, Loop& loop, const Value& loop_value, const Ref<Scope>& outer);
  Flow exec_capture(const Stmt& stmt);
  Flow exec_with(const Stmt& stmt);
  void exec_output(const Stmt& stmt);
  void exec_call_block(const Stmt& stmt);
  void emit(const Value& value);
  void check_output() const;
  Value make_macro(const MacroBody& body);
  void assign(const Target& target, const Value& value);
  void assign_tuple(const Target& target, const Value& value);
  void capture(const Ref<Scope>& scope);
  Value lookup(std::int32_t name);
  void set(std::int32_t name, Value value);
  Ref<Scope> child_scope(const Ref<Scope>& parent);
  Arguments arguments_of(const Expr& expr, const Value* extra_caller = nullptr);
  Value eval_call(const Expr& expr, const Value* caller);
  Value eval_filter(const Expr& expr, const Value& self);
  Value eval_test(const Expr& expr);
  Value eval_sequence(const Expr& expr);
  Value eval_mapping(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_conditional(const Expr& expr);
  Value eval_slice(const Expr& expr);
  Value eval_binary(const Expr& expr);
  Value eval_logical(const Expr& expr);
  Value constant(std::int32_t index);

  Heap heap_;
  const Program& program_;
  Limits limits_;
  Template::Clock clock_;
  std::uint64_t steps_left_;
  int depth_ = 0;
  std::uint32_t line_ = 1;
  const char* stack_base_;
  std::vector<Value> constants_;
  std::vector<Ref<NameSpace>> namespaces_;  // all, so that cycles through them can be cut at the end
  std::vector<Ref<Scope>> captured_;        // those a macro or loop object refers to, for the same reason
  Ref<Scope> scope_;
  TextBuilder* out_ = nullptr;
};

/// Names for messages, as Python calls the types.
std::string_view type_name(const Value& value);
/// A float as Python prints it.
std::string float_text(double value);
std::string escape_html(std::string_view text);

}  // namespace quipu::text::jinja

// The values a template computes with. Lists and mappings never change once made, as in the immutable
// sandbox; so a container's depth is known when it is made and cycles cannot arise through them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/heap.hpp"
#include "text/text_range.hpp"

namespace quipu::text::jinja {

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  // From here on values point to objects.
  string,
  list,  ///< list or tuple
  mapping,
  range,
  generator,  ///< what filters such as map and select give: can be walked once
  view,       ///< keys(), values() or items() of a mapping
  name_space,
  callable,
  loop,
};

struct Text;
struct List;
struct Mapping;
struct Sequence;

class Value {
 public:
  Value() = default;  ///< undefined, without a name
  Value(bool flag) : kind_(Kind::boolean) { bits_.flag = flag; }
  Value(std::int64_t number) : kind_(Kind::integer) { bits_.integer = number; }
  Value(double number) : kind_(Kind::real) { bits_.real = number; }
  template <class T>
  Value(T*) = delete;  // else a pointer would become a boolean
  Value(Kind kind, Object* object) : kind_(kind) {
    bits_.object = object;
    ++object->references;
  }
  Value(const Value& other) : kind_(other.kind_), forbidden_(other.forbidden_), bits_(other.bits_) {
    if (is_object()) ++bits_.object->references;
  }
  Value(Value&& other) noexcept : kind_(other.kind_), forbidden_(other.forbidden_), bits_(other.bits_) {
    other.kind_ = Kind::none;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(forbidden_, other.forbidden_);
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~Value() {
    if (is_object() && --bits_.object->references == 0) delete bits_.object;
  }

  static Value none() {
    Value value;
    value.kind_ = Kind::none;
    return value;
  }
  /// `name` is an index into the program's names, -1 for none; for messages. `forbidden`: the sandbox's.
  static Value undefined(std::int32_t name, bool forbidden = false) {
    Value value;
    value.bits_.integer = name;
    value.forbidden_ = forbidden;
    return value;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real; }
  bool is_integral() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool flag() const { return bits_.flag; }
  /// Of a boolean or integer.
  std::int64_t integer() const { return kind_ == Kind::boolean ? std::int64_t{bits_.flag} : bits_.integer; }
  /// Of any number.
  double real() const { return kind_ == Kind::real ? bits_.real : static_cast<double>(integer()); }
  std::int32_t undefined_name() const { return static_cast<std::int32_t>(bits_.integer); }
  bool forbidden() const { return forbidden_; }
  Object* object() const { return bits_.object; }
  bool is_object() const { return kind_ >= Kind::string; }

  const Text& text() const;
  const List& list() const;
  const Mapping& mapping() const;
  template <class T>
  T& as() const {
    return static_cast<T&>(*bits_.object);
  }

 private:
  Kind kind_ = Kind::undefined;
  bool forbidden_ = false;
  union {
    bool flag;
    std::int64_t integer = -1;
    double real;
    Object* object;
  } bits_;
};

struct Text : Object {
  std::string bytes;
  std::vector<TextRange> trusted;
  std::int64_t length = 0;  ///< code points; an invalid byte sequence counts as one each
  bool markup = false;      ///< marked by the filter `safe`
  bool ascii() const { return length == static_cast<std::int64_t>(bytes.size()); }
};

struct List : Object {
  std::vector<Value> items;
  bool tuple = false;
};

struct Mapping : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_multimap<std::uint64_t, std::uint32_t> index;  ///< by hash; empty for small mappings
};

struct Range : Object {
  std::int64_t start = 0, stop = 0, step = 1, size = 0;
  std::int64_t at(std::int64_t i) const { return start + i * step; }
};

struct Generator : Object {
  std::vector<Value> items;  ///< taken by the first walk
};

struct View : Object {
  enum class Part { keys, values, items };
  Part part = Part::keys;
  Value mapping;
};

struct NameSpace : Object {
  std::vector<std::pair<Value, Value>> attributes;
};

inline const Text& Value::text() const { return as<Text>(); }
inline const List& Value::list() const { return as<List>(); }
inline const Mapping& Value::mapping() const { return as<Mapping>(); }

}  // namespace quipu::text::jinja

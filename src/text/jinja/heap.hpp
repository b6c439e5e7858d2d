// Counted objects of one rendering, and the budget they draw on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace quipu::text::jinja {

/// Containers nested deeper than this are refused, so that no walk over a value can exhaust the stack.
inline constexpr int kMaxValueDepth = 120;

class Heap {
 public:
  explicit Heap(std::uint64_t limit) : limit_(limit) {}
  /// Throws `TemplateError` (limit) when the budget is spent.
  void charge(std::uint64_t bytes) {
    if (bytes > limit_ - used_) refuse();
    used_ += bytes;
  }
  /// From now on `bytes` more may be taken.
  void set_limit(std::uint64_t bytes) { limit_ = used_ + bytes; }
  void release(std::uint64_t bytes) noexcept { used_ -= bytes; }
  /// Asks for room without taking it: before a large result is built.
  void require(std::uint64_t bytes) const {
    if (bytes > limit_ - used_) refuse();
  }

 private:
  [[noreturn]] static void refuse();
  std::uint64_t limit_;
  std::uint64_t used_ = 0;
};

/// Base of everything a value points to. One thread, so the count is a plain integer.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (heap != nullptr) heap->release(charged);
  }
  /// Books `bytes` more for this object.
  void charge(Heap& owner, std::uint64_t bytes) {
    owner.charge(bytes);
    heap = &owner;
    charged += bytes;
  }

  Heap* heap = nullptr;
  std::uint64_t charged = 0;
  std::uint32_t references = 0;
  std::uint16_t depth = 0;  ///< of containers within
};

template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr && --object_->references == 0) delete object_;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  void retain() {
    if (object_ != nullptr) ++object_->references;
  }
  T* object_ = nullptr;
};

}  // namespace quipu::text::jinja

// A list that grows without moving what it holds: no growth takes long, and references stay valid.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace quipu::text::grammar {

template <class T>
class Growing {
 public:
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return blocks_[i / kBlock][i % kBlock]; }
  const T& operator[](std::size_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  T& back() { return (*this)[size_ - 1]; }
  void push_back(const T& value) {
    reserve(size_ + 1);
    (*this)[size_++] = value;
  }
  /// At least `size` elements; new ones are T().
  void grow(std::size_t size) {
    reserve(size);
    size_ = std::max(size_, size);
  }
  void clear() {
    blocks_.clear();
    size_ = 0;
  }

 private:
  static constexpr std::size_t kBlock = 256;
  void reserve(std::size_t size) {
    while (blocks_.size() * kBlock < size) blocks_.push_back(std::make_unique<T[]>(kBlock));
  }
  std::vector<std::unique_ptr<T[]>> blocks_;
  std::size_t size_ = 0;
};

}  // namespace quipu::text::grammar

// SHA-256 of a stream of bytes, by OpenSSL.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace quipu::app {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(const void* data, std::size_t size);
  /// 64 lower-case hexadecimal digits; ends the stream.
  std::string hex();

 private:
  struct Deleter {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Deleter> context_;
};

}  // namespace quipu::app

// Golden files (GGUF, written by tools/goldens) and how logits are compared with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "formats/gguf/gguf.hpp"
#include "support.hpp"

namespace quipu::test {

inline std::filesystem::path golden_path(const std::string& file) {
  return source_path("tests/goldens/models") / file;
}

class Golden {
 public:
  explicit Golden(const std::filesystem::path& path) : file_(gguf::File::open(path)) {}

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  std::vector<float> floats(const std::string& name) const {
    const TensorView& t = tensor(name);
    std::vector<float> values(static_cast<std::size_t>(t.elements()));
    for (std::int64_t row = 0; row < t.rows(); ++row)
      info(t.dtype).decode(t.data + static_cast<std::size_t>(row) * t.row_bytes(),
                           values.data() + row * t.width(), static_cast<std::size_t>(t.width()));
    return values;
  }
  std::vector<std::int32_t> ints(const std::string& name) const {
    const TensorView& t = tensor(name);
    std::vector<std::int32_t> values(static_cast<std::size_t>(t.elements()));
    std::memcpy(values.data(), t.data, t.bytes());
    return values;
  }
  const gguf::Metadata& metadata() const { return file_.metadata(); }

 private:
  const TensorView& tensor(const std::string& name) const {
    const TensorView* t = file_.find_tensor(name);
    if (t == nullptr) throw std::runtime_error("golden without " + name);
    return *t;
  }
  gguf::File file_;
};

inline double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

/// Largest difference over the largest expected magnitude; infinite when the sizes differ.
inline double relative_error(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(found[i])) return INFINITY;
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - expected[i]));
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return difference / largest;
}

inline std::size_t top(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace quipu::test

#include "formats/gguf/cursor.hpp"

#include "core/error.hpp"

namespace quipu::gguf {

std::string Cursor::file() const { return printable(file_, 1000); }

std::string Cursor::where() const {
  if (total_ == 0) return std::string(kind_);
  if (name_.empty()) return fmt::format("{} {} of {}", kind_, index_ + 1, total_);
  return fmt::format("{} \"{}\"", kind_, printable(name_));
}

void Cursor::refuse(std::string_view message) const {
  fail(ErrorCode::bad_file, "{}: {}: {}", file(), where(), message);
}

void Cursor::ends_inside(std::string_view what, std::uint64_t needed) const {
  fail(ErrorCode::bad_file,
       "{}: {}: the file is cut off in the {} at offset {}: expected {} bytes, {} left of {}", file(),
       where(), what, position_, needed, remaining(), size());
}

void Cursor::too_long(std::string_view what, std::uint64_t at, std::uint64_t length) const {
  fail(ErrorCode::bad_file,
       "{}: {}: the {} at offset {} claims {} bytes, but the file is cut off after {} more", file(), where(),
       what, at, length, remaining());
}

}  // namespace quipu::gguf

// The header is read as a stream of events: the format forbids keys that occur twice, which a parsed object
// would hide, and nothing is kept that the header has no place for.
#include "formats/safetensors/header.hpp"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "core/error.hpp"

namespace quipu::safetensors {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kMostTensors = std::size_t{1} << 20;
constexpr std::size_t kLongestName = 4096;
constexpr std::size_t kMostDimensions = 8;

/// What the header says of a tensor, before it is checked against the file.
struct Claim {
  std::string name, type;
  std::vector<std::uint64_t> shape, offsets;
  bool has_type = false, has_shape = false, has_offsets = false;
};

/// Events of the JSON parser. Depth 1 holds names, depth 2 a tensor's fields, depth 3 the numbers.
class Handler {
 public:
  static constexpr std::size_t max_object_size = kMostTensors + 1;
  static constexpr std::size_t max_array_size = kMostDimensions;
  static constexpr std::size_t max_key_size = kLongestName;
  static constexpr std::size_t max_string_size = 1 << 20;

  explicit Handler(const std::string& file) : file_(file) {}
  std::vector<Claim> claims;
  std::vector<Entry> metadata;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    if (depth_ > 1 || list_ != nullptr) refuse("an object", "a value of a tensor");
    ++depth_;
    field_.clear();
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    if (depth_ == 2 && !in_metadata_) finish_claim();
    if (depth_ == 2) in_metadata_ = false;
    --depth_;
    field_.clear();
    return true;
  }
  bool on_array_begin(json::error_code&) {
    if (depth_ != 2 || in_metadata_ || list_ != nullptr) refuse("an array", expected());
    Claim& claim = claims.back();
    if (field_ == "shape") {
      list_ = &claim.shape;
      claim.has_shape = true;
    } else if (field_ == "data_offsets") {
      list_ = &claim.offsets;
      claim.has_offsets = true;
    } else {
      refuse("an array", expected());
    }
    return true;
  }
  bool on_array_end(std::size_t, json::error_code&) {
    list_ = nullptr;
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    text_.append(part);
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code&) {
    text_.append(part);
    std::string key = std::move(text_);
    text_.clear();
    if (depth_ == 1) {
      if (!names_.insert(key).second)
        fail(ErrorCode::bad_file, "{}: the header names tensor \"{}\" twice", shown(), printable(key));
      in_metadata_ = key == "__metadata__";
      fields_.clear();
      if (!in_metadata_) claims.push_back({.name = std::move(key), .type = {}, .shape = {}, .offsets = {}});
    } else {
      if (!fields_.insert(key).second)
        fail(ErrorCode::bad_file, "{}: key \"{}\" of \"{}\" occurs twice in the header", shown(),
             printable(key), in_metadata_ ? "__metadata__" : printable(claims.back().name));
      field_ = std::move(key);
      if (in_metadata_) metadata.push_back({field_, {}});
    }
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    text_.append(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code&) {
    text_.append(part);
    std::string text = std::move(text_);
    text_.clear();
    if (depth_ == 2 && in_metadata_) {
      metadata.back().value = std::move(text);
    } else if (depth_ == 2 && list_ == nullptr && field_ == "dtype") {
      claims.back().type = std::move(text);
      claims.back().has_type = true;
    } else {
      refuse("a string", expected());
    }
    return true;
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t value, json::string_view, json::error_code&) {
    if (value < 0) refuse(fmt::format("{}", value), "a number of at least 0");
    return number(static_cast<std::uint64_t>(value));
  }
  bool on_uint64(std::uint64_t value, json::string_view, json::error_code&) { return number(value); }
  bool on_double(double value, json::string_view, json::error_code&) {
    refuse(fmt::format("{}", value), list_ != nullptr ? "a whole number" : expected());
  }
  bool on_bool(bool, json::error_code&) { refuse("a boolean", expected()); }
  bool on_null(json::error_code&) { refuse("null", expected()); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  std::string shown() const { return printable(file_, 1000); }
  std::string_view expected() const {
    if (depth_ < 2) return "an object that describes a tensor";
    if (in_metadata_) return "a string";
    return field_ == "dtype" ? "a string" : "dtype, shape and data_offsets of the tensor";
  }
  [[noreturn]] void refuse(std::string_view found, std::string_view wanted) const {
    std::string where = "the header";
    if (depth_ >= 1 && in_metadata_) where = "__metadata__";
    if (depth_ >= 1 && !in_metadata_ && !claims.empty())
      where = fmt::format("tensor \"{}\"", printable(claims.back().name));
    if (!field_.empty()) where += fmt::format(", key \"{}\"", printable(field_));
    fail(ErrorCode::bad_file, "{}: {}: found {}, expected {}", shown(), where, found, wanted);
  }
  bool number(std::uint64_t value) {
    if (list_ == nullptr) refuse(fmt::format("{}", value), expected());
    list_->push_back(value);
    return true;
  }
  void finish_claim() {
    const Claim& claim = claims.back();
    const char* missing = !claim.has_type      ? "dtype"
                          : !claim.has_shape   ? "shape"
                          : !claim.has_offsets ? "data_offsets"
                                               : nullptr;
    if (missing != nullptr)
      fail(ErrorCode::bad_file, "{}: tensor \"{}\" has no \"{}\" in the header", shown(),
           printable(claim.name), missing);
    if (claim.offsets.size() != 2)
      fail(ErrorCode::bad_file, "{}: tensor \"{}\" has {} data_offsets, expected 2", shown(),
           printable(claim.name), claim.offsets.size());
    if (claims.size() > kMostTensors)
      fail(ErrorCode::bad_file, "{}: the header names more than {} tensors", shown(), kMostTensors);
  }

  const std::string& file_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string text_, field_;
  std::set<std::string> names_, fields_;
  std::vector<std::uint64_t>* list_ = nullptr;
};

/// What a file that is not safetensors is, when its first bytes tell.
std::string_view other_format(std::string_view text) {
  if (text.starts_with("version https://git-lfs"))
    return " (a Git LFS pointer, not the weights themselves: fetch them with `git lfs pull`)";
  if (text.starts_with("GGUF")) return " (a GGUF file: it can be used as it is)";
  if (text.starts_with("PK\x03\x04") || text.starts_with("\x80\x02"))
    return " (a pickled PyTorch file, which may run code when it is read: save the model as safetensors)";
  if (text.starts_with("<!DOCTYPE") || text.starts_with("<!doctype") || text.starts_with("<html"))
    return " (a web page: the download went wrong)";
  return "";
}

std::string_view header_text(std::span<const std::byte> bytes, const std::string& file) {
  const std::string shown = printable(file, 1000);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (bytes.size() < kLengthBytes + 2)
    fail(ErrorCode::bad_file,
         "{}: not a safetensors file: it has {} bytes, expected a header of at least {}{}", shown,
         bytes.size(), kLengthBytes + 2, other_format(text));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (text[kLengthBytes] != '{' || length > kLongestHeader)
    fail(ErrorCode::bad_file,
         "{}: not a safetensors file: expected the length of the header (at most {}) and then '{{', found {} "
         "and {:?}{}",
         shown, kLongestHeader, length, text[kLengthBytes], other_format(text));
  if (length > bytes.size() - kLengthBytes)
    fail(ErrorCode::bad_file,
         "{}: the file is cut off in its header: expected {} bytes, found {} after the length", shown, length,
         bytes.size() - kLengthBytes);
  return text.substr(kLengthBytes, length);
}

/// Type and shape of a claim; its size must be that of its offsets.
Tensor checked(const Claim& claim, const std::string& file) {
  const auto refuse = [&](const std::string& message) {
    fail(ErrorCode::bad_file, "{}: tensor \"{}\" {}", printable(file, 1000), printable(claim.name), message);
  };
  Tensor tensor;
  tensor.name = claim.name;
  tensor.type = find_type(claim.type);
  if (tensor.type == nullptr)
    refuse(fmt::format("has the dtype \"{}\", which the format does not have", printable(claim.type)));
  std::uint64_t size = tensor.type->bytes;
  for (const std::uint64_t extent : claim.shape) {
    if (extent > std::numeric_limits<std::int64_t>::max() ||
        (extent != 0 && size > std::numeric_limits<std::int64_t>::max() / extent))
      refuse("has a shape whose product does not fit 63 bits");
    size *= extent;
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const std::uint64_t begin = claim.offsets[0], end = claim.offsets[1];
  if (begin > end) refuse(fmt::format("has data_offsets [{}, {}], expected begin <= end", begin, end));
  if (end - begin != size)
    refuse(fmt::format("takes {} bytes by its data_offsets, expected {} for {} {}", end - begin, size,
                       tensor.type->name, shape_text(tensor.shape)));
  return tensor;
}

}  // namespace

Header parse_header(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text = header_text(bytes, file);
  const std::string shown = printable(file, 1000);
  json::basic_parser<Handler> parser(json::parse_options{}, file);
  json::error_code error;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), error);
  if (error)
    fail(ErrorCode::bad_file, "{}: the header is no JSON object of tensors: {} at offset {}", shown,
         error.message(), kLengthBytes + read);
  const std::string_view rest = text.substr(read);
  if (!std::all_of(rest.begin(), rest.end(), [](char c) { return c == ' ' || c == '\n' || c == '\t'; }))
    fail(ErrorCode::bad_file, "{}: the header goes on after its JSON object at offset {}", shown,
         kLengthBytes + read);

  Handler& handler = parser.handler();
  Header header;
  header.metadata = std::move(handler.metadata);
  std::vector<Claim>& claims = handler.claims;
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    return a.offsets != b.offsets ? a.offsets < b.offsets : a.name < b.name;
  });
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + text.size());
  std::uint64_t position = 0;
  for (const Claim& claim : claims) {
    Tensor tensor = checked(claim, file);
    const std::uint64_t begin = claim.offsets[0], end = claim.offsets[1];
    if (begin != position)
      fail(ErrorCode::bad_file, "{}: tensor \"{}\" begins at {} of the data, expected {}: tensors {}", shown,
           printable(claim.name), begin, position, begin < position ? "overlap" : "leave a gap");
    if (end > data.size())
      fail(ErrorCode::bad_file,
           "{}: the file is cut off in tensor \"{}\": it ends at {} of the data, found {} bytes of data",
           shown, printable(claim.name), end, data.size());
    tensor.bytes = data.subspan(begin, end - begin);
    position = end;
    header.tensors.push_back(std::move(tensor));
  }
  if (position != data.size())
    fail(ErrorCode::bad_file, "{}: {} bytes of data follow the last tensor, expected none", shown,
         data.size() - position);
  return header;
}

}  // namespace quipu::safetensors

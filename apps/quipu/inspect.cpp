// `quipu inspect`: the metadata and tensors of a GGUF file, as a table or as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "cli.hpp"
#include "commands.hpp"
#include "convert/convert.hpp"
#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "json_text.hpp"
#include "output.hpp"
#include "progress.hpp"

namespace quipu::app {
namespace {

struct InspectFlags {
  std::string model;
  bool json = false, metadata_only = false, tensors_only = false, full = false, one_file = false;
};

// ---- JSON ----

boost::json::value json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}
boost::json::value json_item(std::uint64_t value) { return value; }
boost::json::value json_item(std::int64_t value) { return value; }
boost::json::value json_item(double value) { return json_number(value); }
boost::json::value json_item(bool value) { return value; }
boost::json::value json_item(std::string_view value) { return boost::json::string(valid_utf8(value)); }

boost::json::value json_item(const gguf::Array& array) {
  boost::json::array result;
  result.reserve(array.size());
  if (array.element_type == gguf::ValueType::boolean) {
    for (const std::uint64_t item : std::get<std::vector<std::uint64_t>>(array.items))
      result.push_back(item != 0);
    return result;
  }
  std::visit(
      [&](const auto& items) {
        for (const auto& item : items) result.push_back(json_item(item));
      },
      array.items);
  return result;
}

boost::json::array json_shape(const TensorView& tensor) {
  std::size_t dimensions = tensor.shape.size();
  while (dimensions > 1 && tensor.shape[dimensions - 1] == 1) --dimensions;
  return boost::json::array(tensor.shape.begin(), tensor.shape.begin() + dimensions);
}

void print_json(const gguf::File& file, const InspectFlags& flags) {
  boost::json::object result;
  if (!flags.tensors_only) {
    boost::json::object metadata;
    metadata.reserve(file.metadata().entries().size());
    for (const gguf::Metadata::Entry& entry : file.metadata().entries())
      metadata[entry.key] = std::visit([](const auto& value) { return json_item(value); }, entry.value.data);
    result["metadata"] = std::move(metadata);
  }
  if (!flags.metadata_only) {
    boost::json::array tensors;
    tensors.reserve(file.tensors().size());
    for (const TensorView& tensor : file.tensors()) {
      boost::json::object item;
      item["name"] = valid_utf8(tensor.name);
      item["type"] = to_string(tensor.dtype);
      item["shape"] = json_shape(tensor);
      item["bytes"] = tensor.bytes();
      tensors.push_back(std::move(item));
    }
    result["tensors"] = std::move(tensors);
  }
  write_stdout(boost::json::serialize(result) + "\n");
}

// ---- table ----

constexpr std::size_t kShownItems = 5;
constexpr std::size_t kShownBytes = 60;
constexpr std::size_t kWidestName = 48;

std::string quoted(std::string_view text, bool full) {
  return fmt::format("\"{}\"", printable(text, full ? SIZE_MAX : kShownBytes));
}

/// The shortest decimal that names the stored number: an f32 has fewer digits than the double that holds it.
std::string number_text(double value, gguf::ValueType type) {
  return type == gguf::ValueType::f32 ? fmt::format("{}", static_cast<float>(value))
                                      : fmt::format("{}", value);
}

std::string array_text(const gguf::Array& array, bool full);

std::string item_text(const gguf::Array& array, std::size_t index, bool full) {
  const gguf::ValueType type = array.element_type;
  return std::visit(
      [&](const auto& items) -> std::string {
        using Item = typename std::decay_t<decltype(items)>::value_type;
        const Item& item = items[index];
        if constexpr (std::is_same_v<Item, std::string_view>)
          return quoted(item, full);
        else if constexpr (std::is_same_v<Item, gguf::Array>)
          return array_text(item, full);
        else if constexpr (std::is_same_v<Item, double>)
          return number_text(item, type);
        else if (type == gguf::ValueType::boolean)
          return item != 0 ? "true" : "false";
        else
          return std::to_string(item);
      },
      array.items);
}

std::string array_text(const gguf::Array& array, bool full) {
  const std::size_t shown = full ? array.size() : std::min(array.size(), kShownItems);
  std::string text =
      fmt::format("[{} {}{}", array.size(), to_string(array.element_type),
                  array.element_type == gguf::ValueType::string && array.size() != 1 ? "s" : "");
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? ": " : ", ") + item_text(array, i, full);
  return text + (shown < array.size() ? ", …]" : "]");
}

std::string value_text(const gguf::Value& value, bool full) {
  switch (value.type) {
    case gguf::ValueType::string:
      return quoted(std::get<std::string>(value.data), full);
    case gguf::ValueType::array:
      return array_text(std::get<gguf::Array>(value.data), full);
    case gguf::ValueType::boolean:
      return std::get<bool>(value.data) ? "true" : "false";
    case gguf::ValueType::f32:
    case gguf::ValueType::f64:
      return number_text(std::get<double>(value.data), value.type);
    default:
      if (const auto* number = std::get_if<std::uint64_t>(&value.data)) return std::to_string(*number);
      return std::to_string(std::get<std::int64_t>(value.data));
  }
}

std::string grouped(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

void append_metadata(std::string& out, const gguf::File& file, bool full) {
  const auto& entries = file.metadata().entries();
  std::size_t width = 0;
  for (const auto& entry : entries)
    width = std::max(width, printable(entry.key, full ? SIZE_MAX : 200).size());
  width = std::min(width, kWidestName);
  out += fmt::format("\nMetadata: {} keys\n", entries.size());
  for (const auto& entry : entries)
    out += fmt::format("  {:<{}}  {:<6}  {}\n", printable(entry.key, full ? SIZE_MAX : 200), width,
                       to_string(entry.value.type), value_text(entry.value, full));
}

struct Total {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0, elements = 0;
};

void append_tensors(std::string& out, const gguf::File& file) {
  std::size_t width = 0, shape_width = 0;
  for (const TensorView& tensor : file.tensors()) {
    width = std::max(width, printable(tensor.name).size());
    shape_width = std::max(shape_width, shape_text(tensor).size());
  }
  width = std::min(width, kWidestName);
  out += fmt::format("\nTensors: {}\n", file.tensors().size());
  for (const TensorView& tensor : file.tensors())
    out += fmt::format("  {:<{}}  {:<7}  {:<{}}  {:>15}\n", printable(tensor.name), width,
                       to_string(tensor.dtype), shape_text(tensor), shape_width, grouped(tensor.bytes()));
}

void append_totals(std::string& out, const gguf::File& file) {
  std::map<DType, Total> totals;
  Total all;
  for (const TensorView& tensor : file.tensors()) {
    for (Total* total : {&totals[tensor.dtype], &all}) {
      ++total->tensors;
      total->bytes += tensor.bytes();
      total->elements += static_cast<std::uint64_t>(tensor.elements());
    }
  }
  out += "\nTotals\n";
  const auto line = [&](std::string_view name, const Total& total) {
    out += fmt::format("  {:<7}  {:>5} tensors  {:>17} elements  {:>15} bytes  {:5.2f} bits each\n", name,
                       total.tensors, grouped(total.elements), grouped(total.bytes),
                       total.elements == 0
                           ? 0.0
                           : 8.0 * static_cast<double>(total.bytes) / static_cast<double>(total.elements));
  };
  for (const auto& [dtype, total] : totals) line(to_string(dtype), total);
  if (totals.size() != 1) line("all", all);
}

void print_table(const gguf::File& file, const InspectFlags& flags) {
  std::string out = fmt::format("{}: GGUF version {}, {}", printable(file.name(), SIZE_MAX), file.version(),
                                size_text(file.file_bytes()));
  if (file.shards().size() > 1) out += fmt::format(" in {} files", file.shards().size());
  out += '\n';
  for (const char* key : {"general.architecture", "general.name", "general.size_label", "general.license"}) {
    const gguf::Value* value = file.metadata().find(key);
    if (value != nullptr)
      out +=
          fmt::format("  {:<12}  {}\n", key + std::string_view("general.").size(), value_text(*value, false));
  }
  if (!flags.tensors_only) append_metadata(out, file, flags.full);
  if (!flags.metadata_only) {
    append_tensors(out, file);
    append_totals(out, file);
  }
  write_stdout(out);
}

void inspect(const InspectFlags& flags) {
  const gguf::File file = convert::open_model(resolve_model(flags.model), {.follow_splits = !flags.one_file});
  if (flags.json)
    print_json(file, flags);
  else
    print_table(file, flags);
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App& command = add_command(app, "inspect", "Show the metadata and tensors of a model file");
  auto flags = std::make_shared<InspectFlags>();
  argument(command, "model", flags->model, "a GGUF file, a catalogue name or hf:org/repo[:file]");
  flag_option(command, "--json", flags->json, "one JSON object {\"metadata\", \"tensors\"}, arrays complete");
  flag_option(command, "--metadata", flags->metadata_only, "the metadata only");
  flag_option(command, "--tensors", flags->tensors_only, "the tensors only");
  flag_option(command, "--full", flags->full, "do not shorten strings and arrays in the table");
  flag_option(command, "--one-file", flags->one_file, "read this shard of a split model alone");
  on_run(command, [flags] {
    if (flags->metadata_only && flags->tensors_only)
      fail(ErrorCode::invalid_argument,
           "--metadata and --tensors exclude each other: give one, or neither for both");
    inspect(*flags);
  });
}

}  // namespace quipu::app

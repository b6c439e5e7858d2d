// How a family of Hugging Face models becomes a GGUF file: tables of tensors and of settings. A new family is
// a table in families/ and a row in families.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/json_file.hpp"
#include "convert/sizes.hpp"
#include "convert/tensor_source.hpp"
#include "formats/gguf/gguf.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace quipu::convert {

using Shape = std::array<Dim, 4>;

/// What happens to a tensor on its way. The default keeps it.
struct Change {
  /// Source row of each row of the result, over all matrices of the tensor; -1: zeros; empty: as they are.
  std::vector<std::int64_t> (*rows)(const Sizes&) = nullptr;
  bool transposed = false;  ///< the matrix is turned: Conv1D layers hold [in, out]
  /// As many matrices lie one below the other, and each is turned by itself; where the target is shorter,
  /// only its first rows are.
  Dim matrices = Dim::none;
  bool elements = false;  ///< `rows` chooses single values: of biases
  bool mxfp4 = false;     ///< "_blocks" of nibbles with "_scales" beside them (gpt-oss)
  float added = 0;        ///< to the weight, not the bias: norms that multiply by 1 + w
  Shape target{};         ///< shape of the result when `rows` leaves some out
};

enum class Presence : std::uint8_t {
  required,
  optional,
  dense,      ///< required in blocks without experts, optional in others
  sparse,     ///< required in blocks with experts
  full_rank,  ///< required where queries are one product
  low_rank,   ///< required where they are two, through few dimensions
};

/// One line of a table: `from` is the name in the checkpoint below the family's root (from "/" on: the whole
/// name; of alternatives "a|b" the first that is there), `to` its name in GGUF; both without ".weight", a
/// bias beside it comes along. `{}` stands for the block, `{e}`, `{h}`, `{g}` and `{a}` for each expert,
/// head, key-value head and further stream: those become one. A `to` with a suffix of its own means that
/// `from` is whole as well.
struct TensorRule {
  std::string_view from, to;
  Shape shape;  ///< in the checkpoint, outermost dimension first
  Presence presence = Presence::required;
  Change change = {};
};

enum class Kind : std::uint8_t { count, number, flag, text };

/// `from`: alternatives in config.json (see JsonFile); `to`: the key below the architecture's name. Absent
/// ones are left out.
struct KeyRule {
  std::string_view from, to;
  Kind kind = Kind::count;
};

/// What the parts of a conversion work on.
struct Job {
  const JsonFile& config;
  Sizes& sizes;
  std::string_view architecture;  ///< as in GGUF
  gguf::Metadata& metadata;
  std::vector<TensorSource>& tensors;
  std::vector<std::string>& warnings;
  const safetensors::File& weights;

  std::string key(std::string_view name) const { return std::string(architecture) + "." + std::string(name); }
  void set(std::string_view name, gguf::Value value) { metadata.set(key(name), std::move(value)); }
  void set_count(std::string_view name, std::uint64_t value);
  void set_number(std::string_view name, double value);
  void set_flag(std::string_view name, bool value) { set(name, gguf::Value::of_bool(value)); }
  void set_counts(std::string_view name, const std::vector<std::uint64_t>& values);
  void set_flags(std::string_view name, const std::vector<bool>& values);
  void set_numbers(std::string_view name, const std::vector<double>& values);
  /// A vector that comes from the configuration.
  void add_tensor(std::string name, std::vector<float> values);
  void warn(std::string text) { warnings.push_back(std::move(text)); }
};

enum class Rope : std::uint8_t { none, rotary };

struct Family {
  std::string_view name;     ///< general.architecture
  std::string_view classes;  ///< `architectures` of config.json: alternatives
  std::vector<TensorRule> tensors;
  std::vector<KeyRule> keys = {};
  Rope rope = Rope::rotary;
  /// Values that the configuration class has where config.json is silent.
  void (*defaults)(JsonFile& config) = nullptr;
  /// Settings and tensors that no table expresses.
  void (*more)(Job& job) = nullptr;
  /// Prefixes of the checkpoint's names: the first under which the first tensor is found.
  std::string_view roots = "model.|model.language_model.|language_model.model.|";
  /// `quantization_config.quant_method` that the tables can read.
  std::string_view quantization = "";
  /// Names that are left out without a word: alternatives, `*` stands for anything.
  std::string_view ignored = "";
  /// What a file calls BPE on plain text: "llama" has the order of its merges as scores, "gemma4" the merges.
  std::string_view plain_bpe = "llama";
};

std::span<const Family> families();
/// By a name of `architectures`; null when there is none.
const Family* find_family(std::string_view architecture_class);
/// All names of `architectures` that are known.
std::vector<std::string_view> known_classes();

/// Tables one after the other.
template <class First, class... Tables>
auto join(const First& first, const Tables&... tables) {
  std::vector<std::remove_cvref_t<decltype(*std::begin(first))>> all;
  all.reserve((std::size(first) + ... + std::size(tables)));  // and GCC 12 sees no overflow where none is
  all.insert(all.end(), std::begin(first), std::end(first));
  (all.insert(all.end(), std::begin(tables), std::end(tables)), ...);
  return all;
}

/// The settings that families share, from the usual keys; then the family's own.
void add_settings(Job& job, const Family& family);
/// `rope.*`: base, scaling, rotated dimensions; `rope_freqs.weight` for Llama 3 scaling.
void add_rope(Job& job);

/// Alternatives "a|b|c" one by one.
template <class Visit>
void for_each_alternative(std::string_view list, const Visit& visit) {
  while (true) {
    const std::size_t bar = list.find('|');
    visit(list.substr(0, bar));
    if (bar == list.npos) return;
    list.remove_prefix(bar + 1);
  }
}

}  // namespace quipu::convert

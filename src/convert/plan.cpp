#include "convert/plan.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace quipu::convert {
namespace {

using safetensors::Tensor;

/// Left out in every family: buffers that older versions of transformers saved.
constexpr std::string_view kAlwaysIgnored =
    "*rotary_emb.inv_freq|*rotary_emb.cos_cached|*rotary_emb.sin_cached";
/// Parts of models that see or hear; said aloud.
constexpr std::string_view kOtherSenses =
    "*vision_tower.*|*vision_model.*|*visual.*|*multi_modal_projector.*|*audio_tower.*|*embed_vision.*|"
    "*embed_audio.*";

/// `*` stands for any text.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = pattern.npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matches_any(std::string_view patterns, std::string_view text) {
  bool found = false;
  for_each_alternative(patterns, [&](std::string_view pattern) { found = found || matches(pattern, text); });
  return found;
}

std::string replaced(std::string_view text, std::string_view what, std::int64_t number) {
  std::string result(text);
  const std::size_t at = result.find(what);
  if (at != result.npos) result.replace(at, what.size(), std::to_string(number));
  return result;
}

bool has_suffix(std::string_view name) {
  return name.ends_with(".weight") || name.ends_with(".bias") || name.ends_with(".scale");
}

class Planner {
 public:
  Planner(const Family& family, const safetensors::File& weights, Job& job)
      : family_(family), weights_(weights), job_(job) {}

  void run() {
    find_root();
    // Those before the first block, then block by block, then the rest: files are read front to back.
    const auto& rules = family_.tensors;
    const auto is_of_block = [](const TensorRule& rule) { return rule.from.find("{}") != rule.from.npos; };
    for (const TensorRule& rule : rules)
      if (!is_of_block(rule)) apply(rule, -1);
    for (std::int64_t block = 0; block < job_.sizes[Dim::layers]; ++block)
      for (const TensorRule& rule : rules)
        if (is_of_block(rule)) apply(rule, block);
    refuse_missing();
    refuse_left_over();
  }

 private:
  std::string shown() const { return printable(weights_.name(), 1000); }

  /// The prefix under which the table's first tensor is found.
  void find_root() {
    const std::string first = std::string(family_.tensors.front().from) + ".weight";
    std::string tried;
    bool found = false;
    for_each_alternative(family_.roots, [&](std::string_view root) {
      const std::string name = std::string(root) + first;
      if (!found && weights_.find(name) != nullptr) {
        root_ = root;
        found = true;
      }
      tried += (tried.empty() ? "" : ", ") + name;
    });
    if (!found)
      fail(ErrorCode::bad_file, "{}: tensor \"{}\" is missing, expected it for architecture {} ({})", shown(),
           first, family_.name, tried);
  }

  std::string full_name(std::string_view from) const {
    if (from.starts_with("/")) {
      const std::string name(from.substr(1));
      // Models with other senses keep the text model's head beside it.
      const std::string nested = "language_model." + name;
      return weights_.find(nested + ".weight") != nullptr ? nested : name;
    }
    return std::string(root_) + std::string(from);
  }

  void apply(const TensorRule& rule, std::int64_t block) {
    if (rule.from == "/lm_head" && job_.config.flag_or("tie_word_embeddings", false)) {
      // Tied: a head in the file is a copy that nobody reads.
      used_.insert(full_name(rule.from) + ".weight");
      return;
    }
    std::string from;
    for_each_alternative(rule.from, [&](std::string_view name) {
      const std::string full = full_name(replaced(name, "{}", block));
      if (from.empty() || (weights_.find(from + ".weight") == nullptr && weights_.find(full + ".weight")))
        from = full;
    });
    const std::string to = replaced(rule.to, "{}", block);
    block_ = block;
    if (has_suffix(to)) {
      add(rule, from, to, false);
      return;
    }
    add(rule, from + ".weight", to + ".weight", false);
    add(rule, from + ".bias", to + ".bias", true);
  }

  /// The source tensors of a name: one, or one for each expert or head.
  std::vector<std::string> members(const std::string& from) const {
    for (const auto& [mark, dim] : {std::pair{"{e}", Dim::experts}, std::pair{"{h}", Dim::heads},
                                    std::pair{"{g}", Dim::kv_heads}, std::pair{"{a}", Dim::altup_others}}) {
      if (from.find(mark) == from.npos) continue;
      std::vector<std::string> names;
      for (std::int64_t i = 0; i < job_.sizes[dim]; ++i) names.push_back(replaced(from, mark, i));
      return names;
    }
    return {from};
  }

  void add(const TensorRule& rule, const std::string& from, const std::string& to, bool is_bias) {
    std::vector<const Tensor*> parts;
    std::string missing;
    for (const std::string& name : members(from)) {
      if (const Tensor* tensor = weights_.find(name))
        parts.push_back(tensor);
      else if (missing.empty())
        missing = name;
    }
    if (parts.empty() || !missing.empty()) {
      const bool has_experts =
          job_.sizes[Dim::experts] > 0 && (block_ < 0 || block_ >= job_.sizes[Dim::leading_dense]);
      const bool wanted = rule.presence == Presence::required ||
                          (rule.presence == Presence::dense && !has_experts) ||
                          (rule.presence == Presence::sparse && has_experts) ||
                          (rule.presence == Presence::full_rank && job_.sizes[Dim::latent_q] == 0) ||
                          (rule.presence == Presence::low_rank && job_.sizes[Dim::latent_q] > 0);
      // Of several, some are there: that is no other way to save the model.
      if (!parts.empty()) refuse_missing(missing, to);
      if (wanted && !is_bias) missing_.emplace_back(to, missing.empty() ? from : missing);
      return;
    }
    made(to, parts.front()->name);
    if (rule.change.mxfp4) {
      job_.tensors.push_back(packed(rule, to, *parts.front()));
      return;
    }
    for (const Tensor* part : parts) {
      check(*part, rule, is_bias);
      if (part->type != parts.front()->type)
        fail(ErrorCode::bad_file, "{}: tensor \"{}\" is {}, expected {} as \"{}\", which it is joined with",
             printable(weights_.file_of(*part), 1000), printable(part->name), part->type->name,
             parts.front()->type->name, printable(parts.front()->name));
      used_.insert(part->name);
    }
    job_.tensors.push_back(source(rule, to, parts, is_bias));
  }

  void made(const std::string& to, const std::string& from) {
    if (!made_.insert(to).second)
      fail(ErrorCode::bad_file, "{}: tensor \"{}\" is there in two forms, \"{}\" is the second", shown(), to,
           printable(from));
  }

  std::vector<std::int64_t> extents(const Shape& shape) const {
    std::vector<std::int64_t> result;
    for (const Dim dim : shape)
      if (dim != Dim::none) result.push_back(dim == Dim::any ? -1 : job_.sizes[dim]);
    return result;
  }

  /// Extents of the tensor in the checkpoint; a bias has one for each output.
  std::vector<std::int64_t> expected(const TensorRule& rule, bool is_bias) const {
    std::vector<std::int64_t> shape = extents(rule.shape);
    if (!is_bias) return shape;
    if (rule.change.transposed) return {shape.back()};
    if (shape.size() > 1) shape.pop_back();
    return shape;
  }

  std::string where(const Tensor& tensor) const {
    return printable(weights_.file_of(tensor), 1000) + ": tensor \"" + printable(tensor.name) + "\"";
  }

  void check_shape(const Tensor& tensor, const std::vector<std::int64_t>& wanted) const {
    bool fits = tensor.shape.size() == wanted.size();
    for (std::size_t i = 0; fits && i < wanted.size(); ++i)
      // What the configuration leaves out is taken from the tensor.
      fits = tensor.shape[i] >= 1 && (wanted[i] <= 0 || tensor.shape[i] == wanted[i]);
    if (!fits)
      fail(ErrorCode::bad_file, "{} is {}, expected {} by config.json", where(tensor),
           safetensors::shape_text(tensor.shape), safetensors::shape_text(wanted));
  }

  void check(const Tensor& tensor, const TensorRule& rule, bool is_bias) const {
    check_shape(tensor, expected(rule, is_bias));
    const bool is_weight = tensor.type->dtype && !info(*tensor.type->dtype).is_integer;
    if (!is_weight || info(*tensor.type->dtype).decode == nullptr)
      fail(ErrorCode::unsupported, "{} is {}, expected F32, F16 or BF16", where(tensor), tensor.type->name);
  }

  TensorSource source(const TensorRule& rule, const std::string& to, const std::vector<const Tensor*>& parts,
                      bool is_bias) const {
    const Change& change = rule.change;
    if (change.matrices != Dim::none) return turned_matrices(rule, to, *parts.front());
    TensorSource result;
    result.info.name = to;
    result.info.dtype = *parts.front()->type->dtype;
    for (const Tensor* part : parts) result.parts.push_back(part->bytes.data());

    // Outermost first; a vector is one row, and its elements are the rows that an order moves.
    std::vector<std::int64_t> shape = parts.front()->shape;
    const bool turned = change.transposed && !is_bias;
    if (turned) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    if (change.rows != nullptr) result.rows = change.rows(job_.sizes);
    const bool moved = !result.rows.empty();
    if (moved) {
      if (shape.size() > 1 && change.target[0] == Dim::none) {
        shape[shape.size() - 2] = static_cast<std::int64_t>(result.rows.size());
      } else if (change.target[0] != Dim::none) {
        shape = extents(change.target);
        if (is_bias) shape.pop_back();
      } else {
        shape[0] = static_cast<std::int64_t>(result.rows.size());
      }
    }
    if (parts.size() > 1) shape.insert(shape.begin(), static_cast<std::int64_t>(parts.size()));
    const std::size_t rank = shape.size();
    for (std::size_t i = 0; i < rank; ++i) result.info.shape[i] = shape[rank - 1 - i];
    result.transposed = turned;
    if (turned) result.columns = shape[rank - 2];
    result.added = is_bias ? 0 : change.added;
    result.rows_per_part = parts.front()->elements() / (turned ? 1 : result.width());
    if (moved && (rank == 1 || change.elements)) order_elements(result);
    check_order(result, parts.front()->elements() * static_cast<std::int64_t>(parts.size()));
    return result;
  }

  /// The matrices of a tensor, each turned by itself.
  TensorSource turned_matrices(const TensorRule& rule, const std::string& to, const Tensor& tensor) const {
    const std::vector<std::int64_t> target = extents(rule.change.target);  // matrices, rows, columns
    const std::int64_t count = target[0], rows = tensor.elements() / tensor.shape.back();
    TensorSource result;
    result.info = {to, *tensor.type->dtype, {target[2], target[1], count, 1}};
    result.transposed = true;
    result.columns = tensor.shape.back();
    result.rows_per_part = target[2];
    if (rule.change.rows != nullptr) result.rows = rule.change.rows(job_.sizes);
    bool fits = count > 0 && rows % count == 0 && target[2] > 0 && target[2] <= rows / count;
    fits =
        fits && (result.rows.empty() ? target[1] == result.columns
                                     : static_cast<std::int64_t>(result.rows.size()) == result.row_count());
    for (const std::int64_t row : result.rows) fits = fits && row >= 0 && row < count * result.columns;
    if (!fits) refuse_order(to);
    const std::size_t stride = tensor.bytes.size() / static_cast<std::size_t>(count);
    for (std::int64_t i = 0; i < count; ++i)
      result.parts.push_back(tensor.bytes.data() + static_cast<std::size_t>(i) * stride);
    return result;
  }

  /// Experts as gpt-oss publishes them: [experts, rows, blocks, 16] bytes of nibbles, [experts, rows, blocks]
  /// of scales (Open Compute Project, Microscaling Formats 1.0). The rule's last extent counts values.
  TensorSource packed(const TensorRule& rule, const std::string& to, const Tensor& blocks) {
    constexpr std::int64_t block = 32, bytes = 16;
    const std::string suffix = "_blocks";
    const std::string name = blocks.name.substr(0, blocks.name.size() - suffix.size()) + "_scales";
    const Tensor* scales = weights_.find(name);
    if (scales == nullptr) refuse_missing(name, to);
    std::vector<std::int64_t> shape = extents(rule.shape);
    if (shape.back() <= 0 || shape.back() % block != 0)
      fail(ErrorCode::bad_file, "{} has rows of {} values by config.json, expected a multiple of {}",
           where(blocks), shape.back(), block);
    shape.back() /= block;
    check_shape(*scales, shape);
    shape.push_back(bytes);
    check_shape(blocks, shape);
    for (const Tensor* tensor : {&blocks, scales}) {
      if (tensor->type->name != "U8")
        fail(ErrorCode::unsupported, "{} is {}, expected U8", where(*tensor), tensor->type->name);
      used_.insert(tensor->name);
    }
    const std::vector<std::int64_t> target =
        rule.change.rows == nullptr ? extents(rule.shape) : extents(rule.change.target);
    TensorSource result;
    result.info = {to, DType::mxfp4, {target[2], target[1], target[0], 1}};
    result.parts = {blocks.bytes.data()};
    result.scales = scales->bytes.data();
    result.rows_per_part = blocks.shape[0] * blocks.shape[1];
    if (rule.change.rows != nullptr) result.rows = rule.change.rows(job_.sizes);
    check_order(result, result.rows_per_part * result.width());
    return result;
  }

  /// A vector whose elements move, as a vector of computed values.
  static void order_elements(TensorSource& vector) {
    const DTypeInfo& type = info(vector.info.dtype);
    for (const std::int64_t element : vector.rows) {
      float value = 0;
      type.decode(vector.parts.front() + static_cast<std::size_t>(element) * type.block_bytes, &value, 1);
      vector.values.push_back(value);
    }
    vector.info.dtype = DType::f32;
    vector.rows.clear();
    vector.parts.clear();
  }

  /// Whatever the configuration says, no row outside of the parts is read.
  void check_order(const TensorSource& source, std::int64_t elements) const {
    const std::int64_t rows = source.row_count();
    const std::int64_t available = source.transposed ? rows : elements / source.width();
    bool fits = source.parts.empty() || elements % source.width() == 0;
    fits = fits && (source.rows.empty() ? source.parts.empty() || available == rows
                                        : static_cast<std::int64_t>(source.rows.size()) == rows);
    for (const std::int64_t row : source.rows) fits = fits && row >= -1 && row < available;
    if (!fits) refuse_order(source.info.name);
  }

  [[noreturn]] void refuse_order(const std::string& name) const {
    fail(ErrorCode::bad_file, "{}: the rows of tensor \"{}\" do not fit the heads and sizes of config.json",
         shown(), name);
  }

  [[noreturn]] void refuse_missing(const std::string& name, const std::string& to) const {
    fail(ErrorCode::bad_file, "{}: tensor \"{}\" is missing, expected it for architecture {} (as \"{}\")",
         shown(), printable(name), family_.name, to);
  }

  void refuse_missing() const {
    for (const auto& [to, from] : missing_)
      if (!made_.contains(to)) refuse_missing(from, to);
  }

  void refuse_left_over() {
    std::size_t senses = 0, ahead = 0;
    for (const Tensor& tensor : weights_.tensors()) {
      if (used_.contains(tensor.name) || matches_any(kAlwaysIgnored, tensor.name) ||
          (!family_.ignored.empty() && matches_any(family_.ignored, tensor.name)))
        continue;
      if (matches_any(kOtherSenses, tensor.name)) {
        ++senses;
        continue;
      }
      if (predicts_ahead(tensor.name)) {
        ++ahead;
        continue;
      }
      fail(ErrorCode::unsupported, "{}: tensor \"{}\" {} has no place in architecture {} with {} layers",
           printable(weights_.file_of(tensor), 1000), printable(tensor.name),
           safetensors::shape_text(tensor.shape), family_.name, job_.sizes[Dim::layers]);
    }
    if (ahead > 0)
      job_.warn(fmt::format("{} tensors of blocks that predict further tokens are left out", ahead));
    if (senses > 0)
      job_.warn(
          fmt::format("{} tensors of parts that see or hear are left out: the text model remains", senses));
  }

  /// Of a block behind the last, which predicts further tokens.
  bool predicts_ahead(std::string_view name) const {
    const std::uint64_t more = job_.config.try_count("num_nextn_predict_layers").value_or(0);
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(more, 16); ++i)
      if (name.starts_with(
              fmt::format("{}layers.{}.", root_, job_.sizes[Dim::layers] + static_cast<std::int64_t>(i))))
        return true;
    return false;
  }

  const Family& family_;
  const safetensors::File& weights_;
  Job& job_;
  std::string_view root_;
  std::int64_t block_ = -1;  // that a rule is being applied to
  std::set<std::string, std::less<>> used_, made_;
  std::vector<std::pair<std::string, std::string>> missing_;  // names in GGUF and in the checkpoint
};

}  // namespace

void plan_tensors(const Family& family, const safetensors::File& weights, Job& job) {
  Planner(family, weights, job).run();
}

}  // namespace quipu::convert

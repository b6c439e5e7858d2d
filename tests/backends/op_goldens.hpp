// The cases of tools/goldens/make_op_goldens.py, computed with numpy.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "formats/gguf/gguf.hpp"
#include "harness.hpp"
#include "support.hpp"

namespace quipu::test {

struct OpGoldens {
  static const gguf::File& golden() {
    static const gguf::File file = gguf::File::open(source_path("tests/goldens/backends/ops.gguf"));
    return file;
  }
  static const TensorView& tensor(const std::string& name) {
    const TensorView* view = golden().find_tensor(name);
    if (view == nullptr) throw std::runtime_error("no tensor " + name);
    return *view;
  }
  static std::vector<float> values(const std::string& name) {
    const TensorView& view = tensor(name);
    std::vector<float> result(static_cast<std::size_t>(view.elements()));
    std::memcpy(result.data(), view.data, view.bytes());
    return result;
  }
  static Table table(const std::string& name) { return {tensor(name).width(), values(name)}; }
  static std::int64_t number(const std::string& key) { return golden().metadata().get_int(key); }

  /// The attention of the case whose keys begin with `key`, without its inputs.
  static graph::Attention attention(const std::string& key) {
    const gguf::Metadata& data = golden().metadata();
    const bool other_values = data.find(key + "v_dim") != nullptr;
    graph::Attention op{.q = {},
                        .k = {},
                        .v = {},
                        .layer = 0,
                        .heads = number(key + "heads"),
                        .kv_heads = number(key + "kv_heads"),
                        .head_dim = number(key + "head_dim"),
                        .v_dim = number(key + (other_values ? "v_dim" : "head_dim")),
                        .scale = static_cast<float>(data.get_float(key + "scale")),
                        .window = number(key + "window"),
                        .soft_cap = static_cast<float>(data.get_float(key + "soft_cap")),
                        .sinks = std::nullopt,
                        .alibi_max_bias = static_cast<float>(data.get_float(key + "alibi"))};
    if (const TensorView* sinks = golden().find_tensor(key + "sinks")) op.sinks = *sinks;
    return op;
  }
  /// `op` on the queries, keys and values of the case.
  static OpCase attention_case(const std::string& key, const graph::Attention& op) {
    return {{table(key + "q"), table(key + "k"), table(key + "v")},
            [call = op](graph::Builder& g, std::span<const graph::Value> in) mutable {
              call.q = in[0];
              call.k = in[1];
              call.v = in[2];
              return g.attention(call);
            }};
  }
};

}  // namespace quipu::test

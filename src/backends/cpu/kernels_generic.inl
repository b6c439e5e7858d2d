// The kernels of one instruction set: included, after its simd_*.hpp and its ManyRows (linear_words.inl or
// linear_planes.inl), by kernels_<isa>.cpp. Everything has internal linkage, so that no code of one
// instruction set is ever linked in place of another's.

#include <type_traits>

#include "backends/cpu/kernels.hpp"

// The order matters.
// clang-format off
#include "backends/cpu/lanes.inl"
#include "backends/cpu/math.inl"
#include "backends/cpu/norms.inl"
#include "backends/cpu/elementwise.inl"
#include "backends/cpu/experts.inl"
#include "backends/cpu/formats.inl"
#include "backends/cpu/linear_rows.inl"
#include "backends/cpu/float_weights.inl"
#include "backends/cpu/linear_float_panels.inl"
#include "backends/cpu/linear_float.inl"
#include "backends/cpu/linear_quant.inl"
#include "backends/cpu/linear_few.inl"
#include "backends/cpu/linear_many.inl"
#include "backends/cpu/attention_rows.inl"
#include "backends/cpu/attention_state.inl"
#include "backends/cpu/attention_span.inl"
#include "backends/cpu/attention_walk.inl"
#include "backends/cpu/attention_panels.inl"
#include "backends/cpu/attention.inl"
// clang-format on

namespace quipu::backends {
namespace {

constexpr Kernels kKernels = {
    kIsaName,
    kGroup,
    rms_norm,
    layer_norm,
    activate,
    glu,
    xielu,
    gaussian_top_k,
    add_rows,
    mul_rows,
    scale_row,
    add_scaled_row,
    weighted_sum,
    route,
    rope,
    quantize,
    rms_norm_quantize,
    layer_norm_quantize,
    ManyRows::kWords ? ManyRows::kLeastRows : SIZE_MAX,
    SIZE_MAX,
    store_f16_row,
    store_bf16_row,
    48,
    attention,
    attention_merge,
    {linear_float<WeightF32>, linear_float<WeightF16>, linear_float<WeightBF16>,
     linear_quant<Blocks32<FormatQ4_0>>, linear_quant<Blocks32<FormatQ4_1>>,
     linear_quant<Blocks32<FormatQ5_0>>, linear_quant<Blocks32<FormatQ5_1>>,
     linear_quant<Blocks32<FormatQ8_0>>, linear_quant<Blocks32<FormatIQ4_NL>>,
     linear_quant<Blocks32<FormatMXFP4>>, linear_quant<Blocks256<FormatQ2_K>>,
     linear_quant<Blocks256<FormatQ3_K>>, linear_quant<Blocks256<FormatQ4_K>>,
     linear_quant<Blocks256<FormatQ5_K>>, linear_quant<Blocks256<FormatQ6_K>>,
     linear_quant<Blocks256<FormatIQ4_XS>>},
};

}  // namespace
}  // namespace quipu::backends

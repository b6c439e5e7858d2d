// What changes from step to step: plain structs handed to a compiled plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.hpp"

namespace quipu::graph {

/// Positions per page of the KV cache.
inline constexpr std::int64_t kPagePositions = 64;

/// Dtypes that keys and values may be stored in.
inline constexpr std::array kCacheDtypes{DType::f32,  DType::f16,  DType::bf16, DType::q8_0,  DType::q4_0,
                                         DType::q4_1, DType::q5_0, DType::q5_1, DType::iq4_nl};

/// One layer's part of the paged KV cache. Page p holds, for keys, at `k + p * k_page_bytes` (from one page
/// to the next, at least what is stored): [kv_heads][kPagePositions][head_dim] elements of `dtype` (each row
/// of head_dim encoded on its own); values likewise.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  std::size_t k_page_bytes = 0;
  std::size_t v_page_bytes = 0;
  DType k_dtype = DType::f16;
  DType v_dtype = DType::f16;
};

/// Consecutive rows of the batch that belong to one sequence, at consecutive positions.
struct SequenceRows {
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::int32_t first_position = 0;
  /// pages[i] holds positions [64 i, 64 i + 64); covers at least first_position + rows positions. Pages that
  /// this step writes belong to this sequence alone.
  std::span<const std::uint32_t> pages;
  /// A factor for each of the graph's adapters, [graph.adapters]; empty: the sequence uses none.
  std::span<const float> adapters{};
  /// Leading positions that an encoder filled (graph::Reach); 0: none.
  std::int32_t encoded = 0;
};

struct Step {
  std::span<const std::int32_t> tokens;        ///< [rows]
  std::span<const SequenceRows> sequences;     ///< cover all rows, in order, without gaps
  std::span<const KvLayer> kv;                 ///< [graph.kv_layers]
  std::span<const std::uint32_t> output_rows;  ///< rows whose output is wanted, ascending
  float* outputs = nullptr;                    ///< [output_rows.size(), width of graph.output]
  std::span<const std::int32_t> types = {};    ///< [rows] token types (graph::EmbedTypes); empty: all 0
};

}  // namespace quipu::graph

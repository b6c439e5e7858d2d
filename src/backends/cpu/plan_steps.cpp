#include "backends/cpu/plan_steps.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/sincos.hpp"

namespace quipu::backends::cpu {

KvType kv_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return KvType::f32;
    case DType::bf16:
      return KvType::bf16;
    case DType::q8_0:
      return KvType::q8_0;
    case DType::q4_0:
      return KvType::q4_0;
    case DType::q4_1:
      return KvType::q4_1;
    case DType::q5_0:
      return KvType::q5_0;
    case DType::q5_1:
      return KvType::q5_1;
    case DType::iq4_nl:
      return KvType::iq4_nl;
    default:
      return KvType::f16;
  }
}

namespace {

void store_row(const Kernels& k, DType dtype, const float* x, std::byte* to, std::size_t n) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(to, x, n * sizeof(float));
      break;
    case DType::f16:
      k.store_f16(x, reinterpret_cast<std::uint16_t*>(to), n);
      break;
    case DType::bf16:
      k.store_bf16(x, reinterpret_cast<std::uint16_t*>(to), n);
      break;
    default:
      info(dtype).encode(x, to, n);
      break;
  }
}

}  // namespace

Range row_share(const RunContext& c, const Cut& cut, std::size_t rows, int thread) {
  if (cut.kind == Cut::Kind::first) return thread == 0 ? Range{0, rows} : Range{0, 0};
  return c.share(rows, thread);
}

std::size_t QuantizedAt::bytes(std::size_t width, std::size_t rows, bool wide) {
  const std::size_t groups = width / 32;
  return align64(rows * quantized_stride(width)) + (wide ? rows * wide_stride(width) : 0) +
         5 * align64(rows * groups * 4) + 64;
}

QuantizedRows QuantizedAt::view(const RunContext& c, int thread, std::size_t width) const {
  const std::size_t groups = width / 32, plane = align64(max_rows * groups * 4);
  QuantizedRows v;
  v.width = width;
  v.stride = quantized_stride(width);
  std::byte* at = memory.at(c, thread);
  v.q = reinterpret_cast<std::int8_t*>(at);
  at += align64(max_rows * v.stride);
  if (wide && width % kSlab == 0) {
    v.wide = reinterpret_cast<std::int8_t*>(at);
    at += max_rows * wide_stride(width);
  }
  v.d = reinterpret_cast<float*>(at);
  v.fsum = reinterpret_cast<float*>(at + plane);
  v.sum32 = reinterpret_cast<std::int32_t*>(at + 2 * plane);
  v.sum16 = reinterpret_cast<std::int32_t*>(at + 3 * plane);
  return v;
}

void EmbedStep::run(const RunContext& c, int thread) {
  const Range r = row_share(c, cut, c.tokens, thread);
  const auto decode = info(weight.dtype).decode;
  const std::size_t bytes = weight.row_bytes();
  for (std::size_t t = r.begin; t < r.end; ++t) {
    const std::int32_t row = by == By::token         ? c.step->tokens[t]
                             : by == By::position    ? c.places[t].position
                             : c.step->types.empty() ? 0
                                                     : c.step->types[t];
    decode(weight.data + static_cast<std::size_t>(row) * bytes, out.row(c, t), out.width);
  }
}

void NormStep::run(const RunContext& c, int thread) {
  const std::size_t rows = c.rows(x.rows);
  const Range r = own ? Range{0, rows} : row_share(c, cut, rows, thread);
  QuantizedRows view;
  if (quantizes) view = stored_for(to.view(c, thread, x.width), rows, *k);
  for (std::size_t t = r.begin; t < r.end; ++t) {
    const float* from = x.row(c, t);
    float* y = own ? reinterpret_cast<float*>(own_out.at(c, thread)) : out.row(c, t);
    if (quantizes) {
      if (layer)
        k->layer_norm_quantize(from, weight.data, bias.data, floats ? y : nullptr, eps, view, t);
      else
        k->rms_norm_quantize(from, weight.data, floats ? y : nullptr, eps, view, t);
      continue;
    }
    for (std::size_t g = 0; g < x.width; g += group) {
      const std::size_t w = own_weights ? g : 0;
      if (layer)
        k->layer_norm(from + g, weight.data + w, bias.data != nullptr ? bias.data + w : nullptr, y + g, group,
                      eps);
      else
        k->rms_norm(from + g, weight.data + w, y + g, group, eps);
    }
  }
}

void QuantizeStep::run(const RunContext& c, int thread) {
  const std::size_t rows = c.rows(x.rows);
  const QuantizedRows view = stored_for(to.view(c, thread, x.width), rows, *k);
  const Range r = own ? Range{0, rows} : c.share(rows, thread);
  for (std::size_t t = r.begin; t < r.end; ++t)
    k->quantize(x_is_own ? reinterpret_cast<const float*>(own_x.at(c, thread)) : x.row(c, t), view, t);
}

void LinearStep::run(const RunContext& c, int thread) {
  const std::size_t rows = c.rows(x.rows);
  const Range r = columns(c, thread);
  if (rows == 0 || r.begin == r.end) return;
  QuantizedRows view;
  LinearArgs a;
  a.weight = row(0);
  if (next != nullptr) a.next = next->row(next->columns(c, thread).begin);
  a.row_bytes = weight.row_bytes();
  a.k = x.width;
  a.n = out.width;
  a.n_begin = r.begin;
  a.n_end = r.end;
  if (quantized) {
    view = stored_for(from.view(c, thread, x.width), rows, *k);
    a.x = &view;
  } else {
    a.xf = x_is_own ? reinterpret_cast<const float*>(own_x.at(c, thread)) : x.data(c);
  }
  a.rows = rows;
  a.y = out.data(c);
  a.bias = bias.data;
  a.residual = has_residual ? residual.data(c) : nullptr;
  a.scratch = work.at(c, thread);
  k->linear[slot](a);
}

void ElementwiseStep::run(const RunContext& c, int thread) {
  const Range r = c.share(out.width, thread, grain);
  const std::size_t n = r.end - r.begin, rows = c.rows(out.rows);
  if (n == 0) return;
  for (std::size_t t = 0; t < rows; ++t) {
    const float* pa = a.row(c, t) + r.begin;
    const float* pb = b.row(c, t) + (b.width == out.width ? r.begin : 0);
    float* y = out.row(c, t) + r.begin;
    switch (kind) {
      case Kind::glu:
        k->glu(activation, pa, pb, y, n, limit, shift);
        break;
      case Kind::activate:
        k->activate(activation, pa, y, n);
        break;
      case Kind::xielu:
        k->xielu(pa, xielu, y, n);
        break;
      case Kind::add:
        k->add(pa, pb, y, n);
        break;
      case Kind::mul:
        if (b.width == out.width)
          k->mul(pa, pb, y, n);
        else
          k->scale(pa, *pb, y, n);
        break;
      case Kind::scale:
        k->scale(pa, factor, y, n);
        break;
      case Kind::add_adapted:
        if (const float own = c.adapter_factor(out.rows, t, adapter); own != 0)
          k->add_scaled(pa, pb, own * factor, y, n);
        else
          std::memcpy(y, pa, n * sizeof(float));
        break;
      case Kind::add_vector:
        k->add(pa, vector.data + r.begin, y, n);
        break;
      case Kind::mul_vector:
        k->mul(pa, vector.data + r.begin, y, n);
        break;
    }
  }
}

void RopeTableStep::run(const RunContext& c, int thread) {
  const std::size_t pairs = inv_freq->size();
  const Range r = row_share(c, cut, c.tokens, thread);
  for (std::size_t t = r.begin; t < r.end; ++t) {
    float* to = reinterpret_cast<float*>(table.at(c, thread)) + t * 2 * pairs;
    for (std::size_t i = 0; i < pairs; ++i) {
      const SinCos s = sincos(static_cast<double>(c.places[t].position) * (*inv_freq)[i]);
      to[i] = static_cast<float>(s.cos * static_cast<double>(magnitude));
      to[pairs + i] = static_cast<float>(s.sin * static_cast<double>(magnitude));
    }
  }
}

void RopeStep::run(const RunContext& c, int thread) {
  const bool by_head = cut.kind == Cut::Kind::columns;
  const Range r = by_head ? Range{0, c.tokens} : row_share(c, cut, c.tokens, thread);
  const Range columns = by_head ? c.share(x.width, thread, head_dim) : Range{0, x.width};
  if (columns.begin == columns.end) return;
  for (std::size_t t = r.begin; t < r.end; ++t) {
    RopeArgs a;
    a.x = x.row(c, t) + columns.begin;
    a.y = out.row(c, t) + columns.begin;
    a.cos = reinterpret_cast<const float*>(table.at(c, thread)) + t * 2 * pairs;
    a.sin = a.cos + pairs;
    a.heads = (columns.end - columns.begin) / head_dim;
    a.head_dim = head_dim;
    a.pairs = pairs;
    a.first = first;
    a.neox = neox;
    k->rope(a);
  }
}

void StoreStep::run(const RunContext& c, int thread) {
  const graph::KvLayer& kv = c.step->kv[layer];
  const std::size_t k_bytes = row_bytes(kv.k_dtype, head_dim), v_bytes = row_bytes(kv.v_dtype, v_dim);
  const Range r = by_head ? Range{0, c.tokens} : c.share(c.tokens, thread);
  const Range heads = by_head ? c.share(kv_heads, thread) : Range{0, kv_heads};
  for (std::size_t t = r.begin; t < r.end; ++t) {
    const RowPlace place = c.places[t];
    const std::size_t position = static_cast<std::size_t>(place.position);
    const std::size_t page = c.step->sequences[place.sequence].pages[position / graph::kPagePositions];
    for (std::size_t h = heads.begin; h < heads.end; ++h) {
      const std::size_t slot = h * graph::kPagePositions + position % graph::kPagePositions;
      store_row(*k, kv.k_dtype, key.row(c, t) + h * head_dim, kv.k + page * kv.k_page_bytes + slot * k_bytes,
                head_dim);
      store_row(*k, kv.v_dtype, value.row(c, t) + h * v_dim, kv.v + page * kv.v_page_bytes + slot * v_bytes,
                v_dim);
    }
  }
}

AttentionArgs AttendStep::args(const RunContext& c, const graph::SequenceRows& s, std::size_t kv_head,
                               std::size_t first_head, std::size_t heads_of_it, int thread) const {
  const graph::KvLayer& kv = c.step->kv[layer];
  const std::size_t head = kv_head * (heads / kv_heads) + first_head;
  AttentionArgs a;
  a.q = q.row(c, s.first_row) + head * head_dim;
  a.q_stride = q.width;
  a.out = out.row(c, s.first_row) + head * v_dim;
  a.out_stride = out.width;
  a.tokens = s.rows;
  a.group = heads_of_it;
  a.first_position = s.first_position;
  a.head_dim = head_dim;
  a.v_dim = v_dim;
  a.k_row_bytes = row_bytes(kv.k_dtype, head_dim);
  a.v_row_bytes = row_bytes(kv.v_dtype, v_dim);
  a.k = kv.k + kv_head * graph::kPagePositions * a.k_row_bytes;
  a.v = kv.v + kv_head * graph::kPagePositions * a.v_row_bytes;
  a.k_page_bytes = kv.k_page_bytes;
  a.v_page_bytes = kv.v_page_bytes;
  a.k_type = kv_type(kv.k_dtype);
  a.v_type = kv_type(kv.v_dtype);
  a.pages = s.pages.data();
  a.scale = scale;
  a.soft_cap = soft_cap;
  a.window = window;
  a.sinks = sinks.data != nullptr ? sinks.data + head : nullptr;
  a.slopes = slopes.empty() ? nullptr : slopes.data() + head;
  a.biases = biases.empty() ? nullptr : biases.data() + head * (2 * static_cast<std::size_t>(bias_reach) + 1);
  a.bias_reach = bias_reach;
  a.run = chunk;
  if (reach == graph::Reach::encoded) a.end = s.encoded;
  if (reach == graph::Reach::decoded) a.begin = s.encoded;
  a.scratch = work.at(c, thread);
  return a;
}

void AttendStep::run(const RunContext& c, int thread) {
  if (single)
    run_single(c, thread);
  else
    run_units(c, thread);
}

/// Units of work: (sequence, block of query rows, key/value head), the long ones of a sequence first; threads
/// take the next one when they are free, which no result depends on.
void AttendStep::run_units(const RunContext& c, int thread) {
  std::uint32_t mine = next_unit->fetch_add(1, std::memory_order_relaxed);
  std::uint32_t unit = 0;
  for (const graph::SequenceRows& s : c.step->sequences) {
    const std::size_t blocks = (s.rows + query_tokens - 1) / query_tokens;
    const std::uint32_t units = static_cast<std::uint32_t>(blocks * kv_heads);
    while (mine < unit + units) {
      const std::size_t index = mine - unit, block = blocks - 1 - index / kv_heads;
      graph::SequenceRows part = s;
      part.first_row = s.first_row + static_cast<std::uint32_t>(block * query_tokens);
      part.first_position = s.first_position + static_cast<std::int32_t>(block * query_tokens);
      part.rows =
          static_cast<std::uint32_t>(std::min<std::size_t>(query_tokens, s.rows - block * query_tokens));
      AttentionArgs a = args(c, part, index % kv_heads, 0, heads / kv_heads, thread);
      if (!causal && reach == graph::Reach::all) a.end = std::int64_t{s.first_position} + s.rows;
      k->attention(a);
      mine = next_unit->fetch_add(1, std::memory_order_relaxed);
    }
    unit += units;
  }
}

std::pair<std::int64_t, std::int64_t> AttendStep::seen_by_single(const RunContext& c) const {
  const std::int64_t position = c.places[0].position;
  const std::int64_t encoded = c.step->sequences[c.places[0].sequence].encoded;
  if (reach == graph::Reach::encoded) return {0, encoded - 1};
  if (reach == graph::Reach::decoded) return {encoded, position};
  if (chunk > 0) return {position / chunk * chunk, position};
  return {window > 0 && position >= window ? position - window + 1 : 0, position};
}

std::size_t AttendStep::split_chunks(const RunContext& c) const {
  if (c.threads() == 1 || c.tokens == 0) return 1;
  const auto [lowest, last] = seen_by_single(c);
  const std::size_t chunks = static_cast<std::size_t>(last / 512 - lowest / 512 + 1);
  return chunks <= kMaxChunks ? chunks : 1;
}

void AttendStep::run_single(const RunContext& c, int thread) {
  const std::size_t chunks = split_chunks(c), group = heads / kv_heads;
  const graph::SequenceRows& s = c.step->sequences[c.places[0].sequence];
  const auto threads = static_cast<std::size_t>(c.threads());
  if (chunks == 1) {
    // Short: by key/value head, or by query head when those would not come out even.
    const bool by_head = kv_heads % threads != 0;
    const std::size_t units = by_head ? heads : kv_heads;
    for (std::uint32_t u; (u = next_unit->fetch_add(1, std::memory_order_relaxed)) < units;) {
      if (by_head)
        k->attention(args(c, s, u / group, u % group, 1, thread));
      else
        k->attention(args(c, s, u, 0, group, thread));
    }
    return;
  }
  const std::int64_t lowest = seen_by_single(c).first;
  const std::size_t floats = partial_floats(v_dim);
  for (std::uint32_t u; (u = next_unit->fetch_add(1, std::memory_order_relaxed)) < kv_heads * chunks;) {
    const std::size_t head = u / chunks, chunk = u % chunks;
    AttentionArgs a = args(c, s, head, 0, group, thread);
    a.chunk_begin = lowest / 512 + static_cast<std::int64_t>(chunk);
    a.chunk_end = a.chunk_begin + 1;
    // [kv head][chunk][head of the group]
    a.partial = reinterpret_cast<float*>(partial.at(c, thread)) + (head * chunks + chunk) * group * floats;
    k->attention(a);
  }
}

void MergeStep::run(const RunContext& c, int thread) {
  const std::size_t chunks = attend->split_chunks(c), group = attend->heads / attend->kv_heads,
                    floats = AttendStep::partial_floats(attend->v_dim);
  const Range r = c.share(attend->heads, thread);
  for (std::size_t h = r.begin; h < r.end; ++h) {
    const float* states = reinterpret_cast<const float*>(attend->partial.at(c, thread)) +
                          (h / group * chunks * group + h % group) * floats;
    k->attention_merge(states, chunks, group * floats, attend->v_dim,
                       attend->sinks.data != nullptr ? attend->sinks.data + h : nullptr,
                       attend->out.row(c, 0) + h * attend->v_dim);
  }
}

void TemperatureStep::run(const RunContext& c, int thread) {
  const Range r = row_share(c, cut, c.tokens, thread);
  for (std::size_t t = r.begin; t < r.end; ++t)
    *out.row(c, t) =
        static_cast<float>(1 + static_cast<double>(scale) *
                                   std::log1p(static_cast<double>((c.places[t].position + offset) / length)));
}

void TopKStep::run(const RunContext& c, int thread) {
  const Range r = row_share(c, cut, c.rows(out.rows), thread);
  for (std::size_t t = r.begin; t < r.end; ++t)
    k->gaussian_top_k(x.row(c, t), deviations, out.row(c, t), out.width);
}

void MixStep::run(const RunContext& c, int thread) {
  const std::size_t part = x.width / parts, to = out.width / part;
  const Range r = c.share(part, thread, 16);
  if (r.begin == r.end) return;
  for (std::size_t t = 0; t < c.rows(out.rows); ++t)
    for (std::size_t i = 0; i < to; ++i)
      k->weighted_sum(x.row(c, t) + r.begin, part, weights.row(c, t) + i * parts, parts,
                      out.row(c, t) + i * part + r.begin, r.end - r.begin);
}

void CopyStep::run(const RunContext& c, int thread) {
  const Range r = row_share(c, cut, c.rows(out.rows), thread);
  for (std::size_t t = r.begin; t < r.end; ++t) {
    float* to = out.row(c, t);
    for (std::size_t g = 0; g < groups; ++g)
      for (const Run& run : runs) {
        std::memcpy(to, run.from.row(c, t) + g * run.part + run.first, run.count * sizeof(float));
        to += run.count;
      }
  }
}

void GatherStep::run(const RunContext& c, int thread) {
  const Range r = row_share(c, cut, c.outputs, thread);
  for (std::size_t t = r.begin; t < r.end; ++t)
    std::memcpy(out.row(c, t), x.row(c, c.step->output_rows[t]), out.width * sizeof(float));
}

void PoolStep::run(const RunContext& c, int thread) {
  const Range r = row_share(c, cut, c.outputs, thread);
  for (std::size_t t = r.begin; t < r.end; ++t) {
    const std::size_t last = c.step->output_rows[t];
    const std::size_t first = c.step->sequences[c.places[last].sequence].first_row;
    float* to = out.row(c, t);
    std::memcpy(to, x.row(c, first), out.width * sizeof(float));
    if (kind == graph::Pool::Kind::first) continue;
    for (std::size_t row = first + 1; row <= last; ++row) k->add(to, x.row(c, row), to, out.width);
    k->scale(to, 1.0f / static_cast<float>(last - first + 1), to, out.width);
  }
}

}  // namespace quipu::backends::cpu

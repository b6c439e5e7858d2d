#include "backends/cpu/expert_steps.hpp"

#include <algorithm>
#include <cstring>

namespace quipu::backends::cpu {
namespace {

/// Rows of `all` from `row` on.
QuantizedRows rows_from(const QuantizedRows& all, std::size_t row) {
  const std::size_t groups = all.width / 32;
  QuantizedRows part = all;
  part.q += row * all.stride;
  if (all.wide != nullptr) part.wide += row * wide_stride(all.width);
  part.d += row * slabs(all.width);
  part.fsum += row * groups;
  part.sum32 += row * groups;
  part.sum16 += row * groups * 2;
  return part;
}

void copy_row(const QuantizedRows& rows, std::size_t from, std::size_t to) {
  const QuantizedRows a = rows_from(rows, from), b = rows_from(rows, to);
  const std::size_t groups = rows.width / 32;
  std::memcpy(b.q, a.q, rows.width * 2);
  if (rows.wide != nullptr) std::memcpy(b.wide, a.wide, wide_stride(rows.width));
  std::memcpy(b.d, a.d, slabs(rows.width) * 4);
  std::memcpy(b.fsum, a.fsum, groups * 4);
  std::memcpy(b.sum32, a.sum32, groups * 4);
  std::memcpy(b.sum16, a.sum16, groups * 8);
}

}  // namespace

void RouteStep::run(const RunContext& c, int thread) {
  const Range r = row_share(c, cut, c.rows(logits.rows), thread);
  RouteArgs a = settings;
  a.bias = bias.data;
  a.expert_scale = expert_scale.data;
  a.work = reinterpret_cast<float*>(work.at(c, thread));
  for (std::size_t t = r.begin; t < r.end; ++t) {
    a.logits = logits.row(c, t);
    a.out = out.row(c, t);
    k->route(a);
  }
}

void GroupStep::run(const RunContext& c, int thread) {
  if (thread != 0) return;
  const std::size_t rows = c.rows(route.rows);
  std::uint32_t *begin = to.begin(c), *order = to.order(c), *place = to.place(c);
  const auto group_of = [&](std::size_t row, std::size_t j) {
    return heads ? j : static_cast<std::size_t>(route.row(c, row)[j]);
  };
  std::memset(begin, 0, (groups + 1) * sizeof(std::uint32_t));
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t j = 0; j < used; ++j) ++begin[group_of(row, j) + 1];
  for (std::size_t g = 0; g < groups; ++g) begin[g + 1] += begin[g];
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t j = 0; j < used; ++j) {
      const auto pair = static_cast<std::uint32_t>(row * used + j);
      place[pair] = begin[group_of(row, j)]++;
      order[place[pair]] = pair;
    }
  // Each beginning now stands where the next group's was.
  for (std::size_t g = groups; g > 0; --g) begin[g] = begin[g - 1];
  begin[0] = 0;
}

void QuantizePairsStep::run(const RunContext& c, int thread) {
  const QuantizedRows all = to.view(c, thread, width);
  const std::uint32_t *begin = grouping.begin(c), *place = grouping.place(c);
  // The rows of an expert are one linear's: their number decides how they are stored.
  const auto view = [&](std::uint32_t at) {
    const std::uint32_t* next = std::upper_bound(begin, begin + grouping.groups + 1, at);
    return stored_for(all, next[0] - next[-1], *k);
  };
  const auto quantize = [&](const float* from, std::uint32_t at) { k->quantize(from, view(at), at); };
  const std::size_t rows = c.rows(x.rows);
  if (x.width == width) {
    const Range r = c.share(rows, thread);
    for (std::size_t t = r.begin; t < r.end; ++t) {
      quantize(x.row(c, t), place[t * used]);
      for (std::size_t j = 1; j < used; ++j) {
        const std::uint32_t at = place[t * used + j], done = place[t * used + j - 1];
        const QuantizedRows as = view(at), is = view(done);
        if (as.words == is.words && as.wide == is.wide)
          copy_row(as, done, at);
        else
          quantize(x.row(c, t), at);
      }
    }
    return;
  }
  const Range r = c.share(rows * used, thread);
  for (std::size_t pair = r.begin; pair < r.end; ++pair) quantize(x.data(c) + pair * width, place[pair]);
}

void ExpertsLinearStep::run(const RunContext& c, int thread) {
  const auto n = static_cast<std::size_t>(weight.shape[1]);
  const Range r = columns(c, thread);
  if (r.begin == r.end) return;
  const std::uint32_t* begin = grouping.begin(c);
  LinearArgs a;
  a.row_bytes = weight.row_bytes();
  a.k = static_cast<std::size_t>(weight.width());
  a.n = n;
  a.n_begin = r.begin;
  a.n_end = r.end;
  a.y = out.data(c);
  a.scratch = work.at(c, thread);
  a.map_share = x.width == a.k ? static_cast<std::uint32_t>(used) : 1;
  a.xf = x.data(c);
  QuantizedRows all, part;
  if (quantized) {
    all = from.view(c, thread, a.k);
    a.x = &part;
  }
  const auto experts = static_cast<std::size_t>(weight.shape[2]);
  const auto matrix = [&](std::size_t g) {
    return reinterpret_cast<const std::uint8_t*>(weight.data) + g * n * a.row_bytes;
  };
  for (std::size_t g = 0; g < experts; ++g) {
    a.rows = begin[g + 1] - begin[g];
    if (a.rows == 0) continue;
    std::size_t following = g + 1;
    while (following < experts && begin[following + 1] == begin[following]) ++following;
    a.weight = matrix(g);
    a.next = following < experts ? matrix(following) + a.n_begin * a.row_bytes : nullptr;
    a.bias = bias.data != nullptr ? bias.data + g * n : nullptr;
    a.map = grouping.order(c) + begin[g];
    if (quantized) part = stored_for(rows_from(all, begin[g]), a.rows, *k);
    k->linear[slot](a);
  }
}

void CombineStep::run(const RunContext& c, int thread) {
  const Range r = c.share(out.width, thread, grain);
  if (r.begin == r.end) return;
  for (std::size_t t = 0; t < c.rows(out.rows); ++t)
    k->weighted_sum(x.row(c, t) + r.begin, out.width, route.row(c, t) + used, used, out.row(c, t) + r.begin,
                    r.end - r.begin);
}

}  // namespace quipu::backends::cpu

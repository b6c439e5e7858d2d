// Speed of linear for every weight dtype, and of the experts of a layer: bytes of weights a second for 1 to
// 32 rows (decode, sequences together), operations a second for 512 (prefill), each with its share of a peak
// measured in the same run.
//
//   ops_bench [--benchmark_filter=Q4_K] …      QUIPU_THREADS=n and QUIPU_ISA=avx2 choose threads and kernels
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "core/philox.hpp"
#include "core/threads.hpp"
#include "peak.hpp"
#include "tensor/dtype.hpp"

namespace quipu {
namespace {

constexpr std::int64_t kWidth = 2048, kColumns = 2048;
/// Weights that one run walks through when memory is what counts: well beyond the caches.
constexpr std::size_t kStreamedBytes = std::size_t{384} << 20;

struct Peaks {
  double bytes_per_second, operations_per_second;
};

std::vector<float> random_floats(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(philox_uniform(1, i) - 0.5);
  return values;
}

/// `bytes` of one dtype: 64 encoded rows, over and over.
std::vector<std::byte> weights(DType dtype, std::size_t bytes) {
  const std::size_t chunk = row_bytes(dtype, kWidth) * 64;
  std::vector<std::byte> data(bytes);
  const std::vector<float> values = random_floats(kWidth * 64);
  info(dtype).encode(values.data(), data.data(), values.size());
  for (std::size_t at = chunk; at < bytes; at += chunk)
    std::copy_n(data.begin(), std::min(chunk, bytes - at), data.begin() + static_cast<std::ptrdiff_t>(at));
  return data;
}

void linear(benchmark::State& state, DType dtype, std::int64_t rows,
            const std::shared_ptr<backends::Backend>& cpu, Peaks peaks) {
  const std::size_t matrix_bytes = row_bytes(dtype, kWidth) * kColumns;
  const std::size_t matrices = rows >= 512 ? 1 : (kStreamedBytes + matrix_bytes - 1) / matrix_bytes;
  const std::vector<std::byte> data = weights(dtype, matrices * matrix_bytes);
  const std::vector<float> table = random_floats(static_cast<std::size_t>(rows * kWidth));

  graph::Builder b;
  const graph::Value x = b.at("x").gather_outputs(
      b.embed({"x", DType::f32, {kWidth, rows, 1, 1}, reinterpret_cast<const std::byte*>(table.data())}));
  graph::Value y;
  for (std::size_t i = 0; i < matrices; ++i)
    y = b.at("linear").linear(x, {"w", dtype, {kWidth, kColumns, 1, 1}, data.data() + i * matrix_bytes});
  backends::Program program(b.finish(y), {&cpu, 1}, rows, rows);

  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> output_rows;
  for (std::int32_t t = 0; t < rows; ++t) {
    tokens.push_back(t);
    output_rows.push_back(static_cast<std::uint32_t>(t));
  }
  const graph::SequenceRows sequence{0, static_cast<std::uint32_t>(rows), 0, {}};
  std::vector<float> outputs(static_cast<std::size_t>(rows * kColumns));
  graph::Step step;
  step.tokens = tokens;
  step.sequences = {&sequence, 1};
  step.output_rows = output_rows;
  step.outputs = outputs.data();
  program.run(step);

  for (auto _ : state) program.run(step);
  const auto runs = static_cast<double>(state.iterations());
  const auto rate = benchmark::Counter::kIsRate;
  if (rows >= 512) {
    const double operations = 2.0 * static_cast<double>(rows) * kWidth * kColumns * runs;
    state.counters["GOPS"] = benchmark::Counter(operations / 1e9, rate);
    state.counters["of_int8_peak"] = benchmark::Counter(operations / peaks.operations_per_second, rate);
  } else {
    const double bytes = static_cast<double>(matrices * matrix_bytes) * runs;
    state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, rate);
    state.counters["of_read_peak"] = benchmark::Counter(bytes / peaks.bytes_per_second, rate);
  }
}

/// The shape of a layer of Qwen3-30B-A3B, with half its experts: 8 of 64, a matrix of 2048 by 768 each.
constexpr std::int64_t kExperts = 64, kUsed = 8, kInner = 768;

/// Experts that at least one of the rows chooses.
std::size_t chosen_experts(const float* logits, std::int64_t rows) {
  std::vector<bool> chosen(kExperts, false);
  for (std::int64_t t = 0; t < rows; ++t) {
    std::vector<std::size_t> order(kExperts);
    for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
    const float* row = logits + t * kExperts;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
    for (std::size_t j = 0; j < kUsed; ++j) chosen[order[j]] = true;
  }
  return static_cast<std::size_t>(std::count(chosen.begin(), chosen.end(), true));
}

void experts(benchmark::State& state, DType dtype, std::int64_t rows,
             const std::shared_ptr<backends::Backend>& cpu, Peaks peaks) {
  const std::size_t expert_bytes = row_bytes(dtype, kWidth) * kInner, layer_bytes = expert_bytes * kExperts;
  const std::size_t layers = rows >= 512 ? 1 : (kStreamedBytes + layer_bytes - 1) / layer_bytes;
  const std::vector<std::byte> data = weights(dtype, layers * layer_bytes);
  // Runs take turns at the rows of the tables, so that other experts are chosen each time.
  const std::int64_t turns = rows >= 512 ? 1 : 16, table_rows = rows * turns;
  const std::vector<float> x_table = random_floats(static_cast<std::size_t>(table_rows * kWidth));
  const std::vector<float> logits = random_floats(static_cast<std::size_t>(table_rows * kExperts) * layers);

  graph::Builder b;
  const auto input = [&](const float* table, std::int64_t width) {
    return b.gather_outputs(
        b.embed({"x", DType::f32, {width, table_rows, 1, 1}, reinterpret_cast<const std::byte*>(table)}));
  };
  b.at("x");
  const graph::Value x = input(x_table.data(), kWidth);
  graph::Value y;
  for (std::size_t i = 0; i < layers; ++i) {
    graph::MoeRoute route;
    route.logits = input(logits.data() + i * static_cast<std::size_t>(table_rows * kExperts), kExperts);
    route.used = kUsed;
    y = b.at("experts").moe_linear(
        x, b.moe_route(route), {"w", dtype, {kWidth, kInner, kExperts, 1}, data.data() + i * layer_bytes});
  }
  backends::Program program(b.finish(y), {&cpu, 1}, rows, rows);

  std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
  std::vector<std::uint32_t> output_rows;
  for (std::uint32_t t = 0; t < rows; ++t) output_rows.push_back(t);
  const graph::SequenceRows sequence{0, static_cast<std::uint32_t>(rows), 0, {}};
  std::vector<float> outputs(static_cast<std::size_t>(rows * kUsed * kInner));
  graph::Step step;
  step.tokens = tokens;
  step.sequences = {&sequence, 1};
  step.output_rows = output_rows;
  step.outputs = outputs.data();
  std::int64_t turn = 0;
  double bytes = 0, operations = 0;
  const auto run_turn = [&] {
    for (std::size_t t = 0; t < tokens.size(); ++t)
      tokens[t] = static_cast<std::int32_t>(turn * rows + static_cast<std::int64_t>(t));
    program.run(step);
  };
  run_turn();
  for (auto _ : state) {
    run_turn();
    state.PauseTiming();
    for (std::size_t i = 0; i < layers; ++i)
      bytes += static_cast<double>(
          expert_bytes *
          chosen_experts(logits.data() + (static_cast<std::int64_t>(i) * table_rows + turn * rows) * kExperts,
                         rows));
    operations += 2.0 * static_cast<double>(layers) * static_cast<double>(rows * kUsed) * kWidth * kInner;
    turn = (turn + 1) % turns;
    state.ResumeTiming();
  }
  const auto rate = benchmark::Counter::kIsRate;
  if (rows >= 512) {
    state.counters["GOPS"] = benchmark::Counter(operations / 1e9, rate);
    state.counters["of_int8_peak"] = benchmark::Counter(operations / peaks.operations_per_second, rate);
  } else {
    state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, rate);
    state.counters["of_read_peak"] = benchmark::Counter(bytes / peaks.bytes_per_second, rate);
  }
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  const char* wanted = std::getenv("QUIPU_THREADS");
  const int threads = wanted != nullptr ? std::max(1, std::atoi(wanted)) : default_threads().count;
  backends::CpuOptions options;
  options.threads = std::make_shared<ThreadPool>(threads);
  const std::shared_ptr<backends::Backend> cpu = backends::make_cpu_backend(std::move(options));
  const Peaks peaks{app::measure_read_bandwidth(threads), app::measure_int8_peak(threads)};
  fmt::print("{}; read peak {:.1f} GB/s, int8 peak {:.0f} GOPS\n", cpu->devices()[0].description,
             peaks.bytes_per_second / 1e9, peaks.operations_per_second / 1e9);
  for (const DTypeInfo& dtype : all_dtypes()) {
    if (dtype.encode == nullptr || dtype.decode == nullptr) continue;
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 512})
      benchmark::RegisterBenchmark(
          fmt::format("linear/{}/rows:{}", dtype.name, rows).c_str(),
          [=, kind = dtype.dtype](benchmark::State& state) { linear(state, kind, rows, cpu, peaks); })
          ->UseRealTime()
          ->MinTime(0.3)
          ->Unit(benchmark::kMillisecond);
  }
  for (const DType dtype : {DType::q4_0, DType::q4_k, DType::q6_k, DType::q8_0, DType::mxfp4, DType::bf16})
    for (const std::int64_t rows : {1, 8, 512})
      benchmark::RegisterBenchmark(fmt::format("experts/{}/rows:{}", to_string(dtype), rows).c_str(),
                                   [=](benchmark::State& state) { experts(state, dtype, rows, cpu, peaks); })
          ->UseRealTime()
          ->MinTime(0.3)
          ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace quipu

int main(int argc, char** argv) { return quipu::run(argc, argv); }

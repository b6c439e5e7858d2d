// What the machine can do at best, measured: the yardstick of `quipu bench --peak`.
#pragma once

namespace quipu::app {

/// Best read bandwidth of `threads` threads over memory well beyond the caches, in bytes per second.
double measure_read_bandwidth(int threads);

/// Best rate of 8-bit integer multiply-adds of `threads` threads, in operations per second (a multiply and an
/// add are two), with the widest instructions this processor has (AMX tiles, VNNI, or AVX2/SSE multiply-add),
/// data in registers.
double measure_int8_peak(int threads);

/// The same of float multiply-adds; with `bf16` on AMX of its products of bfloat16.
double measure_float_peak(int threads, bool bf16);

}  // namespace quipu::app

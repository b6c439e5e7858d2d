// Weights may end at the last byte of a mapped file: the kernels must not read a byte behind them, nor
// before.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <vector>

#include "backends/cpu/kernels.hpp"
#include "core/cpu_features.hpp"
#include "tensor/dtype.hpp"

namespace quipu::backends {
namespace {

/// `bytes` that end where a page without access begins (`at_end`), or begin where one ends.
class Guarded {
 public:
  Guarded(std::size_t bytes, bool at_end) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t inner = (bytes + page - 1) / page * page;
    total_ = inner + 2 * page;
    void* p = ::mmap(nullptr, total_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(p);
    if (::mprotect(base_ + page, inner, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    data_ = base_ + page + (at_end ? inner - bytes : 0);
  }
  ~Guarded() { ::munmap(base_, total_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte *base_ = nullptr, *data_ = nullptr;
  std::size_t total_ = 0;
};

std::vector<const Kernels*> tables() {
  std::vector<const Kernels*> all;
  for (const Isa isa : available_isas()) all.push_back(&kernels_for(isa));
  return all;
}

TEST(CpuBounds, LinearReadsNoByteOutsideTheWeightsAndWritesNoneOutsideItsOutputsAndScratch) {
  for (const DTypeInfo& type : all_dtypes()) {
    const int slot = weight_slot(static_cast<std::uint32_t>(type.dtype));
    if (slot < 0) continue;
    const std::vector<std::size_t> widths = type.block_size == 256  ? std::vector<std::size_t>{512}
                                            : type.block_size == 32 ? std::vector<std::size_t>{96}
                                                                    : std::vector<std::size_t>{45, 1101};
    for (const std::size_t k : widths)
      for (const std::size_t n : {1, 5, 16, 37})
        for (const std::size_t rows : {1, 2, 7, 33, 130})
          for (const bool at_end : {true, false}) {
            const std::size_t bytes = row_bytes(type.dtype, k);
            const Guarded weight(bytes * n, at_end);
            std::memset(weight.data(), 0x11, bytes * n);
            const Guarded y(rows * n * sizeof(float), at_end);
            const Guarded x(rows * k * sizeof(float), at_end);
            auto* xf = reinterpret_cast<float*>(x.data());
            for (std::size_t i = 0; i < rows * k; ++i) xf[i] = static_cast<float>(i % 13) - 6.0F;
            for (const Kernels* table : tables()) {
              const std::size_t groups = k / 32;
              QuantizedRows q;
              q.width = k;
              q.stride = quantized_stride(k);
              std::vector<std::int8_t> planes(rows * q.stride + 64), wide(rows * wide_stride(k));
              std::vector<float> d(rows * slabs(k) + 1), fsum(rows * groups + 1);
              std::vector<std::int32_t> sum32(rows * groups + 1), sum16(2 * rows * groups + 1);
              q.q = planes.data();
              if (k % kSlab == 0) q.wide = wide.data();
              q = stored_for(q, rows, *table);
              q.d = d.data();
              q.fsum = fsum.data();
              q.sum32 = sum32.data();
              q.sum16 = sum16.data();
              if (type.block_size > 1)
                for (std::size_t r = 0; r < rows; ++r) table->quantize(xf + r * k, q, r);
              const Guarded work((slot_scratch(*table, slot, k) + 63) / 64 * 64, at_end);
              LinearArgs a;
              a.weight = reinterpret_cast<const std::uint8_t*>(weight.data());
              a.row_bytes = bytes;
              a.k = k;
              a.n_end = a.n = n;
              a.x = &q;
              a.xf = xf;
              a.rows = rows;
              a.y = reinterpret_cast<float*>(y.data());
              a.scratch = work.data();
              table->linear[slot](a);  // dies of SIGSEGV where it strays
            }
          }
  }
  SUCCEED();
}

}  // namespace
}  // namespace quipu::backends

// A tile configuration on its way through the processor. In a file of its own, with the flags of AMX, and
// with nothing that others could share.
#include "backends/tile_configuration.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include "backends/cpu/tiles.inl"

namespace quipu::test {

// A local, of which the compiler knows every use: the shape in which stores before `load_config` get lost.
void configure_and_store(std::uint8_t rows, std::uint16_t column_bytes, std::uint8_t* stored) {
  backends::TileConfig config;
  config.rows[3] = rows;
  config.column_bytes[3] = column_bytes;
  backends::load_config(config);
  asm volatile("sttilecfg %0" : "=m"(*reinterpret_cast<std::uint8_t(*)[64]>(stored)));
  _tile_release();
}

}  // namespace quipu::test
#endif

// See tile_configuration.cpp.
#pragma once

#include <cstdint>

namespace quipu::test {

/// Configures tile 3 alone, and gives back the 64 bytes that the processor then has.
void configure_and_store(std::uint8_t rows, std::uint16_t column_bytes, std::uint8_t* stored);

}  // namespace quipu::test

// Reads the input up to a NUL as a JSON Schema, then the rest as a text: any exception but an `Error`, a mask
// that disagrees with the automaton, and a place without any way on are findings.
#include <cstddef>
#include <cstdint>

#include "fuzz_constraint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using quipu::text::grammar::Grammar;
  quipu::text::grammar::SchemaOptions options;
  options.declared_order = size % 2 == 1;
  quipu::test::fuzz_constraint(
      data, size, [&](std::string_view source) { return Grammar::from_json_schema(source, options); });
  return 0;
}

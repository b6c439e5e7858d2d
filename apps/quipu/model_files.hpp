// From what a user calls a model to a file on this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "catalogue.hpp"
#include "part_file.hpp"

namespace quipu::app {

struct WantedFile {
  std::filesystem::path destination;
  std::uint64_t bytes = 0;  ///< 0: unknown
  std::string sha256;       ///< empty: unknown
  std::string label;        ///< for messages
};

/// Makes sure that the file is there, whole: present with the right size, or filled by `fill` into the part
/// file, checked against size and digest and renamed. A part that an earlier attempt left and that turns out
/// wrong is thrown away once and filled anew. Throws what `fill` throws, and `Error` (checksum).
void fetch_file(const WantedFile& wanted, const std::function<void(PartFile&)>& fill);

/// The entry's file in the cache, downloaded from its sources in order when it is not there. Throws `Error`:
/// when no source works, one that gives each reason.
std::filesystem::path fetch_entry(const CatalogueEntry& entry);

/// True when the entry's file is in the cache with the right size.
bool is_cached(const CatalogueEntry& entry);

}  // namespace quipu::app

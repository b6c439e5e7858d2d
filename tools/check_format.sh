#!/bin/sh
# check_format.sh [CLANG_FORMAT]: fails when a C or C++ file is not as .clang-format wants it.
# Other versions than 14 (Debian 12) lay out some lines differently; they are not asked: exit 77, a skip.
set -eu
cd "$(dirname "$0")/.."
format=${1:-clang-format}
wanted=14
version=$("$format" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
if [ "$version" != "$wanted" ]; then
  echo "SKIPPED: clang-format is version $version; the layout is that of version $wanted"
  exit 77
fi
for folder in src apps include tests bench; do
  [ -d "$folder" ] || continue
  find "$folder" -name build -prune -o \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.inl' \) -print0
done | xargs -0 "$format" --dry-run -Werror

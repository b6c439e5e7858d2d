#!/usr/bin/env python3
"""Fails when webui/dist was not built from the sources beside it. Needs no Node; `npm run check` builds and compares."""
import hashlib
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent
listed = {}
for line in (root / "dist/sources.sha256").read_text().splitlines():
    digest, name = line.split("  ", 1)
    listed[name] = digest
found = {p.relative_to(root).as_posix() for p in (root / "src").rglob("*") if p.is_file()}
wrong = sorted(found - listed.keys())
for name, digest in listed.items():
    path = root / name
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        wrong.append(name)
if len(listed) < 10 or "dist/index.html" not in listed:
    wrong.append("dist/sources.sha256 itself")
if wrong:
    sys.exit("webui/dist is stale, run `npm ci && npm run build` in webui: changed since it was built: " + ", ".join(wrong))
print(f"webui/dist was built from the {len(listed) - 1} files beside it")

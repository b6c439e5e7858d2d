#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not: `check_layers.py [ROOT]`.

- a file below src/FOLDER includes only headers of FOLDER and of the folders before it in LAYERS
- a header below include/ includes only standard headers and its neighbours
- a source or page has at most LONGEST lines
- no leftovers: notes to self, paths of somebody's machine

Prints one line for each breach, path:line first, and exits 1 when there is any.
"""
import pathlib
import re
import sys

LAYERS = ["core", "tensor", "formats", "text", "convert", "graph", "backends", "models", "memory", "engine", "api", "server"]
USES_PUBLIC_HEADERS = {"api", "server"}
LONGEST = 600

FOLDERS = ["src", "include", "apps", "tests", "bench", "tools", "scripts", "cmake", "docs", "python", "webui", ".ci"]
SKIPPED = {"goldens", "build", "__pycache__", "node_modules", ".cache"}
CODE = {".cpp", ".hpp", ".c", ".h", ".cu", ".comp", ".inc"}
TEXT = CODE | {".py", ".sh", ".cmake", ".md", ".txt", ".ts", ".svelte", ".toml", ".yml", ".yaml", ""}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# Written in pieces, so that this file passes its own check.
NOTES = re.compile("TO" "DO|FIX" "ME")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:wo" r"rk|ho" r"me|ro" r"ot)/")
TEMPORARY_PATHS = re.compile(r"(?<![\w.])/t" r"mp/")


def project_files(root):
    for name in FOLDERS:
        for path in sorted((root / name).rglob("*")):
            relative = path.relative_to(root)
            folders = relative.parts[:-1]
            is_test_data = folders[:2] == ("tests", "goldens") or folders[:3] == ("tests", "fuzz", "corpus")
            skipped = any(part in SKIPPED - {"goldens"} for part in folders) or is_test_data
            if path.is_file() and not skipped and path.suffix in TEXT:
                yield relative
    for path in sorted(root.iterdir()):
        if path.is_file() and path.suffix in TEXT:
            yield path.relative_to(root)


def include_breach(relative, header):
    """Why `relative` may not include `header`; None when it may."""
    parts = relative.parts
    top = header.split("/")[0]
    if parts[0] == "include":
        return None if top == "quipu" else f'a public header includes "{header}"; expected quipu/ only'
    if parts[0] != "src" or len(parts) < 3:
        return None
    folder = parts[1]
    if folder not in LAYERS:
        return f"src/{folder} is not in the list of layers: {', '.join(LAYERS)}"
    if top == "quipu":
        # The exception type is public and uses nothing of ours.
        allowed = folder in USES_PUBLIC_HEADERS or header == "quipu/error.hpp"
        return None if allowed else f'src/{folder} includes the public header "{header}"'
    if top not in LAYERS:
        return f'"{header}" does not start with a folder of src/'
    if LAYERS.index(top) > LAYERS.index(folder):
        return f'src/{folder} includes "{header}", but src/{top} is built on it'
    return None


def breaches(root, relative):
    try:
        lines = (root / relative).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        yield 1, "is not UTF-8 text"
        return
    if len(lines) > LONGEST:
        yield LONGEST + 1, f"has {len(lines)} lines; expected at most {LONGEST}: split it by idea"
    for number, line in enumerate(lines, 1):
        if relative.suffix in CODE and (match := INCLUDE.match(line)):
            if reason := include_breach(relative, match[1]):
                yield number, reason
        if match := NOTES.search(line):
            yield number, f"leaves a {match[0]} behind"
        if match := MACHINE_PATHS.search(line):
            yield number, f"names a path of one machine: {match[0]}"
        if relative.parts[0] != "tests" and (match := TEMPORARY_PATHS.search(line)):
            yield number, f"names {match[0]}; expected the system's temporary folder"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    files = list(project_files(root))
    count = 0
    for relative in files:
        for number, reason in breaches(root, relative):
            print(f"{relative}:{number}: {reason}")
            count += 1
    print(f"{len(files)} files checked, {count} breaches")
    return 1 if count or not files else 0


if __name__ == "__main__":
    sys.exit(main())

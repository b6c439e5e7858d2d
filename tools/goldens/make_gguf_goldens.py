#!/usr/bin/env python3
"""Writes tests/goldens/formats with the `gguf` package (PyPI, 0.19.0): files that quipu must read, and must
write again byte for byte.

    pip install gguf==0.19.0 && python3 tools/goldens/make_gguf_goldens.py
"""
import json
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType as T

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "formats"

SCALARS = [
    ("t.u8", 250, T.UINT8), ("t.i8", -100, T.INT8), ("t.u16", 65000, T.UINT16), ("t.i16", -30000, T.INT16),
    ("t.u32", 4000000000, T.UINT32), ("t.i32", -2000000000, T.INT32), ("t.f32", 0.1, T.FLOAT32),
    ("t.bool", True, T.BOOL), ("t.no", False, T.BOOL), ("t.string", "z\u00fcrich \u25c6", T.STRING),
    ("t.u64", 2**64 - 1, T.UINT64), ("t.i64", -(2**63), T.INT64), ("t.f64", 0.1, T.FLOAT64),
]
ARRAYS = [
    ("a.u8", [0, 255], T.UINT8), ("a.i8", [-128, 127], T.INT8), ("a.u16", [0, 65535], T.UINT16),
    ("a.i16", [-32768, 32767], T.INT16), ("a.u32", [0, 2**32 - 1], T.UINT32),
    ("a.i32", [-(2**31), 2**31 - 1], T.INT32), ("a.f32", [0.5, -1.25, 3.0], T.FLOAT32),
    ("a.bool", [True, False, True], T.BOOL), ("a.string", ["", "a", "\u2581the"], T.STRING),
    ("a.u64", [0, 2**64 - 1], T.UINT64), ("a.i64", [-(2**63), 2**63 - 1], T.INT64),
    ("a.f64", [1e300, -0.1], T.FLOAT64),
]


def add_metadata(writer):
    writer.add_name("golden")
    for key, value, kind in SCALARS:
        writer.add_key_value(key, value, kind)
    for key, values, kind in ARRAYS:
        writer.add_key_value(key, values, T.ARRAY, kind)


def tensors():
    """Name, array (bytes for quantised types), type."""
    rng = np.random.default_rng(7)
    yield "f32", rng.standard_normal((3, 5), dtype=np.float32), None
    yield "f16", rng.standard_normal((2, 7)).astype(np.float16), None
    yield "f64", rng.standard_normal(3), None
    yield "i32", np.arange(6, dtype=np.int32).reshape(2, 3), None
    yield "four", np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5), None
    for kind in (Q.BF16, Q.Q4_0, Q.Q8_0, Q.Q6_K, Q.IQ4_XS, Q.MXFP4):
        block, size = gguf.GGML_QUANT_SIZES[kind]
        rows, blocks = 3, (5 if block == 1 else 2)
        yield kind.name.lower(), rng.integers(0, 256, (rows, blocks * size), dtype=np.uint8), kind


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.gguf"):
        old.unlink()
    writer = gguf.GGUFWriter(OUT / "every-type.gguf", "golden")
    add_metadata(writer)
    for name, data, kind in tensors():
        writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)

    writer = gguf.GGUFWriter(OUT / "alignment-64.gguf", "golden")
    writer.add_custom_alignment(64)
    for name, data, kind in tensors():
        writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)

    writer = gguf.GGUFWriter(OUT / "split.gguf", "golden", split_max_tensors=4)
    writer.add_name("golden")
    for name, data, kind in tensors():
        writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)

    reader = gguf.GGUFReader(OUT / "every-type.gguf")
    expected = {"metadata": {key: field.contents() for key, field in reader.fields.items()
                             if not key.startswith("GGUF.")},
                "tensors": []}
    for tensor in reader.tensors:
        expected["tensors"].append({"name": tensor.name, "type": tensor.tensor_type.name,
                                    "shape": [int(n) for n in tensor.shape], "bytes": int(tensor.n_bytes)})
    (OUT / "every-type.json").write_text(json.dumps(expected, indent=1) + "\n")
    for path in sorted(OUT.iterdir()):
        print(path.name, path.stat().st_size)


main()

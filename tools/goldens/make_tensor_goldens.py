#!/usr/bin/env python3
"""Writes tests/goldens/tensor: what ggml decodes and encodes for each block format.

Needs `pip install numpy llama-cpp-python gguf`. The bytes come from the ggml library inside llama-cpp-python
(made with 0.3.36); the decoded values are checked against the independent numpy code of the gguf package
(made with 0.19.0) before they are written.

Files, little-endian:
  input.f32         2048 floats, eight stretches of 256 with different distributions
  NAME.blocks       encoded bytes of 1024 elements: zeros, ones, random scales and codes
  NAME.decoded      the 1024 floats that they stand for (NaN where a scale is NaN)
  NAME.encoded      the bytes of input.f32 in this format, no importance matrix
  types.txt         number, name, elements and bytes of a block for every type that ggml knows
"""
import ctypes
import importlib.util
import pathlib
import sys

import gguf
import numpy as np

DECODED = 1024
TYPES = {2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K",
         14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS", 39: "MXFP4"}


def load_ggml():
    package = pathlib.Path(importlib.util.find_spec("llama_cpp").origin).parent
    ggml = ctypes.CDLL(str(package / "lib" / "libggml-base.so"))
    ggml.ggml_type_name.restype = ctypes.c_char_p
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_blck_size.restype = ctypes.c_int64
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                         ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return ggml


def decode(ggml, name, blocks):
    out = np.empty(DECODED, np.float32)
    function = getattr(ggml, "dequantize_row_" + (name[:-1].lower() + "K" if name.endswith("_K") else name.lower()))
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function.restype = None
    function(blocks.ctypes.data, out.ctypes.data, DECODED)
    return out


def encode(ggml, number, values):
    size = len(values) // ggml.ggml_blck_size(number) * ggml.ggml_type_size(number)
    out = np.zeros(size, np.uint8)
    written = ggml.ggml_quantize_chunk(number, values.ctypes.data, out.ctypes.data, 0, len(values) // 256, 256, None)
    assert written == size
    return out


def inputs(rng):
    return np.concatenate([
        rng.normal(0, 0.02, 256),                                         # weights
        rng.standard_t(3, 256) * 0.01,                                    # weights with outliers
        rng.uniform(0.5, 1, 256),                                         # all positive
        -rng.uniform(0.5, 1, 256),                                        # all negative
        rng.normal(0, 1, 256) * np.exp2(rng.integers(-20, 12, 8)).repeat(32),  # another scale every 32
        rng.normal(0, 1, 256) * (rng.random(256) < 0.05),                 # mostly zero
        np.repeat(rng.normal(0, 1, 4), 64),                               # constant stretches
        np.concatenate([np.zeros(64), rng.integers(-8, 8, 64), rng.normal(0, 1e-30, 64), rng.normal(0, 1e4, 64)]),
    ]).astype(np.float32)


def blocks_of(rng, size):
    blocks = rng.integers(0, 256, size, dtype=np.uint8)
    blocks[0] = 0
    blocks[1] = 255
    return blocks


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parents[2] / "tests" / "goldens" / "tensor")
    folder.mkdir(parents=True, exist_ok=True)
    ggml = load_ggml()
    rng = np.random.default_rng(20261129)
    values = inputs(rng)
    (folder / "input.f32").write_bytes(values.tobytes())
    lines = []
    for number in range(43):
        elements = ggml.ggml_blck_size(number)
        if elements:
            lines.append(f"{number} {ggml.ggml_type_name(number).decode()} {elements} {ggml.ggml_type_size(number)}\n")
    (folder / "types.txt").write_text("".join(lines))
    for number, name in TYPES.items():
        count = DECODED // ggml.ggml_blck_size(number)
        blocks = blocks_of(rng, (count, ggml.ggml_type_size(number)))
        decoded = decode(ggml, name, blocks)
        with np.errstate(all="ignore"):
            second = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(number)).reshape(-1)
        same = (decoded.view(np.uint32) == second.view(np.uint32)) | (np.isnan(decoded) & np.isnan(second))
        assert same.all(), f"{name}: ggml and gguf disagree on {np.count_nonzero(~same)} values"
        (folder / f"{name}.blocks").write_bytes(blocks.tobytes())
        (folder / f"{name}.decoded").write_bytes(decoded.tobytes())
        (folder / f"{name}.encoded").write_bytes(encode(ggml, number, values).tobytes())


if __name__ == "__main__":
    main()

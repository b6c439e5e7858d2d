#!/usr/bin/env python3
"""Writes the seeds of the GGUF fuzz target (tests/fuzz/corpus/gguf): small files, most of them right, a few
wrong in one place, so that every branch of the reader is near.

    python3 tools/fuzz/make_gguf_corpus.py
"""
import pathlib
import struct

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fuzz" / "corpus" / "gguf"
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + scalar(kind, value)


def array(kind, values):
    return struct.pack("<IQ", kind, len(values)) + b"".join(scalar(kind, v) for v in values)


def array_key(name, kind, values):
    return string(name) + struct.pack("<I", ARRAY) + array(kind, values)


def tensor(name, shape, kind, offset):
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def model(keys=(), tensors=(), data=b"", version=3, alignment=32, counts=None):
    n_tensors, n_keys = counts or (len(tensors), len(keys))
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def seeds():
    yield "empty", model()
    yield "version-2", model([key("a", 4, 1)], version=2)
    yield "scalars", model([key(f"k{kind}", kind, 1) for kind in FORMATS] + [key("s", STRING, "text")])
    yield "arrays", model([array_key(f"k{kind}", kind, [0, 1]) for kind in FORMATS])
    yield "strings", model([array_key("tokenizer.ggml.tokens", STRING, ["", "a", "\u2581the", b"\xff"])])
    nested = string("n") + struct.pack("<IIQ", ARRAY, ARRAY, 2) + array(4, [1, 2]) + array(STRING, ["x"])
    yield "nested", model([nested])
    yield "deep", model([string("n") + struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 7 + array(0, [1])])
    yield "one-tensor", model([], [tensor("a", [3], 0, 0)], bytes(12))
    yield "tensors", model([key("general.architecture", STRING, "llama")],
                           [tensor("a", [2, 2], 1, 0), tensor("b", [32, 2], 2, 32), tensor("c", [1, 1, 1, 2], 24, 96)],
                           bytes(98))
    yield "k-quant", model([], [tensor("a", [256], 12, 0)], bytes(144))
    yield "alignment", model([key("general.alignment", 4, 8)], [tensor("a", [1], 0, 0), tensor("b", [1], 0, 8)],
                             bytes(12), alignment=8)
    yield "split", model([key("split.no", 2, 0), key("split.count", 2, 3), key("split.tensors.count", 5, 9)])
    yield "order", model([], [tensor("b", [1], 0, 64), tensor("a", [1], 0, 0)], bytes(68))
    yield "duplicate-key", model([key("a", 4, 1), key("a", 4, 1)])
    yield "duplicate-tensor", model([], [tensor("a", [1], 0, 0), tensor("a", [1], 0, 32)], bytes(36))
    yield "overlap", model([], [tensor("a", [9], 0, 0), tensor("b", [1], 0, 32)], bytes(36))
    yield "wrap", model([], [tensor("b", [4, 1073741823, 1073741825, 1], 0, 0)], bytes(64))
    yield "empty-key", model([key("", 7, 1)])
    yield "big-counts", model([array_key("a", 10, [])], counts=(2**62, 2**61))
    yield "big-array", model([string("a") + struct.pack("<IIQ", ARRAY, 10, 2**61)])


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.gguf"):
        old.unlink()
    for name, data in seeds():
        (OUT / f"{name}.gguf").write_bytes(data)


main()

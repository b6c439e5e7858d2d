#!/usr/bin/env python3
"""Files written by the reference implementation, for tests/formats/safetensors_test.cpp.

    pip install torch safetensors
    make_safetensors_goldens.py      writes tests/goldens/formats/every-type.safetensors and sharded/

Every array counts from 0 in steps of 1 (booleans alternate), so that the test knows its values.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "formats"

TYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "u16": torch.uint16,
    "u32": torch.uint32, "u64": torch.uint64, "f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2,
}


def count(dtype, *shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape).to(dtype)


def main():
    tensors = {name: count(dtype, 2, 3) for name, dtype in TYPES.items()}
    tensors["bool"] = torch.tensor([False, True, False])
    tensors["scalar"] = torch.tensor(7.0)
    tensors["empty"] = torch.zeros(0, 4)
    tensors["deep"] = count(torch.float32, 2, 1, 3, 2)
    save_file(tensors, OUT / "every-type.safetensors", metadata={"format": "pt", "note": "caf\u00e9 \"quoted\""})

    folder = OUT / "sharded"
    folder.mkdir(exist_ok=True)
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    parts = [{"a.weight": count(torch.float32, 2, 2), "c.weight": count(torch.bfloat16, 3)},
             {"b.weight": count(torch.float16, 2, 1)}]
    for name, part in zip(names, parts):
        save_file(part, folder / name, metadata={"format": "pt"})
    weight_map = {key: name for name, part in zip(names, parts) for key in part}
    index = {"metadata": {"total_size": 26}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    main()

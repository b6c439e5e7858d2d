#!/usr/bin/env python3
"""Rotary frequencies under each scaling method, by transformers' ROPE_INIT_FUNCTIONS.

    pip install torch transformers gguf
    make_rope_goldens.py          writes tests/goldens/models/rope.golden.gguf

Per case i: `golden.case.i` (array: method number of RopeScalingType, head size, base, factor, original context,
beta_fast, beta_slow, attention factor that replaces the paper's or 0, resulting magnitude) and the tensor
`inv_freq.i` (F32). The NTK-aware base change is taken from the dynamic method at a length where its stretch equals
the wanted factor.
"""

import pathlib

import gguf
import numpy as np
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "models" / "rope.golden.gguf"
NONE, LINEAR, NTK, YARN = range(4)

# method, head size, base, factor, original context, beta_fast, beta_slow, attention factor or 0
CASES = [
    (NONE, 64, 10000.0, 1.0, 2048, 32.0, 1.0, 0.0),
    (NONE, 10, 500.0, 1.0, 2048, 32.0, 1.0, 0.0),
    (LINEAR, 64, 10000.0, 2.5, 2048, 32.0, 1.0, 0.0),
    (LINEAR, 128, 1000000.0, 8.0, 4096, 32.0, 1.0, 0.0),
    (NTK, 64, 10000.0, 2.0, 2048, 32.0, 1.0, 0.0),
    (NTK, 128, 500000.0, 4.0, 8192, 32.0, 1.0, 0.0),
    (YARN, 8, 10000.0, 4.0, 64, 32.0, 1.0, 0.0),
    (YARN, 64, 10000.0, 4.0, 2048, 32.0, 1.0, 0.0),
    (YARN, 128, 10000.0, 16.0, 4096, 32.0, 1.0, 0.0),
    (YARN, 128, 1000000.0, 4.0, 32768, 16.0, 2.0, 0.0),
    (YARN, 64, 10000.0, 4.0, 2048, 8.0, 1.0, 1.3),
    (YARN, 64, 10000.0, 1.0, 2048, 32.0, 1.0, 0.0),
    (YARN, 16, 10000.0, 4.0, 64, 1.5, 1.5, 0.0),
]


def frequencies(method, dim, base, factor, original, beta_fast, beta_slow, attention):
    parameters = dict(rope_theta=base, rope_type={NONE: "default", LINEAR: "linear", NTK: "dynamic", YARN: "yarn"}[method])
    length = original
    if method != NONE:
        parameters["factor"] = factor
    if method == NTK:  # its stretch is factor * length / original - (factor - 1)
        parameters["factor"], length = 2.0, (factor + 1) / 2 * original
    if method == YARN:
        parameters |= dict(original_max_position_embeddings=original, beta_fast=beta_fast, beta_slow=beta_slow)
        if attention:
            parameters["attention_factor"] = attention
    config = transformers.LlamaConfig(hidden_size=dim, num_attention_heads=1, head_dim=dim,
                                      max_position_embeddings=original, rope_parameters=parameters)
    if method == NONE:
        rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
        return rotary.inv_freq, 1.0
    return ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, seq_len=length)


def main():
    writer = gguf.GGUFWriter(OUT, "golden")
    writer.add_string("golden.source", f"transformers {transformers.__version__}")
    writer.add_uint32("golden.cases", len(CASES))
    for i, case in enumerate(CASES):
        inv_freq, magnitude = frequencies(*case)
        writer.add_array(f"golden.case.{i}", [float(x) for x in case] + [float(magnitude)])
        writer.add_tensor(f"inv_freq.{i}", inv_freq.numpy().astype(np.float32))
        print(case, magnitude, inv_freq[:3].tolist())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

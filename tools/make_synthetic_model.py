#!/usr/bin/env python3
"""Writes a random-weight model in BF16, a Llama or a mixture of experts like Qwen3's, for measurements: speed does not depend on what the weights say.

    pip install numpy gguf
    make_synthetic_model.py TOKENIZER.gguf OUT.gguf [--size 0.5b|1.2b|1.3b-a0.2b]
    quipu quantize OUT.gguf OUT-q4_k_m.gguf q4_k_m

The vocabulary is that of TOKENIZER.gguf. Tensors share one stretch of random numbers, each begins elsewhere in it.
"""

import argparse

import gguf
import numpy as np

SIZES = {
    "0.5b": dict(width=1024, layers=28, heads=16, kv_heads=4, hidden=4096),
    "1.2b": dict(width=2048, layers=18, heads=32, kv_heads=8, hidden=8192),
    "1.3b-a0.2b": dict(width=1024, layers=12, heads=16, kv_heads=4, hidden=512, experts=64, used=8),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--size", choices=SIZES, default="0.5b")
    args = parser.parse_args()
    size = SIZES[args.size]
    width, head = size["width"], size["width"] // size["heads"]

    reader = gguf.GGUFReader(args.tokenizer)
    field = {key: value.contents() for key, value in reader.fields.items() if key.startswith("tokenizer.")}
    tokens = field["tokenizer.ggml.tokens"]

    experts = size.get("experts", 0)
    writer = gguf.GGUFWriter(args.out, "qwen3moe" if experts else "llama")
    writer.add_name(f"synthetic {args.size}")
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(size["layers"])
    writer.add_feed_forward_length(size["hidden"])
    writer.add_head_count(size["heads"])
    writer.add_head_count_kv(size["kv_heads"])
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-5)
    if experts:
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_expert_count(experts)
        writer.add_expert_used_count(size["used"])
        writer.add_expert_feed_forward_length(size["hidden"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model(field["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(field.get("tokenizer.ggml.pre", "default"))
    writer.add_token_list(tokens)
    writer.add_token_types(field["tokenizer.ggml.token_type"])
    writer.add_token_merges(field["tokenizer.ggml.merges"])
    writer.add_bos_token_id(field["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(field["tokenizer.ggml.eos_token_id"])

    numbers = np.random.default_rng(1).standard_normal(max(len(tokens), size["hidden"] * max(experts, 1)) * width, dtype=np.float32)
    numbers = ((numbers * 0.02).view(np.uint32) >> 16).astype(np.uint16)
    begin = 0

    def matrix(name, rows, columns, count=1):
        nonlocal begin
        begin = (begin + 7919) % len(numbers)
        data = np.roll(numbers[: count * rows * columns], begin)
        shape = (rows, columns * 2) if count == 1 else (count, rows, columns * 2)
        writer.add_tensor(name, data.view(np.uint8).reshape(shape),
                          raw_dtype=gguf.GGMLQuantizationType.BF16)

    matrix("token_embd.weight", len(tokens), width)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for i in range(size["layers"]):
        at = f"blk.{i}."
        writer.add_tensor(at + "attn_norm.weight", np.ones(width, np.float32))
        writer.add_tensor(at + "ffn_norm.weight", np.ones(width, np.float32))
        matrix(at + "attn_q.weight", width, width)
        matrix(at + "attn_k.weight", size["kv_heads"] * head, width)
        matrix(at + "attn_v.weight", size["kv_heads"] * head, width)
        matrix(at + "attn_output.weight", width, width)
        if experts:
            writer.add_tensor(at + "attn_q_norm.weight", np.ones(head, np.float32))
            writer.add_tensor(at + "attn_k_norm.weight", np.ones(head, np.float32))
            router = np.random.default_rng(i).standard_normal((experts, width), dtype=np.float32)
            writer.add_tensor(at + "ffn_gate_inp.weight", router / np.float32(width**0.5))
            matrix(at + "ffn_gate_exps.weight", size["hidden"], width, experts)
            matrix(at + "ffn_up_exps.weight", size["hidden"], width, experts)
            matrix(at + "ffn_down_exps.weight", width, size["hidden"], experts)
            continue
        matrix(at + "ffn_gate.weight", size["hidden"], width)
        matrix(at + "ffn_up.weight", size["hidden"], width)
        matrix(at + "ffn_down.weight", width, size["hidden"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

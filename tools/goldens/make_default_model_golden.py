#!/usr/bin/env python3
"""Logits of the default model in float32, by transformers on the dequantised weights.

    pip install torch transformers gguf
    make_default_model_golden.py SmolLM2-135M-Instruct.Q4_1.gguf [--full FILE]

Writes tests/goldens/models/smollm2.golden.gguf, for each prompt i:

    tokens.i        I32 [n]
    norm.i          F32 [n]            length of each row of logits
    projection.i    F32 [n rows of 64] logits times 64 fixed vectors of +1 and -1 (see signs())
    top_ids.i       I32 [n rows of 5]  the largest logits, falling
    top_logits.i    F32 [n rows of 5]
    rows.i          I32 [m]            positions of the rows kept whole
    logits.i        F16 [m rows of vocab]
    greedy.i        I32 [64]           greedy continuation
    greedy_margin.i F32 [64]           by how much each of them was ahead

and, as metadata, the prompts' texts. --full writes all logits, tokens first, as float32 (GGUF as well), for
the true cosine at every position: QUIPU_FULL_LOGITS=FILE models_test (see docs/fidelity.md). --perplexity TEXT only
prints the perplexity of the first 32 windows of 512, second halves scored, as `quipu eval perplexity` does.
"""

import argparse
import pathlib

import gguf
import numpy as np
import tokenizers
import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "models" / "smollm2.golden.gguf"

PROMPTS = [
    "The capital of France is Paris. The capital of Japan is Tokyo. The capital of Italy is",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nA train leaves at 14:35 and needs 2 hours and 50 minutes. When does it arrive, and how "
    "far does it go at 96 km/h? Explain each step in one short sentence.<|im_end|>\n<|im_start|>assistant\n",
    "# Notes\n\nThe function below counts the words of a file; it was written for Python 3.11.\n\n```python\n"
    "def count_words(path: str, *, lower: bool = True) -> dict[str, int]:\n"
    "    counts: dict[str, int] = {}\n"
    "    with open(path, encoding=\"utf-8\") as lines:\n"
    "        for line in lines:\n"
    "            for word in line.split():\n"
    "                word = word.strip(\".,;:!?()[]\")\n"
    "                if lower:\n"
    "                    word = word.lower()\n"
    "                counts[word] = counts.get(word, 0) + 1\n"
    "    return counts\n```\n\n"
    "It keeps accents: \u201cna\u00efve caf\u00e9\u201d, \u00abgar\u00e7on\u00bb, Gr\u00f6\u00dfe. Other scripts work too: "
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1, \u4f60\u597d\uff0c\u4e16\u754c, "
    "\u3053\u3093\u306b\u3061\u306f, \uc548\ub155. So do emoji \U0001f600 and signs like \u00b1, \u2211 and \u221a2 "
    "\u2248 1.41421356.\n\n| word | count |\n| --- | ---: |\n| the | 1024 |\n| of | 512 |\n| and | 256 |\n\n"
    "Questions:\n1. What does the function return for an empty file?\n2. Why is the word stripped before it is "
    "counted?\n\nAnswers:\n1.",
]
WHOLE_ROWS = [(0, 5, -1), (40, -1), (150, -1)]
GREEDY = 64


def model_from(reader):
    def field(key):
        return reader.fields[key].contents()

    config = transformers.LlamaConfig(
        hidden_size=field("llama.embedding_length"), intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"), num_attention_heads=field("llama.attention.head_count"),
        num_key_value_heads=field("llama.attention.head_count_kv"),
        vocab_size=len(field("tokenizer.ggml.tokens")), max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"), tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=field("llama.rope.freq_base")),
        attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).eval()
    weights = {t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32))
               for t in reader.tensors}
    parts = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    state = {"model.embed_tokens.weight": weights["token_embd.weight"],
             "lm_head.weight": weights.get("output.weight", weights["token_embd.weight"]),
             "model.norm.weight": weights["output_norm.weight"]}
    for layer in range(config.num_hidden_layers):
        for ours, theirs in parts.items():
            weight = weights[f"blk.{layer}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):  # neighbours order to halves order
                heads = config.num_attention_heads if ours == "attn_q" else config.num_key_value_heads
                weight = weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
            state[f"model.layers.{layer}.{theirs}.weight"] = weight
    model.load_state_dict(state, strict=True)
    return model


def tokenizer_from(reader):
    """Byte-level BPE with single digits, as the `smollm` pre-tokenizer asks."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def signs(vocab):
    """[vocab, 64] of +1 and -1: bit j of splitmix64(id) set means -1 in direction j."""
    with np.errstate(over="ignore"):
        z = (np.arange(vocab, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    bits = (z[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    return 1.0 - 2.0 * bits.astype(np.float64)


def greedy(model, tokens):
    """64 ids and how far each was ahead of the second."""
    ids, margins = [], []
    cache, step = None, torch.tensor([tokens])
    for _ in range(GREEDY):
        result = model(step, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        best = torch.topk(result.logits[0, -1], 2)
        ids.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        step = torch.tensor([[ids[-1]]])
    return ids, margins


def perplexity(model, tokens, windows=32, context=512):
    losses = []
    for start in range(0, windows * context, context):
        window = torch.tensor(tokens[start:start + context])
        logits = model(window[None]).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits[context // 2:-1].double(), window[context // 2 + 1:]))
        print(f"window {start // context}: perplexity so far {torch.stack(losses).mean().exp():.4f}", flush=True)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--full", type=pathlib.Path, help="write all logits here (tens of MB)")
    parser.add_argument("--perplexity", type=pathlib.Path, help="a text; no golden is written")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)

    reader = gguf.GGUFReader(arguments.model)
    model, tokenizer = model_from(reader), tokenizer_from(reader)
    if arguments.perplexity:
        return perplexity(model, tokenizer.encode(arguments.perplexity.read_text()).ids)
    golden = gguf.GGUFWriter(OUT, "golden")
    golden.add_string("golden.source", f"transformers {transformers.__version__}, torch {torch.__version__}")
    golden.add_array("golden.prompts", PROMPTS)
    full = gguf.GGUFWriter(arguments.full, "golden") if arguments.full else None
    directions = signs(model.config.vocab_size)
    for i, prompt in enumerate(PROMPTS):
        tokens = tokenizer.encode(prompt).ids
        logits = model(torch.tensor([tokens])).logits[0]
        rows = sorted(r % len(tokens) for r in WHOLE_ROWS[i])
        top = torch.topk(logits, 5)
        ids, margins = greedy(model, tokens)
        exact = logits.numpy().astype(np.float64)
        golden.add_tensor(f"tokens.{i}", np.array(tokens, dtype=np.int32))
        golden.add_tensor(f"norm.{i}", np.linalg.norm(exact, axis=1).astype(np.float32))
        golden.add_tensor(f"projection.{i}", (exact @ directions).astype(np.float32))
        golden.add_tensor(f"top_ids.{i}", top.indices.to(torch.int32).numpy())
        golden.add_tensor(f"top_logits.{i}", top.values.numpy())
        golden.add_tensor(f"rows.{i}", np.array(rows, dtype=np.int32))
        golden.add_tensor(f"logits.{i}", logits[rows].to(torch.float16).numpy())
        golden.add_tensor(f"greedy.{i}", np.array(ids, dtype=np.int32))
        golden.add_tensor(f"greedy_margin.{i}", np.array(margins, dtype=np.float32))
        if full:
            full.add_tensor(f"tokens.{i}", np.array(tokens, dtype=np.int32))
            full.add_tensor(f"logits.{i}", logits.numpy())
        print(f"prompt {i}: {len(tokens)} tokens, smallest greedy margin {min(margins):.4f}")
        print(repr(tokenizer.decode(ids, skip_special_tokens=False)))
    finish(golden)
    if full:
        finish(full)
    print(OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()

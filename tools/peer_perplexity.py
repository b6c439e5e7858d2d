#!/usr/bin/env python3
"""Perplexity of a GGUF model by llama.cpp, to compare with `quipu eval perplexity`.

    pip install llama-cpp-python
    peer_perplexity.py MODEL.gguf TEXT [--windows 32] [--context 512] [--threads 2] [--kv f16|f32]

llama.cpp's definition: the text's tokens are cut into windows of the context; where the model adds a BOS, it takes
the place of each window's first token; the second half of a window is scored, each token given all before it.
"""

import argparse
import json
import math
import pathlib

import numpy as np
from llama_cpp import Llama, llama_cpp


def log_probabilities(logits, targets):
    """Natural logs of softmax(logits)[target], row by row."""
    logits = logits.astype(np.float64)
    top = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return logits[np.arange(len(targets)), targets] - total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=32)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv", choices=["f16", "f32"], default="f16")
    arguments = parser.parse_args()

    n, half = arguments.context, arguments.context // 2
    kv_type = {"f32": 0, "f16": 1}[arguments.kv]
    llm = Llama(str(arguments.model), n_ctx=n, n_batch=n, n_ubatch=n, n_threads=arguments.threads,
                n_threads_batch=arguments.threads, logits_all=True, type_k=kv_type, type_v=kv_type, verbose=False)
    vocab = llama_cpp.llama_model_get_vocab(llm.model)
    add_bos = llama_cpp.llama_vocab_get_add_bos(vocab)
    text = arguments.text.read_bytes().removesuffix(b"\n")
    tokens = llm.tokenize(text, add_bos=add_bos, special=False)

    losses = []
    for start in range(0, min(arguments.windows, len(tokens) // n) * n, n):
        window = tokens[start:start + n]
        if add_bos:
            window[0] = llm.token_bos()
        llm.reset()
        llm.eval(window)
        rows = np.array(llm.scores[half:n - 1])
        losses.extend(-log_probabilities(rows, window[half + 1:]))
        print(f"window {start // n}: perplexity so far {math.exp(np.mean(losses)):.4f}", flush=True)
    mean = float(np.mean(losses))
    spread = float(np.std(losses, ddof=1)) / math.sqrt(len(losses))
    print(json.dumps({"perplexity": math.exp(mean), "stderr": math.exp(mean) * spread, "tokens": len(losses)}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What llama.cpp computes with converted files, beside transformers' logits (tests/goldens/convert).

    pip install llama-cpp-python gguf
    peer_logits.py QUIPU [NAME...]      QUIPU: the program; NAME: folders of tests/goldens/convert (default: all)

Converts each folder to F32 with QUIPU, loads the file with llama.cpp, and prints the largest difference of the logits
over the largest logit; of an encoder, of its hidden states, and of a reranker's scores. Exits 1 when a file does not
load.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "tests" / "goldens" / "convert"


def logits_of(path, tokens):
    model = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, verbose=False, n_threads=1, flash_attn=False,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
    model.eval([int(token) for token in tokens])
    return np.array(model.scores[:len(tokens)])


def states_of(path, tokens, pooling, rows):
    """Hidden states of all tokens, or what the pooling makes of them."""
    model = llama_cpp.Llama(str(path), n_ctx=64, n_batch=64, n_ubatch=64, embedding=True, pooling_type=pooling,
                            verbose=False, n_threads=1, flash_attn=False)
    api, context, width = llama_cpp.llama_cpp, model._ctx.ctx, model.n_embd()
    batch = api.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, True
        batch.seq_id[i][0] = 0
    if api.llama_decode(context, batch) != 0:
        raise RuntimeError("llama_decode failed")
    if pooling == llama_cpp.LLAMA_POOLING_TYPE_NONE:
        return np.array([api.llama_get_embeddings_ith(context, i)[:width] for i in range(rows)])
    return np.array(api.llama_get_embeddings_seq(context, 0)[:rows])


def difference(found, expected):
    expected = expected.reshape(found.shape)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def check(quipu, folder):
    golden = {tensor.name: tensor.data for tensor in gguf.GGUFReader(folder / "logits.gguf").tensors}
    with tempfile.TemporaryDirectory() as temporary:
        whole = pathlib.Path(temporary) / folder.name
        shutil.copytree(folder, whole)
        tokenizer = (folder / "tokenizer").read_text().strip()
        shutil.copytree(GOLDENS / "tokenizers" / tokenizer, whole, dirs_exist_ok=True)
        out = whole / "model.gguf"
        subprocess.run([quipu, "convert", str(whole), "-o", str(out), "--type", "f32"], check=True, capture_output=True)
        architecture = gguf.GGUFReader(out).fields["general.architecture"].contents()
        if "bert" not in architecture and architecture != "gemma-embedding":
            return [difference(logits_of(out, golden["tokens"]), golden["logits"])]
        kinds = [(llama_cpp.LLAMA_POOLING_TYPE_NONE, len(golden["tokens"]), golden["logits"])]
        if "scores" in golden:
            kinds.append((llama_cpp.LLAMA_POOLING_TYPE_RANK, len(golden["scores"]), golden["scores"]))
        return [difference(states_of(out, golden["tokens"], pooling, rows), expected)
                for pooling, rows, expected in kinds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("quipu")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    failed = False
    for folder in sorted(path.parent for path in GOLDENS.glob("*/config.json")):
        if arguments.names and folder.name not in arguments.names:
            continue
        try:
            figures = check(arguments.quipu, folder)
            print(f"{folder.name:16}", *(f"{figure:.1e}" for figure in figures), flush=True)
        except Exception as error:
            failed = True
            print(f"{folder.name:16} {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What llama.cpp computes with converted files, beside transformers' logits (tests/goldens/convert).

    pip install llama-cpp-python gguf
    peer_logits.py QUIPU [NAME...]      QUIPU: the program; NAME: folders of tests/goldens/convert (default: all)

Converts each folder to F32 with QUIPU, loads the file with llama.cpp, and prints the largest difference of the logits
over the largest logit. Exits 1 when a file does not load.
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
    model = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, verbose=False, n_threads=1, flash_attn=False)
    model.eval([int(token) for token in tokens])
    return np.array(model.scores[:len(tokens)])


def check(quipu, folder):
    golden = {tensor.name: tensor.data for tensor in gguf.GGUFReader(folder / "logits.gguf").tensors}
    with tempfile.TemporaryDirectory() as temporary:
        whole = pathlib.Path(temporary) / folder.name
        shutil.copytree(folder, whole)
        tokenizer = (folder / "tokenizer").read_text().strip()
        shutil.copytree(GOLDENS / "tokenizers" / tokenizer, whole, dirs_exist_ok=True)
        out = whole / "model.gguf"
        subprocess.run([quipu, "convert", str(whole), "-o", str(out), "--type", "f32"], check=True, capture_output=True)
        found = logits_of(out, golden["tokens"])
    expected = golden["logits"].reshape(found.shape)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


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
            print(f"{folder.name:16} {check(arguments.quipu, folder):.1e}", flush=True)
        except Exception as error:
            failed = True
            print(f"{folder.name:16} {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

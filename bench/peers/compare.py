#!/usr/bin/env python3
"""quipu beside llama.cpp on one file, in alternating turns: medians and ratios.

    pip install llama-cpp-python
    bench/peers/compare.py MODEL.gguf [--quipu build/release/quipu] [-p 512] [-n 64] [-t 2] [--turns 5]

Machines are shared: only the ratio of turns made in the same minute means something.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import time

import llama_cpp
from llama_cpp import llama_cpp as api


class Peer:
    """llama.cpp through its C interface; logits of the last token only, as quipu's bench asks for."""

    def __init__(self, model, prompt, generate, threads):
        self.llama = llama_cpp.Llama(model, n_ctx=prompt + generate + 8, n_batch=max(prompt, 32), n_ubatch=512,
                                     n_threads=threads, n_threads_batch=threads, verbose=False)
        self.vocab = self.llama.n_vocab()

    def decode(self, tokens):
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        if api.llama_decode(self.llama._ctx.ctx, api.llama_batch_get_one(array, len(tokens))) != 0:
            raise SystemExit("llama_decode failed")
        api.llama_synchronize(self.llama._ctx.ctx)

    def clear(self):
        api.llama_memory_clear(api.llama_get_memory(self.llama._ctx.ctx), True)

    def turn(self, prompt, generate):
        self.clear()
        tokens = [(i * 7919) % (self.vocab - 300) + 100 for i in range(max(prompt, generate))]
        start = time.perf_counter()
        self.decode(tokens[:prompt])
        prefill = prompt / (time.perf_counter() - start)
        self.clear()
        self.decode(tokens[:1])
        start = time.perf_counter()
        for token in tokens[:generate]:
            self.decode([token])
        return prefill, generate / (time.perf_counter() - start)


def quipu_turn(args):
    out = subprocess.run([args.quipu, "bench", "-m", args.model, "-p", str(args.prompt), "-n", str(args.generate),
                          "-t", str(args.threads), "-r", "1", "-o", "json"],
                         check=True, capture_output=True, text=True).stdout
    speeds = {row["test"][:2]: row["tokens_per_second"]["median"] for row in json.loads(out)}
    return speeds["pp"], speeds["tg"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--quipu", default="build/release/quipu")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=64)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()

    peer = Peer(args.model, args.prompt, args.generate, args.threads)
    peer.turn(args.prompt, args.generate)
    quipu_turn(args)
    ours, theirs = [], []
    for _ in range(args.turns):
        theirs.append(peer.turn(args.prompt, args.generate))
        ours.append(quipu_turn(args))
    print("| test | quipu tokens/s | llama.cpp tokens/s | ratio: median | min | max |")
    print("| --- | --: | --: | --: | --: | --: |")
    for i, name in enumerate((f"pp{args.prompt}", f"tg{args.generate}")):
        ratios = [a[i] / b[i] for a, b in zip(ours, theirs)]
        print(f"| {name} | {statistics.median(a[i] for a in ours):.1f} | {statistics.median(b[i] for b in theirs):.1f} "
              f"| {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")


if __name__ == "__main__":
    main()

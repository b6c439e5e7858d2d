#!/usr/bin/env python3
"""quipu beside llama.cpp on one file, in alternating turns: medians and ratios.

    pip install llama-cpp-python
    bench/peers/compare.py MODEL.gguf [--quipu build/release/quipu] [-p 512] [-n 64] [-d 4096] [-B 16] [-t 2]
                          [--cache q8_0]

Machines are shared: only the ratio of turns made in the same minute means something.
"""

import argparse
import json
import statistics
import subprocess
import time

import llama_cpp
from llama_cpp import llama_cpp as api

CACHE_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # as ggml numbers them


class Peer:
    """llama.cpp through its C interface; logits of the last token only, as quipu's bench asks for."""

    def __init__(self, args):
        self.args = args
        context = args.depth + args.prompt + args.generate + 8
        self.llama = llama_cpp.Llama(args.model, n_ctx=context, n_batch=max(args.prompt, 512), n_ubatch=512,
                                     n_threads=args.threads, n_threads_batch=args.threads, verbose=False,
                                     type_k=CACHE_TYPES[args.cache], type_v=CACHE_TYPES[args.cache],
                                     flash_attn=args.cache != "f16")
        if args.sequences > 1:
            params = api.llama_context_default_params()
            params.n_ctx = context * args.sequences
            params.n_batch = params.n_ubatch = 512
            params.n_seq_max = args.sequences
            params.type_k = params.type_v = CACHE_TYPES[args.cache]
            params.flash_attn_type = 0 if args.cache == "f16" else 1
            params.kv_unified = True
            params.n_threads = params.n_threads_batch = args.threads
            self.ctx = api.llama_init_from_model(self.llama._model.model, params)
        else:
            self.ctx = self.llama._ctx.ctx
        self.vocab = self.llama.n_vocab()

    def decode(self, tokens, position=0, sequences=1):
        """The tokens from `position` on; for several sequences one token each, all with logits."""
        count = max(len(tokens), sequences)
        batch = api.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for i in range(count):
            batch.token[i] = tokens[i % len(tokens)]
            batch.pos[i] = position + (i if sequences == 1 else 0)
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = i if sequences > 1 else 0
            batch.logits[i] = sequences > 1 or i == count - 1
        if api.llama_decode(self.ctx, batch) != 0:
            raise SystemExit("llama_decode failed")
        api.llama_synchronize(self.ctx)
        api.llama_batch_free(batch)

    def turn(self):
        prompt, generate, depth, sequences = (self.args.prompt, self.args.generate, self.args.depth,
                                              self.args.sequences)
        memory = api.llama_get_memory(self.ctx)
        tokens = [(i * 7919) % (self.vocab - 300) + 100 for i in range(max(prompt, generate, depth) + 1)]
        api.llama_memory_clear(memory, True)
        for at in range(0, depth, 512):
            self.decode(tokens[at:min(at + 512, depth)], at)
        start = time.perf_counter()
        self.decode(tokens[:prompt], depth)
        prefill = prompt / (time.perf_counter() - start)
        if sequences > 1:
            api.llama_memory_clear(memory, True)
        else:
            api.llama_memory_seq_rm(memory, 0, depth, -1)
        self.decode(tokens[:1], depth, sequences)
        start = time.perf_counter()
        for i in range(generate):
            self.decode([tokens[i]], depth + 1 + i, sequences)
        return prefill, generate * sequences / (time.perf_counter() - start)


def quipu_turn(args):
    def bench(*more):
        out = subprocess.run([args.quipu, "bench", "-m", args.model, "-t", str(args.threads), "-d", str(args.depth),
                              "-ctk", args.cache, "-ctv", args.cache, "-r", "1", "-o", "json", *more],
                             check=True, capture_output=True, text=True).stdout
        return json.loads(out)[0]["tokens_per_second"]["median"]

    return (bench("-p", str(args.prompt), "-n", "0"),
            bench("-p", "0", "-n", str(args.generate), "-B", str(args.sequences)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--quipu", default="build/release/quipu")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=64)
    parser.add_argument("-d", "--depth", type=int, default=0, help="tokens already in the context")
    parser.add_argument("-B", "--sequences", type=int, default=1, help="sequences that decode side by side")
    parser.add_argument("--cache", choices=CACHE_TYPES, default="f16",
                        help="keys and values; quantised ones need the peer's flash attention")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    if args.sequences > 1 and args.depth > 0:
        parser.error("-B and -d cannot be combined")

    peer = Peer(args)
    peer.turn()
    quipu_turn(args)
    ours, theirs = [], []
    for _ in range(args.turns):
        theirs.append(peer.turn())
        ours.append(quipu_turn(args))
    depth = f"@d{args.depth}" if args.depth else ""
    print("| test | quipu tokens/s | llama.cpp tokens/s | ratio: median | min | max |")
    print("| --- | --: | --: | --: | --: | --: |")
    for i, name in enumerate((f"pp{args.prompt}{depth}", f"tg{args.generate}{depth} x {args.sequences}")):
        ratios = [a[i] / b[i] for a, b in zip(ours, theirs)]
        print(f"| {name} | {statistics.median(a[i] for a in ours):.1f} | {statistics.median(b[i] for b in theirs):.1f} "
              f"| {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")


if __name__ == "__main__":
    main()

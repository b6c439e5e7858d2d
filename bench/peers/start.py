#!/usr/bin/env python3
"""From the start of a process to the first token of an answer: quipu beside llama.cpp, in alternating turns.

    pip install llama-cpp-python
    bench/peers/start.py MODEL.gguf [--quipu build/release/quipu] [-p "Hello there"] [-t 2]

quipu's time is that of the whole process; llama.cpp's is taken inside of a fresh Python, after its imports: loading the
model and a context, reading the same tokens, one token drawn.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

PEER = """
import json, sys, time
import llama_cpp
model, context, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
tokens = json.load(sys.stdin)
start = time.perf_counter()
llama = llama_cpp.Llama(model, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
llama.eval(tokens)
llama.sample(temp=0)
print(time.perf_counter() - start)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--quipu", default="build/release/quipu")
    parser.add_argument("-p", "--prompt", default="Hello there")
    parser.add_argument("-c", "--context", default="512")
    parser.add_argument("-t", "--threads", default="2")
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()

    rendered = subprocess.run([args.quipu, "template", "render", "-m", args.model, "-p", args.prompt, "--json"],
                              check=True, capture_output=True, text=True).stdout
    tokens = json.dumps(json.loads(rendered)["tokens"])

    def quipu():
        start = time.perf_counter()
        subprocess.run([args.quipu, "run", "-m", args.model, "-p", args.prompt, "-n", "1", "--temp", "0",
                        "-c", args.context, "-t", args.threads], check=True, capture_output=True)
        return time.perf_counter() - start

    def peer():
        return float(subprocess.run([sys.executable, "-c", PEER, args.model, args.context, args.threads], check=True,
                                    input=tokens, capture_output=True, text=True).stdout)

    quipu(), peer()  # the file into the page cache
    pairs = [(quipu(), peer()) for _ in range(args.turns)]
    ratios = [theirs / ours for ours, theirs in pairs]
    print(f"{len(json.loads(tokens))} tokens to the first one: quipu {statistics.median(p[0] for p in pairs):.3f} s, "
          f"llama.cpp {statistics.median(p[1] for p in pairs):.3f} s, "
          f"ratio {statistics.median(ratios):.1f} ({min(ratios):.1f}-{max(ratios):.1f})")


if __name__ == "__main__":
    main()

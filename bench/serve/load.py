#!/usr/bin/env python3
"""Many streaming clients at once, and the same beside other servers: load.py QUIPU MODEL.gguf [options].

Starts `quipu serve`, sends streams from --clients clients for --seconds in all, in turns of --turn seconds, and checks what
must hold: no error but 429, no silence of a stream over --stall seconds, memory that is flat from the second turn on (keep the
cache small with --flags, so that it is full by then). Each --peer COMMAND takes turns with it, a fresh process each turn, with
the same clients; {file}, {port} and {threads} in the command are filled in. --ratio checks how many times their tokens a second
ours are. Exit status 1 when a check fails.

    load.py build/release/quipu smollm2.gguf --flags "--memory-budget 1100M"
    load.py build/release/quipu smollm2.gguf --ratio 3 \\
      --peer "python -m llama_cpp.server --model {file} --port {port} --n_threads {threads} --interrupt_requests False" \\
      --peer "node bench/peers/batching_server.mjs {file} {port} {threads}"
"""
import argparse
import asyncio
import os
import pathlib
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import local_server
import serve_bench


def url(port):
    return urllib.parse.urlsplit(f"http://127.0.0.1:{port}")


def rss_mib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0


def start_peer(command, options):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = shlex.split(command.format(file=options.file, port=port, threads=options.threads))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=os.setpgrp)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).read()
            return process, port
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"{command} did not start")


class Peer:
    def __init__(self, command):
        self.command, self.figures, self.seconds, self.ratios = command, serve_bench.Figures(), 0.0, []

    def turn(self, options, our_rate):
        process, port = start_peer(self.command, options)
        try:
            figures, seconds = asyncio.run(serve_bench.turn(url(port), options, options.turn))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.figures.add(figures)
        self.seconds += seconds
        self.ratios.append(our_rate / (figures.tokens / seconds) if figures.tokens else float("inf"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quipu")
    parser.add_argument("file")
    parser.add_argument("--peer", action="append", default=[], help="the command of another server")
    parser.add_argument("--ratio", type=float, default=0, help="least ratio to the peers' tokens a second")
    parser.add_argument("-c", "--clients", type=int, default=64)
    parser.add_argument("-s", "--seconds", type=float, default=60)
    parser.add_argument("--turn", type=float, default=20)
    parser.add_argument("-p", "--prompt", type=int, default=60, help="words of a prompt")
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("-n", "--tokens", type=int, default=64)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--stall", type=float, default=5)
    parser.add_argument("--flags", type=shlex.split, default=[], help="further options of quipu serve")
    options = parser.parse_args()
    options.model, options.key, options.seed = "", "", 1
    bad = []
    server, port = local_server.start(options.quipu, options.file, "-c", "1024", "--parallel", str(options.parallel),
                                      "-t", str(options.threads), *options.flags)
    threading.Thread(target=server.stderr.read, daemon=True).start()
    ours, spent, memory, peers = serve_bench.Figures(), 0.0, [], [Peer(command) for command in options.peer]
    try:
        while spent < options.seconds - 1:
            options.seed += 1
            figures, seconds = asyncio.run(serve_bench.turn(url(port), options, options.turn))
            ours.add(figures)
            spent += seconds
            memory.append(rss_mib(server))
            for peer in peers:
                peer.turn(options, figures.tokens / seconds)
        if server.poll() is not None:
            bad.append(f"the server died: {server.returncode}")
    finally:
        server.terminate()
        server.wait(timeout=90)
    serve_bench.report("quipu", ours, spent)
    print(f"  memory after each turn: {memory} MiB; load of the machine: {os.getloadavg()[0]:.1f}")
    for peer in peers:
        serve_bench.report(peer.command, peer.figures, peer.seconds)
        ratio = statistics.median(peer.ratios)
        print(f"  ratio: median {ratio:.1f} ({min(peer.ratios):.1f}-{max(peer.ratios):.1f})")
        if ratio < options.ratio:
            bad.append(f"the ratio {ratio:.2f} is below {options.ratio}")
    if ours.errors:
        bad.append(f"errors: {dict(ours.errors)}")
    if not ours.answers:
        bad.append("nothing was answered")
    if ours.between and max(ours.between) > options.stall:
        bad.append(f"a stream was silent for {max(ours.between):.1f} s")
    if len(memory) > 2 and memory[-1] > memory[1] * 1.05 + 20:
        bad.append(f"memory grew: {memory}")
    for what in bad:
        print(f"FAILED: {what}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

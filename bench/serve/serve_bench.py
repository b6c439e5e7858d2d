#!/usr/bin/env python3
"""Streaming clients against an OpenAI-compatible server: serve_bench.py URL [options]. Needs nothing but Python 3.9.

Each client sends one chat request after the other for --seconds and reads its stream. Prints tokens a second over all
clients, time to first token and between tokens (median, 95th and 99th percentile, most), the longest silence of a stream,
and errors by kind; 429 is counted apart. With --peer URL2 the two servers take turns of --turn seconds, and the ratio of
their tokens a second is printed.

    serve_bench.py http://127.0.0.1:8080 -c 64 -s 60
    serve_bench.py http://127.0.0.1:8080 --peer http://127.0.0.1:8081 -c 16 -s 120
"""
import argparse
import asyncio
import collections
import json
import random
import statistics
import time
import urllib.parse

WORDS = ("the a one two red blue small large river mountain city road house tree bird stone light sound book story "
         "reads writes sees finds takes gives holds opens closes begins ends and or but with under over near").split()


class Figures:
    def __init__(self):
        self.tokens = self.answers = self.busy = 0
        self.first, self.between = [], []
        self.errors = collections.Counter()

    def add(self, other):
        self.tokens += other.tokens
        self.answers += other.answers
        self.busy += other.busy
        self.first += other.first
        self.between += other.between
        self.errors += other.errors


def prompt(random_source, tokens, shared):
    words = random.Random(1).choices(WORDS, k=shared) if shared else []
    return " ".join(words + random_source.choices(WORDS, k=max(tokens - shared, 1)))


async def read_headers(reader):
    status = int((await reader.readline()).split()[1])
    chunked = False
    while (line := await reader.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"transfer-encoding:") and b"chunked" in line.lower():
            chunked = True
    return status, chunked


async def body_lines(reader, chunked):
    """Lines of a body; the connection ends with it."""
    rest = b""
    while True:
        if chunked:
            size = int((await reader.readline()).strip() or b"0", 16)
            piece = await reader.readexactly(size + 2) if size else b""
            piece = piece[:-2]
        else:
            piece = await reader.read(65536)
        if not piece:
            return
        rest += piece
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line.strip()


async def ask(url, options, content, figures):
    reader, writer = await asyncio.open_connection(url.hostname, url.port or 80)
    try:
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": options.tokens, "stream": True,
                "temperature": 0.8, "ignore_eos": True}
        if options.model:
            body["model"] = options.model
        data = json.dumps(body).encode()
        head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\nConnection: close\r\n")
        if options.key:
            head += f"Authorization: Bearer {options.key}\r\n"
        began = last = time.monotonic()
        writer.write(head.encode() + b"\r\n" + data)
        await writer.drain()
        status, chunked = await read_headers(reader)
        if status == 429:
            figures.busy += 1
            await asyncio.sleep(1)
            return
        if status != 200:
            figures.errors[f"status {status}"] += 1
            await asyncio.sleep(0.2)
            return
        first, done = True, False
        async for line in body_lines(reader, chunked):
            if not line.startswith(b"data:"):
                continue
            if line.endswith(b"[DONE]"):
                done = True
                break
            event = json.loads(line[5:])
            if "error" in event:
                figures.errors["error in the stream"] += 1
                return
            if not any(choice.get("delta", {}).get("content") for choice in event.get("choices", [])):
                continue
            now = time.monotonic()
            (figures.first if first else figures.between).append(now - (began if first else last))
            first, last = False, now
            figures.tokens += 1
        if done:
            figures.answers += 1
        else:
            figures.errors["stream cut off"] += 1
    except (OSError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
        figures.errors[type(error).__name__] += 1
        await asyncio.sleep(0.2)
    finally:
        writer.close()


async def client(number, url, options, end, figures):
    source = random.Random(options.seed * 1000 + number)
    while (left := end - time.monotonic()) > 0:
        mine = Figures()
        try:
            content = prompt(source, options.prompt, options.shared)
            await asyncio.wait_for(ask(url, options, content, mine), left)
        except asyncio.TimeoutError:
            pass  # the time is up: what came counts
        figures.add(mine)


async def turn(url, options, seconds):
    figures = Figures()
    began = time.monotonic()
    end = began + seconds
    await asyncio.gather(*(client(i, url, options, end, figures) for i in range(options.clients)))
    return figures, time.monotonic() - began


def percentiles(values):
    if not values:
        return "none"
    values = sorted(values)
    at = lambda q: values[min(int(q * len(values)), len(values) - 1)]
    return (f"median {1000 * statistics.median(values):.0f} ms, 95 % {1000 * at(0.95):.0f}, 99 % {1000 * at(0.99):.0f}, "
            f"most {1000 * values[-1]:.0f}")


def report(name, figures, seconds):
    print(f"{name}: {figures.tokens / seconds:.1f} tokens/s, {figures.answers} answers in {seconds:.0f} s, "
          f"{figures.busy} times 429, errors: {dict(figures.errors) or 'none'}")
    print(f"  first token: {percentiles(figures.first)}")
    print(f"  between tokens: {percentiles(figures.between)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--peer", help="another server, asked in turns")
    parser.add_argument("-c", "--clients", type=int, default=16)
    parser.add_argument("-s", "--seconds", type=float, default=30)
    parser.add_argument("-p", "--prompt", type=int, default=60, help="words of a prompt")
    parser.add_argument("--shared", type=int, default=0, help="of which all prompts begin with the same so many")
    parser.add_argument("-n", "--tokens", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--turn", type=float, default=15)
    parser.add_argument("--model", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    servers = [urllib.parse.urlsplit(u) for u in [options.url] + ([options.peer] if options.peer else [])]
    totals = [Figures() for _ in servers]
    times = [0.0 for _ in servers]
    rates = [[] for _ in servers]
    length = min(options.turn, options.seconds) if options.peer else options.seconds
    while sum(times) < options.seconds * len(servers) - 1:
        for i, url in enumerate(servers):
            figures, seconds = asyncio.run(turn(url, options, length))
            totals[i].add(figures)
            times[i] += seconds
            rates[i].append(figures.tokens / seconds)
    for url, figures, seconds in zip(servers, totals, times):
        report(url.geturl(), figures, seconds)
    if options.peer:
        ratios = [a / b for a, b in zip(*rates) if b > 0]
        if ratios:
            print(f"ratio: median {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    main()

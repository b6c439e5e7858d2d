#!/usr/bin/env python3
"""Whether an answer depends on who else asks: mixes.py QUIPU MODEL [options]. Needs nothing but Python 3.9.

Sends --requests random requests in random mixes to one `quipu serve` with a cache on disk: several dialects, streamed
and whole, greedy and drawn, with log probabilities, grammars and stop strings, with shared and distinct prefixes, cached or
not, some of them cancelled on the way. Then asks each that was answered again, alone: on a server without a cache, or with
--fresh on one started for it. Text, tokens and log probabilities must be the same, to the last bit of the numbers as JSON
has them. Prints what differs; exit status 1 when anything does.

    mixes.py build/release/quipu smollm2 --requests 1000
    mixes.py build/release/quipu smollm2 --requests 1000 --flags "--memory-budget 480M"     # short of memory
"""
import argparse
import asyncio
import json
import pathlib
import random
import shlex
import sys
import tempfile
import time

import local_server

WORDS = ("the a one two red blue small large river mountain city road house tree bird stone light sound book story "
         "reads writes sees finds takes gives holds opens closes begins ends and or but with under over near").split()


class Server:
    def __init__(self, options, *flags):
        self.process, self.port = local_server.start(options.quipu, options.model, "-c", str(options.context), *flags,
                                                     *options.flags)
        self.log = asyncio.get_running_loop().run_in_executor(None, self.process.stderr.read)

    async def stop(self):
        alive = self.process.poll() is None
        self.process.terminate()
        await self.log
        self.process.wait(timeout=60)
        return alive


def words(source, count):
    return " ".join(source.choices(WORDS, k=count))


def make_request(number, options):
    """(path, body, cancelled): what it asks for follows from its number alone."""
    source = random.Random(options.seed * 1_000_003 + number)
    shared = words(random.Random(source.randrange(6)), source.choice([0, 80, 200, 400]))
    prompt = (shared + " " + words(source, source.randrange(1, 60))).strip()
    if source.random() < 0.15:  # some ask the same
        prompt = words(random.Random(source.randrange(3)), 120)
    body = {"seed": source.randrange(1000), "temperature": source.choice([0, 0, 0.8, 1.5]),
            "ignore_eos": source.random() < 0.7, "cache_prompt": source.random() < 0.9,
            "stream": source.random() < 0.5}
    tokens = source.randrange(1, options.tokens)
    if source.random() < 0.15:
        body["stop"] = source.sample(WORDS, 3)
    if source.random() < 0.1:
        body["repeat_penalty"] = 1.2
    if source.random() < 0.1:
        body["grammar"] = 'root ::= ("yes" | "no" | "perhaps") " " [a-z]{3,30}'
    path = source.choice(["/completion", "/v1/completions", "/v1/chat/completions"])
    if path == "/completion":
        body.update(prompt=prompt, n_predict=tokens, return_tokens=True)
        if source.random() < 0.3:
            body["n_probs"] = 4
    elif path == "/v1/completions":
        body.update(prompt=prompt, max_tokens=tokens)
        if source.random() < 0.3:
            body["logprobs"] = 3
            body["echo"] = not body["stream"] and source.random() < 0.5
    else:
        messages = [{"role": "system", "content": shared}] if shared else []
        body.update(messages=messages + [{"role": "user", "content": prompt[-200:]}], max_tokens=tokens,
                    n=source.choice([1, 1, 1, 2]))
        if source.random() < 0.3:
            body.update(logprobs=True, top_logprobs=3)
    return path, body, source.random() < 0.2


def essence(path, events):
    """What must not change: texts, tokens, probabilities, ends."""
    choices = {}
    for event in events:
        if "error" in event:
            return {"error": event["error"]}
        for choice in event.get("choices", [event] if "content" in event else []):
            into = choices.setdefault(choice.get("index", 0), {"text": "", "tokens": [], "logprobs": [], "end": None})
            message = choice.get("message") or choice.get("delta") or {}
            into["text"] += (choice.get("text") or choice.get("content") or message.get("content") or "")
            into["tokens"] += choice.get("tokens", [])
            logprobs = choice.get("logprobs")
            into["logprobs"] += choice.get("completion_probabilities", [])
            if logprobs:
                into["logprobs"] += logprobs.get("content") or logprobs.get("token_logprobs") or []
            into["end"] = choice.get("finish_reason") or choice.get("stop_type") or into["end"]
    return choices


async def ask(port, request, cancel=False, delay=0.0, source=random):
    """The essence of the answer; None when it was cancelled, or refused with 429."""
    path, body, _ = request
    await asyncio.sleep(delay)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        data = json.dumps(body).encode()
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await writer.drain()
        if cancel:
            wait = asyncio.ensure_future(reader.read(source.choice([1, 400, 2000])))
            await asyncio.wait([wait], timeout=source.random())
            wait.cancel()
            return None
        status = int((await reader.readline()).split()[1])
        chunked = False
        while (line := await reader.readline()) not in (b"\r\n", b""):
            chunked |= b"chunked" in line.lower()
        content = b""
        if chunked:
            while size := int((await reader.readline()).strip(), 16):
                content += (await reader.readexactly(size + 2))[:-2]
        else:
            content = await reader.read()
        if status == 429:
            return None
        if status != 200:
            return {"status": status, "body": content.decode()}
        if not body["stream"]:
            return essence(path, [json.loads(content)])
        return essence(path, [json.loads(line[6:]) for line in content.decode().split("\n\n")
                              if line.startswith("data: ") and not line.endswith("[DONE]")])
    finally:
        writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quipu")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--together", type=int, default=24, help="most requests of a mix")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="a new server for each request that is compared")
    parser.add_argument("--flags", type=shlex.split, default=[], help="further options of quipu serve")
    options = parser.parse_args()
    source = random.Random(options.seed)
    requests = [make_request(i, options) for i in range(options.requests)]
    began = time.monotonic()
    cache = tempfile.TemporaryDirectory()
    server = Server(options, "--parallel", "12", "--queue", "1000", "--cache-dir", cache.name)
    answers, at = [], 0
    while at < len(requests):
        mix = requests[at:at + source.randrange(1, options.together)]
        answers += await asyncio.gather(*(ask(server.port, r, r[2], source.random() * source.choice([0, 0.3]), source)
                                          for r in mix))
        at += len(mix)
    crowd = time.monotonic() - began
    if not await server.stop():
        print("the server died")
        return 1
    compared = different = 0
    alone = None
    for request, answer in zip(requests, answers):
        if answer is None:
            continue
        if alone is None:
            alone = Server(options, "--parallel", "1", "--no-prefix-cache")
        expected = await ask(alone.port, request)
        compared += 1
        if expected != answer:
            different += 1
            print(f"DIFFERENT: {json.dumps(request)}\n  alone: {json.dumps(expected)}\n  in the mix: {json.dumps(answer)}")
        if options.fresh:
            await alone.stop()
            alone = None
    if alone:
        await alone.stop()
    cache.cleanup()
    failed = sum(1 for a in answers if isinstance(a, dict) and ("status" in a or "error" in a))
    print(f"{len(requests)} requests, {len(requests) - compared} cancelled or refused, {compared} compared, "
          f"{different} different, {failed} failed; the mixes took {crowd:.0f} s")
    return 1 if different or failed or not compared else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

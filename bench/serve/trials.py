#!/usr/bin/env python3
"""Trials of a running server by hostile, careless and many clients: trials.py QUIPU MODEL [NAME...] [options].

Starts `quipu serve` on MODEL (a small real one) for each trial, does to it what users of other servers reported, and checks
what came of it. Without names all trials run. Needs nothing but Python 3.9; exit status 1 when a trial fails.

    trials.py build/release/quipu smollm2
    trials.py build/release/quipu smollm2 idle key_timing
"""
import argparse
import http.client
import json
import math
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import trial_server
from trial_server import Server, check, forced

PROMPT = "A B C D E F G H I J K"


def stop_strings(options):
    """Field case 22: text before the earliest match, and nothing behind it counted."""
    with Server(options, "-c", "512") as server:
        def cut(text, stop, prompt=PROMPT):
            return server.json("/completion", {"prompt": prompt, "stop": stop, "grammar": forced(text), "n_predict": 60,
                                               "return_tokens": True})
        answer = cut(" L M N O P Q R S", ["O P Q"])
        check(answer["content"] == " L M N ", f"text before the stop: {answer['content']!r}")
        check(answer["stop_type"] == "word" and answer["stopping_word"] == "O P Q", "the reason is the stop string")
        check(len(answer["tokens"]) == answer["tokens_predicted"] <= 4, "tokens behind the match are not counted")
        check(cut(" hello world", ["lo w"])["content"] == " hel", "a stop that begins within a token")
        check(cut(" abcdef", ["cde", "bcd"])["content"] == " a", "of two that overlap the earlier one wins")
        check(cut("彼は学校に行く", ["学校"])["content"] == "彼は", "a stop in CJK")
        for path in ["/v1/completions", "/v1/chat/completions"]:
            body = {"stop": "O P Q", "grammar": forced(" L M N O P Q R S"), "max_tokens": 60, "prompt": PROMPT,
                    "messages": [{"role": "user", "content": PROMPT}]}
            choice = server.json(path, body)["choices"][0]
            text = choice.get("text") or choice["message"]["content"]
            check((text, choice["finish_reason"]) == (" L M N ", "stop"), f"{path}: {text!r}")


def stop_strings_streamed(options):
    """Field case 23: no part of a stop string arrives; what only looked like one does."""
    with Server(options, "-c", "512") as server:
        for text, stop, expected in [("?\nAlice", "\n", "?"), ("ok\nUser: hi", "\nUser:", "ok"),
                                     ("ok\nUser is here", "\nUser:", "ok\nUser is here")]:
            events = server.stream("/completion", {"prompt": PROMPT, "stop": [stop], "grammar": forced(text)})
            got = "".join(e["content"] for e in events)
            check(got == expected, f"{text!r} with the stop {stop!r} gave {got!r}")
            body = {"messages": [{"role": "user", "content": "x"}], "stop": [stop], "grammar": forced(text)}
            got = "".join(c["delta"].get("content") or "" for e in server.stream("/v1/chat/completions", body)
                          for c in e["choices"])
            check(got == expected, f"chat: {text!r} with the stop {stop!r} gave {got!r}")


def context_overflow(options):
    """Field case 25: both counts and a code, before a stream starts; an answer that meets the end says so."""
    with Server(options, "-c", "512", "--parallel", "4") as server:
        long = "word " * 700
        message = [{"role": "user", "content": long}]
        for path, body in [("/v1/chat/completions", {"messages": message}), ("/v1/completions", {"prompt": long}),
                           ("/v1/responses", {"input": long}), ("/completion", {"prompt": long}),
                           ("/api/chat", {"model": "default", "messages": message}),
                           ("/api/generate", {"model": "default", "prompt": long}),
                           ("/v1/messages", {"model": "default", "max_tokens": 5, "messages": message})]:
            for stream in [False, True]:
                status, content, _ = server.ask(path, {**body, "stream": stream})
                check(status == 400, f"{path} answers {status}")
                check("512" in content and ("70" in content or "7" in content), f"{path} names both counts: {content}")
        status, content, _ = server.ask("/v1/chat/completions", {"messages": message})
        check(json.loads(content)["error"]["code"] == "context_length_exceeded", "the code that clients know")

        def fill(results):
            results.append(server.json("/v1/completions", {"prompt": "word " * 499, "max_tokens": 100,
                                                           "logit_bias": {}, "ignore_eos": True}))
        results = []
        threads = [threading.Thread(target=fill, args=(results,)) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        for answer in results:
            usage = answer["usage"]
            check(answer["choices"][0]["finish_reason"] == "length", "the answer ends with length")
            check(usage["total_tokens"] in (512, 513), f"at the end of the context: {usage}")
        check(len(results) == 4, "four at once are answered")


def disconnects(options):
    """Field case 26: 200 clients that go away at different times; nothing goes on, nothing leaks."""
    # The cache holds little more than one context, and is full before memory is looked at.
    with Server(options, "-c", "5120", "--parallel", "2", "-b", "256", "--memory-budget", "420M") as server:
        long = " ".join(random.Random(1).choices(["stone", "river", "light", "sound"], k=4000))
        server.json("/completion", {"prompt": "full " * 5000, "n_predict": 1})

        def drop(kind):
            body = {"prompt": "hello", "n_predict": -1, "ignore_eos": True, "cache_prompt": False,
                    "stream": kind != "whole"}
            if kind == "prefill":
                body["prompt"] = f"{random.random()} {long}"
            raw = json.dumps(body).encode()
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
            if kind == "chunks":
                data = b""
                while data.count(b"data: ") < 3:
                    data += connection.recv(4096)
            else:
                time.sleep(0.05)
            return connection

        def drop_queued():
            """Beside two that keep the places busy; never starts."""
            busy = [drop("chunks"), drop("chunks")]
            cancelled = server.metric("quipu_cancelled_total")
            prompts = server.metric("quipu_prompt_tokens_total")
            waiting = drop("prefill")
            check(server.metric("quipu_queue_length") == 1, "one waits")
            waiting.close()
            end = time.monotonic() + 5
            while server.metric("quipu_queue_length") and time.monotonic() < end:
                time.sleep(0.02)
            check(server.metric("quipu_cancelled_total") == cancelled + 1, "who leaves the queue is counted")
            check(server.metric("quipu_prompt_tokens_total") == prompts, "and never starts")
            [b.close() for b in busy]

        before, most_steps, longest = None, 0, 0.0
        for i in range(options.drops):
            kind = ["chunks", "prefill", "whole", "queued"][i % 4]
            if kind == "queued":
                drop_queued()
            else:
                connection = drop(kind)
                steps, began = server.metric("quipu_steps_total"), time.monotonic()
                connection.close()
            check(server.idle(5), f"{kind}: the slots are idle at once")
            if kind == "prefill":  # the chunk under way at the metric, and the one at the close
                most_steps = max(most_steps, server.metric("quipu_steps_total") - steps)
                longest = max(longest, time.monotonic() - began)
            if i == options.drops // 4:
                before = server.resources()
        check(most_steps <= 2, f"a prompt went on for {most_steps:.0f} chunks")
        check(server.idle(), "all slots are idle in the end")
        after = server.resources()
        print(f"  prompts ended at most {most_steps:.0f} chunks and {longest:.2f} s behind the drop; "
              f"after a quarter of {options.drops}: {before}, at the end: {after}")
        check(after["fds"] <= before["fds"] + 3 and after["threads"] == before["threads"], "descriptors and threads")
        check(after["rss_mib"] <= before["rss_mib"] * 1.1 + 30, "memory")


def logprobs(options):
    """Field case 28: log-softmax of the raw logits, whatever the temperature."""
    with Server(options, "-c", "512") as server:
        def probabilities(**more):
            body = {"prompt": PROMPT, "n_predict": 1, "seed": 1, "n_probs": 5, **more}
            return server.json("/completion", body)["completion_probabilities"]
        reference = None
        for temperature in [0, 0.7, 2]:
            first = probabilities(temperature=temperature)[0]
            top = [(t["id"], t["logprob"]) for t in first["top_logprobs"]]
            check(top == sorted(top, key=lambda t: -t[1]) and all(p <= 0 for _, p in top), "sorted, none above 0")
            reference = reference or top
            check(top == reference, f"the same at temperature {temperature}")
            if temperature == 0:
                check(first["id"] == top[0][0], "greedy takes the first")
        # Of the raw logits: "top_k" leaves the others their share.
        most = probabilities(temperature=2, top_k=2, n_probs=1000)[0]["top_logprobs"]
        check([(t["id"], t["logprob"]) for t in most[:5]] == reference and len(most) == 1000, "a thousand of them")
        total = math.fsum(math.exp(t["logprob"]) for t in most)
        check(0.9 < total <= 1, f"the probabilities of {len(most)} tokens add up to {total}")
        for temperature in [0, 0.7, 2]:  # the same through the chat
            entry = server.json("/v1/chat/completions", {
                "messages": [{"role": "user", "content": PROMPT}], "logprobs": True, "top_logprobs": 5, "max_tokens": 3,
                "temperature": temperature, "seed": 1})["choices"][0]["logprobs"]["content"][0]
            top = [(t["token"], t["logprob"]) for t in entry["top_logprobs"]]
            check(top == sorted(top, key=lambda t: -t[1]) and len(top) == 5 and top[0][1] <= 0, f"chat: sorted {top}")
            if temperature == 0:
                check((entry["token"], entry["logprob"]) == top[0], "chat: greedy takes the first")
                chat = top
            check(top == chat, f"chat: the same at temperature {temperature}")
        cut = probabilities(n_predict=20, top_k=2, n_probs=10, stop=["G H"], grammar=forced(" E F G H I J"))
        check(all(len(t["top_logprobs"]) == 10 for t in cut), "top_k does not shorten the list")
        answer = server.json("/v1/completions", {"prompt": PROMPT, "logprobs": 5, "max_tokens": 20, "stop": ["G H"],
                                                 "grammar": forced(" E F G H I J")})
        choice = answer["choices"][0]
        check("".join(choice["logprobs"]["tokens"]).startswith(choice["text"]), "tokens spell the text")
        check(len(choice["logprobs"]["tokens"]) == answer["usage"]["completion_tokens"], "one entry a token")


def cache_reuse(options):
    """Field case 29: one set of bytes, whatever the cache holds and however the prompt is cut."""
    prompt = " ".join(random.Random(4).choices(["red", "blue", "bird", "stone"], k=300))
    answers = {0: set(), 0.8: set()}
    for batch in ["1", "32", "512"]:
        with Server(options, "-c", "2048", "-b", batch) as server:
            for temperature in answers:
                cached = []
                for i in range(5):
                    body = {"prompt": prompt, "n_predict": 16, "temperature": temperature, "seed": 1337, "n_probs": 3,
                            "cache_prompt": i != 2, "return_tokens": True}
                    if i == 3:
                        server.json("/completion", {"prompt": "something else " * 50, "n_predict": 4})
                        server.json("/completion", {"prompt": prompt + " and on", "n_predict": 4})
                    answer = server.json("/completion", body)
                    cached.append(answer["tokens_cached"])
                    answers[temperature].add(json.dumps([answer["content"], answer["tokens"],
                                                         answer["completion_probabilities"]]))
                if temperature == 0:
                    check(cached[0] == 0 and min(cached[1], cached[3], cached[4]) > 200 and cached[2] == 0,
                          f"cached: {cached}")
    for temperature, seen in answers.items():
        check(len(seen) == 1, f"{len(seen)} different answers at temperature {temperature}")


def crowd(options):
    """Field case 31: 96 requests at once where a third of them has memory: the bytes of each alone, or 429."""
    source = random.Random(31)
    bodies = []
    for i in range(96):
        words = source.choices(["red", "blue", "bird", "stone", "river"], k=source.choice([5, 50, 300, 1500]))
        if i % 4 == 0 and bodies:
            bodies.append(bodies[source.randrange(len(bodies))])
        else:
            bodies.append({"prompt": " ".join(words), "n_predict": source.randrange(1, 24), "seed": i,
                           "temperature": source.choice([0, 1]), "ignore_eos": True, "return_tokens": True})
    # SmolLM2-135M: 23040 bytes a token of f16 cache; room for a third of what they need.
    with Server(options, "-c", "2048", "--parallel", "32", "--memory-budget", "950M") as server:
        results = [None] * len(bodies)

        def one(i):
            status, content, _ = server.ask("/completion", bodies[i])
            results[i] = json.loads(content)["tokens"] if status == 200 else status
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
        began = time.monotonic()
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(f"  96 answers in {time.monotonic() - began:.0f} s, {server.metric('quipu_preemptions'):.0f} preemptions, "
              f"{server.metric('quipu_kv_pages'):.0f} pages")
        check(server.metric("quipu_queue_length") == 0, "the queue drains")
    with Server(options, "-c", "2048", "--parallel", "1", "--no-prefix-cache") as server:
        for i, body in enumerate(bodies):
            if results[i] == 429:
                continue
            alone = server.json("/completion", body)["tokens"]
            check(results[i] == alone, f"request {i} is as alone")


def sampler_edges(options):
    """Field case 37: edges mean what they say; what is out of range is a 400 with the range."""
    with Server(options, "-c", "512") as server:
        def draw(**more):
            return server.json("/completion", {"prompt": PROMPT, "n_predict": 12, "seed": 3, "ignore_eos": True,
                                               "return_tokens": True, "temperature": 1, "min_p": 0, "top_p": 1,
                                               **more})["tokens"]
        greedy = draw(temperature=0, top_k=0)
        for more in [{"top_k": 1}, {"top_p": 0}, {"min_p": 1}, {"temperature": 1e-9}]:
            check(draw(**more) == greedy, f"{more} is greedy")
        check(draw(top_k=0) == draw(top_k=10**9), "top_k 0 switches it off")
        draw(temperature=1e9)
        draw(samplers=[])
        draw(samplers=["min_p", "temperature"])
        draw(repeat_last_n=-1, repeat_penalty=1.1)
        for bad in ['"temperature":-1', '"temperature":NaN', '"min_p":1.5', '"top_k":-5', '"samplers":["magic"]',
                    '"repeat_last_n":-2', '"top_p":-0.1']:
            status, content, _ = server.ask("/completion", '{"prompt":"a",' + bad + "}")
            check(status == 400, f"{bad} is a 400 ({status})")
            if "NaN" not in bad and "magic" not in bad:
                check("allowed" in content or "expected" in content, f"{bad} names the range: {content}")


def cors(options):
    """Field case 43: a foreign page gets nothing; an allowed one all headers, on streams and errors too."""
    evil, good = "https://evil.example", "https://chat.example"
    message = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    kinds = [("GET", "/v1/models", None), ("POST", "/v1/chat/completions", message),
             ("POST", "/v1/chat/completions", {**message, "stream": True}),
             ("POST", "/v1/chat/completions", {"messages": []})]
    for flags in [[], ["--cors-origin", good]]:
        with Server(options, "-c", "512", *flags) as server:
            for origin in [evil, good, "null", None]:
                allowed = origin == good and flags
                for method, path, body in kinds:
                    status, _, headers = server.ask(path, body, {"Origin": origin} if origin else {}, method)
                    given = headers.get("access-control-allow-origin")
                    check(given == (good if allowed else None), f"{origin} {method} {path}: {given}")
                    if origin in (evil, "null") or (origin == good and not flags):
                        check(status == 403, f"{origin} gets {status}")
                    else:
                        check(status == (400 if body == {"messages": []} else 200), f"{origin} gets {status}")
                if origin is None:
                    continue
                status, _, headers = server.ask("/v1/chat/completions", None, {
                    "Origin": origin, "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "Authorization"}, "OPTIONS")
                names = headers.get("access-control-allow-headers", "").lower()
                check(("authorization" in names) == bool(allowed), f"preflight of {origin}: {names}")


def key_timing(options):
    """Field case 44: how long a wrong key takes says nothing about the right one, and no key is ever told."""
    source = random.Random(44)
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    keys = ["".join(source.choices(alphabet, k=32)) for _ in range(2)]
    wrong = {"shares none": "~" * 32, "shares 31": keys[0][:31] + "~", "shorter": keys[0][:8], "longer": keys[0] + "~" * 32}
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(keys) + "\n")
        file.flush()
        with Server(options, "-c", "512", "--api-key-file", file.name, "--io-threads", "1") as server:
            order = [kind for kind in wrong for _ in range(options.timings)]
            source.shuffle(order)
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            requests = {kind: f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
                        for kind, key in wrong.items()}
            times = {kind: [] for kind in wrong}
            for kind in order:
                began = time.perf_counter_ns()
                connection.sendall(requests[kind])
                data = b""
                while b"\r\n\r\n" not in data or len(data.split(b"\r\n\r\n", 1)[1]) < int(
                        data.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
                    data += connection.recv(65536)
                times[kind].append(time.perf_counter_ns() - began)
                if not data.startswith(b"HTTP/1.1 401"):
                    check(False, f"{kind} answers {data[:20]}")
                    break
            reference = times["shares none"]
            for kind, values in times.items():
                z = rank_test(reference, values)
                print(f"  {kind}: median {statistics.median(values) / 1000:.1f} us, z {z:+.2f}")
                if kind == "shares 31":
                    check(abs(z) < 4, f"{kind} is told apart (z {z:.1f})")
            for key in keys:
                auth = {"Authorization": f"Bearer {key}"}
                told = "".join(server.ask(p, None, auth)[1] for p in ["/props", "/metrics", "/slots", "/v1/models"])
                told += server.ask("/v1/chat/completions", "{", auth)[1] + server.ask("/nowhere", None, auth)[1]
                check(key not in told, "a key is in an answer")
            check(server.ask("/health")[0] == 200, "/health needs no key")
            server.process.terminate()
            server.process.wait(timeout=60)
            server.reader.join()
            log = server.text_of_log()
            check(not any(key in log for key in keys), "a key is in the log")
            server.process = subprocess.Popen(["sleep", "60"])  # for what ends the trial


def rank_test(a, b):
    """z of the Mann-Whitney test."""
    ranks, both = {}, sorted([(v, 0) for v in a] + [(v, 1) for v in b])
    total, at = 0.0, 0
    while at < len(both):
        end = at
        while end < len(both) and both[end][0] == both[at][0]:
            end += 1
        total += sum(which for _, which in both[at:end]) * (at + end + 1) / 2
        at = end
    n, m = len(a), len(b)
    return (total - m * (n + m + 1) / 2) / math.sqrt(n * m * (n + m + 1) / 12)


def idle(options):
    """Thousands of idle connections, and hundreds that send a byte at a time: others are served all the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(options.connections, (hard if hard != resource.RLIM_INFINITY else 1 << 20) - 500)
    with Server(options, "-c", "512") as server:
        before = server.resources()
        began = time.monotonic()
        connections = []
        # Clients at several addresses of this machine: a port each does not reach for all.
        for i in range(count):
            connection = socket.socket()
            connection.bind((f"127.0.0.{2 + i % 8}", 0))
            connection.connect(("127.0.0.1", server.port))
            connections.append(connection)
        opened = time.monotonic() - began
        slow = connections[:400]
        for connection in slow:
            connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\n")
        check(server.ask("/health")[0] == 200, "/health among them")
        began = time.monotonic()
        answer = server.json("/completion", {"prompt": "hello", "n_predict": 8, "ignore_eos": True})
        took = time.monotonic() - began
        check(answer["tokens_predicted"] == 8, "a request among them is answered")
        check(server.metric("quipu_http_connections") > count * 0.99, "all are connected")
        full = server.resources()
        print(f"  {count} connections in {opened:.1f} s; a request among them took {took:.2f} s; "
              f"memory {before['rss_mib']} to {full['rss_mib']} MiB, threads {before['threads']} to {full['threads']}")
        check(full["threads"] == before["threads"], "no thread a connection")
        end, closed = time.monotonic() + 13, set()
        while time.monotonic() < end and len(closed) < len(slow):
            for i, connection in enumerate(slow):
                if i in closed:
                    continue
                try:
                    connection.sendall(b"a")  # a header that never ends
                    connection.setblocking(False)
                    if b"408" in connection.recv(4096):
                        closed.add(i)
                except BlockingIOError:
                    pass
                except OSError:
                    closed.add(i)
                finally:
                    connection.setblocking(True)
            time.sleep(0.3)
        check(len(closed) == len(slow), f"{len(closed)} of {len(slow)} slow senders were told 408 in time")
        [c.close() for c in connections]
        end = time.monotonic() + 20
        while server.resources()["fds"] > before["fds"] + 5 and time.monotonic() < end:
            time.sleep(0.1)
        check(server.resources()["fds"] <= before["fds"] + 5, "their descriptors are closed")


def first_token(options):
    """A short request while a long prompt is read: its first token waits for one chunk, not for the prompt."""
    batch = 256
    with Server(options, "-c", "8192", "-b", str(batch)) as server:
        source = random.Random(6)
        server.json("/completion", {"prompt": "hello", "n_predict": 4})
        waits, wholes, chunks = [], [], []
        for turn in range(options.turns):
            long = " ".join(source.choices(["stone", "river", "light", "sound"], k=4000))
            done = {}

            def read():
                began = time.monotonic()
                answer = server.json("/completion", {"prompt": long, "n_predict": 1, "cache_prompt": False})
                done.update(seconds=time.monotonic() - began, tokens=answer["tokens_evaluated"])
            thread = threading.Thread(target=read)
            thread.start()
            time.sleep(0.5 + 0.3 * source.random())
            began = time.monotonic()
            server.json("/completion", {"prompt": f"hello {turn}", "n_predict": 1, "cache_prompt": False})
            waits.append(time.monotonic() - began)
            check(thread.is_alive(), "the long prompt is still being read")
            thread.join()
            wholes.append(done["seconds"])
            chunks.append(done["seconds"] / math.ceil(done["tokens"] / batch))
        print(f"  the whole prompt took {statistics.median(wholes):.2f} s, a chunk of {batch} {statistics.median(chunks):.3f} s; "
              f"the short request {statistics.median(waits):.3f} s (most {max(waits):.3f})")
        # The chunk under way, and the one that it is in itself.
        check(statistics.median(waits) < 2.5 * max(chunks), "the wait is bounded by a chunk")


def killed(options):
    """Kill -9 while it generates and saves: what was saved loads or is refused, and gives the bytes it would have given."""
    source = random.Random(9)
    prompts = [" ".join(source.choices(["red", "blue", "bird", "stone"], k=150 + 40 * i)) for i in range(6)]

    def body(prompt, slot):
        return {"prompt": prompt, "n_predict": 12, "temperature": 0, "ignore_eos": True, "return_tokens": True,
                "id_slot": slot}
    with Server(options, "-c", "1024", "--parallel", "1", "--no-prefix-cache") as server:
        alone = [server.json("/completion", body(p, -1))["tokens"] for p in prompts]
    loaded = refused = reused = left = 0
    with tempfile.TemporaryDirectory() as slots, tempfile.TemporaryDirectory() as cache:
        flags = ["-c", "1024", "--parallel", "3", "--slot-save-path", slots, "--cache-dir", cache, "--memory-budget", "420M"]
        for turn in range(options.kills):
            server = Server(options, *flags)
            left += sum(".tmp-" in n for n in os.listdir(slots))
            for name in sorted(os.listdir(slots)):
                status, content, _ = server.ask("/slots/0?action=restore", {"filename": name})
                check(status in (200, 400), f"a file of the time before the kill: {status} {content}")
                loaded += status == 200
                refused += status == 400
                if status == 200:
                    answer = server.json("/completion", body(prompts[int(name)], 0))
                    reused += answer["tokens_cached"] > 0
                    check(answer["tokens"] == alone[int(name)], f"what {name} holds gives the same bytes")

            saved = []

            def work(slot):
                while True:
                    at = random.randrange(len(prompts))
                    try:
                        answer = server.json("/completion", body(prompts[at], slot))
                        check(answer["tokens"] == alone[at], "the same bytes beside the cache of the time before")
                        status, content, _ = server.ask(f"/slots/{slot}?action=save", {"filename": str(at)})
                        check(status == 200, f"saving answers {status}: {content}")
                        saved.append(at)
                    except (OSError, http.client.HTTPException):
                        return
            threads = [threading.Thread(target=work, args=(slot,)) for slot in range(3)]
            [t.start() for t in threads]
            end = time.monotonic() + 60
            while len(saved) < 2 and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(random.random())
            check(server.process.poll() is None, "the server lives until it is killed")
            server.process.kill()
            server.process.wait()
            server.reader.join()
            [t.join() for t in threads]
    print(f"  {options.kills} kills: {loaded} saved slots loaded ({reused} reused), {refused} refused, {left} half files left")
    check(loaded > 0 and reused > 0, "something was saved and loaded")
    check(left == 0, "what a killed server was writing is removed")


TRIALS = [stop_strings, stop_strings_streamed, context_overflow, disconnects, logprobs, cache_reuse, crowd, sampler_edges,
          cors, key_timing, idle, first_token, killed]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quipu")
    parser.add_argument("model")
    parser.add_argument("trials", nargs="*", help=", ".join(t.__name__ for t in TRIALS))
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--drops", type=int, default=200)
    parser.add_argument("--timings", type=int, default=5000, help="requests with each kind of key")
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    for trial in TRIALS:
        if options.trials and trial.__name__ not in options.trials:
            continue
        print(f"{trial.__name__}: {trial.__doc__.splitlines()[0]}", flush=True)
        try:
            trial(options)
        except Exception as error:  # the next trial has a server of its own
            check(False, f"{type(error).__name__}: {error}")
    print(f"{len(trial_server.failures)} failures")
    return 1 if trial_server.failures else 0


if __name__ == "__main__":
    sys.exit(main())

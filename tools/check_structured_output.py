#!/usr/bin/env python3
"""Generates under random JSON schemas and validates with an independent validator.

    check_structured_output.py URL [-n 500] [--seed 1] [--tokens 200] [--temp 1.5] [--at-once 16]

Needs the Python package jsonschema, and `quipu serve` at URL. Each generation is a chat completion with `response_format`.
Every text must parse and be valid, also where the tokens ran out; prints one line for each that is not, and a summary. Exit
status 1 when there is any.
"""
import argparse
import concurrent.futures
import json
import random
import sys
import urllib.error
import urllib.request

import jsonschema

WORDS = ["name", "age", "id", "tags", "city", "price", "kind", "on", "x", "note", "größe", "a b", "q\"t"]


def scalar(rng):
    choice = rng.randrange(9)
    if choice == 0:
        low = rng.randint(-1000, 1000)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 5000)}
    if choice == 1:
        low = round(rng.uniform(-10, 10), 2)
        return {"type": "number", "minimum": low, "exclusiveMaximum": round(low + rng.uniform(0.5, 100), 2)}
    if choice == 2:
        low = rng.randint(0, 5)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 20)}
    if choice == 3:
        return {"type": "string", "pattern": rng.choice(
            ["^[A-Z]{2}-\\d{3,5}$", "^(cat|dog)s?$", "^[^aeiou]{1,8}$", "^\\w+@\\w+\\.com$", "^a.{0,5}b$"])}
    if choice == 4:
        return {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid", "ipv4", "email"])}
    if choice == 5:
        return {"enum": rng.sample(["red", "green", 1, 2.5, None, True, "a\"b", [1, 2]], rng.randint(1, 5))}
    if choice == 6:
        return {"type": rng.choice(["boolean", "null", ["string", "null"], ["integer", "boolean"]]), "maxLength": 12}
    if choice == 7:
        return {"type": "integer", "multipleOf": rng.randint(2, 12), "minimum": 0, "maximum": 1000}
    return {"type": "string", "maxLength": 15, "not": {"enum": ["", "a"]}}


def schema(rng, depth):
    choice = rng.randrange(8) if depth > 0 else 0
    if choice < 2:
        return scalar(rng)
    if choice < 5:
        names = rng.sample(WORDS, rng.randint(1, 4))
        result = {"type": "object", "properties": {n: schema(rng, depth - 1) for n in names},
                  "required": rng.sample(names, rng.randint(0, len(names)))}
        result["additionalProperties"] = rng.choice([False, False, {"type": "integer", "maximum": 99, "minimum": 0}])
        if result["additionalProperties"]:
            result["maxProperties"] = 5
        return result
    if choice == 5:
        low = rng.randint(0, 2)
        return {"type": "array", "items": schema(rng, depth - 1), "minItems": low, "maxItems": low + rng.randint(0, 2)}
    if choice == 6:
        return {"anyOf": [schema(rng, depth - 1) for _ in range(rng.randint(2, 3))]}
    return {"type": "array", "prefixItems": [schema(rng, depth - 1) for _ in range(2)], "items": False, "minItems": 2}


def ask(options, i):
    """The schema of generation i, and its answer."""
    wanted = schema(random.Random(options.seed * 100003 + i), 3)
    body = {"messages": [{"role": "user", "content": "Give me an example."}], "temperature": float(options.temp), "seed": i,
            "max_tokens": options.tokens,
            "response_format": {"type": "json_schema", "json_schema": {"name": "example", "schema": {"allOf": [wanted]}}}}
    request = urllib.request.Request(options.url.rstrip("/") + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=3600) as reply:
            choice = json.load(reply)["choices"][0]
            return wanted, choice["message"]["content"], choice["finish_reason"], None
    except urllib.error.HTTPError as error:
        return wanted, None, None, error.read().decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("-n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temp", default="1.5")
    parser.add_argument("--at-once", type=int, default=16)
    options = parser.parse_args()
    counts = {"valid": 0, "of them led to their end": 0, "cut": 0, "bad": 0, "refused": 0}
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        answers = pool.map(lambda i: ask(options, i), range(options.n))
        for i, (wanted, text, finish, refusal) in enumerate(answers):
            if refusal is not None:
                counts["refused"] += 1
                print(f"{i}: {refusal} {json.dumps(wanted)}")
                continue
            try:
                jsonschema.validate(json.loads(text), wanted, jsonschema.Draft202012Validator,
                                    format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
                counts["valid"] += 1
                counts["of them led to their end"] += finish == "length"
            except (ValueError, jsonschema.ValidationError) as error:
                kind = "cut" if finish == "length" and isinstance(error, ValueError) else "bad"
                counts[kind] += 1
                print(f"{i}: {kind}: {text!r}: {str(error)[:200]} {json.dumps(wanted)}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in counts.items()), flush=True)
    sys.exit(0 if counts["valid"] == options.n else 1)


if __name__ == "__main__":
    main()

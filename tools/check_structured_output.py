#!/usr/bin/env python3
"""Generates under random JSON schemas and validates with an independent validator.

    check_structured_output.py QUIPU MODEL [-n 500] [--seed 1] [--tokens 300] [--temp 1.5]

Needs the Python package jsonschema. Each generation is one `quipu run --json-schema`. A text that was not cut by the
token limit must parse and be valid; prints one line for each that is not, and a summary. Exit status 1 when there is any.
"""
import argparse
import json
import random
import subprocess
import sys

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quipu")
    parser.add_argument("model")
    parser.add_argument("-n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--temp", default="1.5")
    options = parser.parse_args()
    counts = {"valid": 0, "cut": 0, "bad": 0, "refused": 0}
    for i in range(options.n):
        rng = random.Random(options.seed * 100003 + i)
        wanted = schema(rng, 3)
        run = subprocess.run([options.quipu, "run", "-m", options.model, "-p", "Give me an example.", "--json", "--temp",
                              options.temp, "--seed", str(i), "-n", str(options.tokens), "-c", "1024", "-t", "1",
                              "--json-schema", "{\"allOf\": [" + json.dumps(wanted) + "]}"],
                             capture_output=True, text=True)
        if run.returncode != 0:
            counts["refused"] += 1
            print(f"{i}: {run.stderr.strip()} {json.dumps(wanted)}")
            continue
        answer = json.loads(run.stdout)
        try:
            value = json.loads(answer["text"])
            jsonschema.validate(value, wanted, jsonschema.Draft202012Validator,
                                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
            counts["valid"] += 1
        except (ValueError, jsonschema.ValidationError) as error:
            if answer["stop"] == "length":
                counts["cut"] += 1
                continue
            counts["bad"] += 1
            print(f"{i}: {answer['text']!r}: {str(error)[:200]} {json.dumps(wanted)}")
    print(", ".join(f"{name} {count}" for name, count in counts.items()), flush=True)
    sys.exit(1 if counts["bad"] or counts["refused"] else 0)


if __name__ == "__main__":
    main()

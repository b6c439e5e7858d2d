#!/usr/bin/env python3
"""lm-eval through the server, and the same without it: likelihood_task.py QUIPU MODEL [options].

    pip install "lm-eval[api]"
    likelihood_task.py build/release/quipu smollm2

Runs EleutherAI's lm-eval on a small multiple-choice task of its own (a local file, no network) against `/v1/completions` of a
`quipu serve`, with echoed log probabilities and lm-eval's "remote" tokenizer (`/tokenize`, `/tokenizer_info`). Then has
`quipu eval loglikelihood` score every pair of context and continuation that lm-eval asked for, without a server. The
log-likelihoods must agree within 1e-4, what is greedy and the accuracy exactly; exit status 1 when they do not.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import local_server

DOCUMENTS = [
    ("The capital of France is", [" Paris", " Rome", " a river", " Madrid"], 0),
    ("The capital of Italy is", [" Berlin", " Rome", " London", " Lisbon"], 1),
    ("Water freezes when it gets very", [" loud", " green", " cold", " old"], 2),
    ("The sun rises in the", [" west", " kitchen", " night", " east"], 3),
    ("Two plus two is", [" four", " seven", " nine", " eleven"], 0),
    ("A week has", [" three days", " seven days", " forty days", " ten days"], 1),
    ("Fish live in the", [" sky", " desert", " water", " library"], 2),
    ("Birds can fly because they have", [" keys", " books", " wheels", " wings"], 3),
    ("Question: What do bees make?\nAnswer:", [" honey", " bread", " iron", " paper"], 0),
    ("Question: Which animal barks?\nAnswer:", [" cat", " dog", " fish", " snake"], 1),
    ("Question: What colour is the sky on a clear day?\nAnswer:", [" black", " red", " blue", " brown"], 2),
    ("Question: How many legs does a spider have?\nAnswer:", [" two", " three", " five", " eight"], 3),
    ("The opposite of hot is ", ["cold", "warm", "spicy", "fire"], 0),
    ("The opposite of big is ", ["large", "small", "tall", "wide"], 1),
    ("She opened the door with her", [" ocean", " cloud", " key", " song"], 2),
    ("He wrote a letter with a", [" spoon", " shoe", " cow", " pen"], 3),
    ("La capitale de l'Espagne est", [" Madrid", " Paris", " Tokyo", " Oslo"], 0),
    ("def add(a, b):\n    return", [" a - c", " a + b", " None.x", " print"], 1),
    ("1, 2, 3, 4, 5,", [" 1", " 9", " 6", " 0"], 2),
    ("Monday, Tuesday, Wednesday,", [" March", " Sunday", " Friday", " Thursday"], 3),
    ("The Earth goes around the", [" Sun, which is a star.", " Moon, which is a cheese.", " house.", " clock."], 0),
    ("日本の首都は", ["大阪", "東京", "京都", "パリ"], 1),
    ("Bread is baked in an", [" office", " aeroplane", " oven", " envelope"], 2),
    ("Snow is", [" hot and black", " made of glass", " a kind of bird", " cold and white"], 3),
]

TASK = """
task: quipu_choices
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""


def through_the_server(options, folder):
    """(accuracy, [(context, continuation, log-likelihood, greedy)]) as lm-eval has them."""
    os.environ.update(HF_HOME=str(folder / "hf"), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                      NO_PROXY="*", no_proxy="*", OPENAI_API_KEY="none")
    import lm_eval  # reads the environment
    from lm_eval.tasks import TaskManager
    with open(folder / "choices.jsonl", "w") as file:
        for question, choices, answer in DOCUMENTS:
            file.write(json.dumps({"question": question, "choices": choices, "answer": answer}) + "\n")
    (folder / "task").mkdir()
    (folder / "task" / "quipu_choices.yaml").write_text(TASK.format(file=folder / "choices.jsonl"))
    server, port = local_server.start(options.quipu, options.model, "-c", "512")
    threading.Thread(target=server.stderr.read, daemon=True).start()
    try:
        results = lm_eval.simple_evaluate(
            model="local-completions", tasks=["quipu_choices"], log_samples=True, bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(folder / "task")),
            model_args={"model": "default", "base_url": f"http://127.0.0.1:{port}/v1/completions", "tokenizer_backend": "remote",
                        "num_concurrent": 4, "max_length": 512})
    finally:
        server.terminate()
        server.wait(timeout=60)
    pairs = []
    for sample in results["samples"]["quipu_choices"]:
        arguments = sample["arguments"]
        arguments = arguments.values() if isinstance(arguments, dict) else arguments
        for argument, answer in zip(arguments, sample["filtered_resps"]):
            context, continuation = (argument["arg_0"], argument["arg_1"]) if isinstance(argument, dict) else argument
            pairs.append((context, continuation, float(answer[0]), bool(answer[1])))
    return results["results"]["quipu_choices"]["acc,none"], pairs


def through_the_library(options, folder, pairs):
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps({"context": c, "continuation": k}) + "\n" for c, k, _, _ in pairs))
    out = subprocess.run([options.quipu, "eval", "loglikelihood", "-m", options.model, "-f", str(file), "-c", "512", "--json"],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out)["pairs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quipu")
    parser.add_argument("model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        accuracy, pairs = through_the_server(options, folder)
        scores = through_the_library(options, folder, pairs)
    worst, bad = 0.0, len(scores) != len(pairs)
    for (context, continuation, log_likelihood, greedy), score in zip(pairs, scores):
        difference = abs(log_likelihood - score["log_likelihood"])
        worst = max(worst, difference)
        if difference > 1e-4 or greedy != score["greedy"]:
            bad = True
            print(f"DIFFERENT: {context!r} + {continuation!r}: lm-eval {log_likelihood}, greedy {greedy}; library {score}")
    right, at = 0, 0
    for _, choices, answer in DOCUMENTS:
        values = [s["log_likelihood"] for s in scores[at:at + len(choices)]]
        right += values.index(max(values)) == answer
        at += len(choices)
    ours = right / len(DOCUMENTS)
    bad = bad or abs(ours - accuracy) > 1e-9
    print(f"{len(pairs)} pairs of {len(DOCUMENTS)} documents: accuracy {accuracy:.4f} by lm-eval, {ours:.4f} by the library; "
          f"log-likelihoods differ by at most {worst:.1e}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

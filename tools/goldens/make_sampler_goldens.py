#!/usr/bin/env python3
"""Goldens for tests/engine/sampler_golden_test.cpp: what llama.cpp's samplers leave of given logits.

Run:  pip install llama-cpp-python numpy
      python tools/goldens/make_sampler_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf > tests/goldens/engine/samplers.txt
The model is only read for its vocabulary, which the DRY sampler asks for. Made with llama-cpp-python 0.3.36.

Format, one block a case, ended by an empty line:
  case NAME STAGE           stage as quipu names it ("mirostat" for the sequence of draws)
  set PARAMETER VALUE       fields of SamplingParams that differ from "everything off"
  breaker ID...             a tokenised sequence breaker
  history ID...
  logits VALUE...           ids are 0..n-1
  keep ID:P ID:P ...        softmax over what is left, by id, P > 0 only
  drawn ID                  (mirostat) the token llama.cpp drew from that set, which moves mu
"""
import ctypes
import sys

import llama_cpp as L
import numpy as np


def apply(sampler, logits):
    n = len(logits)
    data = (L.llama_token_data * n)(*[L.llama_token_data(i, float(v), 0.0) for i, v in enumerate(logits)])
    array = L.llama_token_data_array(ctypes.cast(data, L.llama_token_data_p), n, -1, False)
    L.llama_sampler_apply(sampler, ctypes.byref(array))
    left = {array.data[i].id: array.data[i].logit for i in range(array.size)}
    selected = array.data[array.selected].id if array.selected >= 0 else None
    values = np.array(list(left.values()), dtype=np.float64)
    weights = np.exp(values - values.max())
    probabilities = weights / weights.sum()
    return {i: p for i, p in zip(left, probabilities) if p > 0}, selected


def show(name, stage, settings, logits, keep, history=(), breakers=(), drawn=None):
    print("case", name, stage)
    for key, value in settings.items():
        print("set", key, repr(value))
    for breaker in breakers:
        print("breaker", *breaker)
    if len(history):
        print("history", *history)
    print("logits", *[f"{float(v):.9g}" for v in logits])
    print("keep", *[f"{i}:{p:.9g}" for i, p in sorted(keep.items())])
    if drawn is not None:
        print("drawn", drawn)
    print()


def main():
    rng = np.random.default_rng(20250901)
    silent = L.llama_log_callback(lambda *_: None)
    L.llama_log_set(silent, None)
    model_params = L.llama_model_default_params()
    model_params.vocab_only = True
    model = L.llama_model_load_from_file(sys.argv[1].encode(), model_params)
    vocab = L.llama_model_get_vocab(model)

    def small():
        return np.float32(rng.normal(0, 2.5, 64))

    def large():
        return np.float32(rng.normal(0, 1.5, 900))

    for k in (1, 5, 63):
        x = small()
        show(f"top_k_{k}", "top_k", {"top_k": k}, x, apply(L.llama_sampler_init_top_k(k), x)[0])
    for p, keep in ((0.3, 1), (0.8, 1), (0.95, 1), (0.5, 20), (0.0, 1)):
        for tag, make in (("small", small), ("large", large)):
            x = make()
            show(f"top_p_{p}_{keep}_{tag}", "top_p", {"top_p": p, "min_keep": keep}, x,
                 apply(L.llama_sampler_init_top_p(p, keep), x)[0])
    for p, keep in ((0.02, 1), (0.3, 1), (0.9, 7)):
        for tag, make in (("small", small), ("large", large)):
            x = make()
            show(f"min_p_{p}_{keep}_{tag}", "min_p", {"min_p": p, "min_keep": keep}, x,
                 apply(L.llama_sampler_init_min_p(p, keep), x)[0])
    for p, keep in ((0.2, 1), (0.5, 1), (0.95, 1), (0.1, 30)):
        for tag, make in (("small", small), ("large", large)):
            x = make()
            show(f"typical_{p}_{keep}_{tag}", "typ_p", {"typical_p": p, "min_keep": keep}, x,
                 apply(L.llama_sampler_init_typical(p, keep), x)[0])
    for n in (0.5, 1.0, 2.5):
        x = small()
        show(f"top_n_sigma_{n}", "top_n_sigma", {"top_n_sigma": n}, x,
             apply(L.llama_sampler_init_top_n_sigma(n), x)[0])
    for t, keep in ((0.05, 1), (0.1, 1), (0.1, 62), (0.5, 1), (0.2, 1)):
        x = small()
        show(f"xtc_{t}_{keep}", "xtc", {"xtc_probability": 1.0, "xtc_threshold": t, "min_keep": keep}, x,
             apply(L.llama_sampler_init_xtc(1.0, t, keep, 1), x)[0])
    for t in (0.25, 1.7):
        x = small()
        show(f"temperature_{t}", "temperature", {"temperature": t}, x, apply(L.llama_sampler_init_temp(t), x)[0])
    for t, delta, exponent in ((0.8, 0.5, 1.0), (1.0, 1.5, 2.0), (0.7, 0.2, 0.5)):
        x = small()
        show(f"dynatemp_{t}_{delta}_{exponent}", "temperature",
             {"temperature": t, "dynatemp_range": delta, "dynatemp_exponent": exponent}, x,
             apply(L.llama_sampler_init_temp_ext(t, delta, exponent), x)[0])

    for last_n, repeat, freq, present in ((64, 1.3, 0.0, 0.0), (64, 1.0, 0.4, 0.0), (64, 1.0, 0.0, 0.7),
                                          (5, 1.2, 0.1, 0.2), (40, 0.8, -0.3, -0.1)):
        x = small()
        history = rng.integers(0, 24, 40)
        sampler = L.llama_sampler_init_penalties(L.llama_vocab_n_tokens(vocab), last_n, repeat, freq, present)
        for token in history:
            L.llama_sampler_accept(sampler, int(token))
        show(f"penalties_{last_n}_{repeat}_{freq}_{present}", "penalties",
             {"repeat_last_n": last_n, "repeat_penalty": repeat, "frequency_penalty": freq,
              "presence_penalty": present}, x, apply(sampler, x)[0], history)

    # Token 25 is the only one of the first 64 whose text holds this character, so it is its only tokenisation here.
    texts = [L.llama_vocab_get_text(vocab, i).decode() for i in range(64)]
    breaker_text = texts[25]
    assert len(breaker_text) == 1 and sum(breaker_text in t for t in texts) == 1
    breakers = (ctypes.c_char_p * 1)(breaker_text.encode())
    for multiplier, base, allowed, last_n, alphabet, use in (
            (0.8, 1.75, 2, 64, (30, 31, 32), 0), (0.5, 2.0, 1, 64, (40, 41), 0), (0.8, 1.75, 3, 20, (50, 51), 0),
            (0.8, 1.3, 2, 64, (26, 27, 26, 27, 26, 27, 25), 1), (0.3, 1.2, 0, 64, (25, 26), 1), (1.0, 1.5, 2, 64, (45,), 0)):
        x = small()
        history = rng.choice(alphabet, 48)
        sampler = L.llama_sampler_init_dry(vocab, multiplier, base, allowed, last_n, breakers if use else None, use)
        for token in history:
            L.llama_sampler_accept(sampler, int(token))
        show(f"dry_{multiplier}_{base}_{allowed}_{last_n}_{use}", "dry",
             {"dry_multiplier": multiplier, "dry_base": base, "dry_allowed_length": allowed,
              "dry_penalty_last_n": last_n}, x, apply(sampler, x)[0], history, [[25]] if use else [])

    for tau, eta in ((1.0, 0.1), (3.0, 0.5)):
        sampler = L.llama_sampler_init_mirostat_v2(7, tau, eta)
        for step in range(6):
            x = small()
            keep, drawn = apply(sampler, x)
            show(f"mirostat_{tau}_{eta}_{step}", "mirostat", {"mirostat_tau": tau, "mirostat_eta": eta}, x, keep,
                 drawn=drawn)


main()

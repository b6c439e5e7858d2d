#!/usr/bin/env python3
"""Confirms what tests/text expects of text after a control token, with Hugging Face's BPE on a llama vocabulary.

    python3 check_llama_spm.py llama-spm.gguf

Needs the packages gguf and tokenizers (used: 0.23.3). The tokenizer is built from the vocabulary as transformers
converts a SentencePiece model: merges are all splits of a token into two tokens, by score; U+2581 is put in front of
every stretch of text between control tokens and replaces spaces; bytes are the fallback. The result printed in November 2026:

    'Hello</s> world'     [15043, 2, 29871, 3186]
    'Hello</s>  world'    [15043, 2, 259, 3186]
    'Hello</s>   world'   [15043, 2, 1678, 3186]
"""

import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, models, normalizers

reader = GGUFReader(sys.argv[1])
field = {name: reader.fields["tokenizer.ggml." + name].contents() for name in ("tokens", "scores", "token_type")}
tokens, scores = field["tokens"], field["scores"]
vocab = {t: i for i, t in enumerate(tokens)}
merges = []
for piece, index in vocab.items():
    local = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
    local.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    merges += [(scores[index], pair) for pair in local]
merges.sort(key=lambda item: -item[0])
tokenizer = Tokenizer(models.BPE(vocab, [pair for _, pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
tokenizer.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True)
                              for i, kind in enumerate(field["token_type"]) if kind == 3])
for text in ("Hello</s> world", "Hello</s>  world", "Hello</s>   world", "<s>a</s>b", "<s>  two"):
    print(ascii(text).ljust(24), tokenizer.encode(text, add_special_tokens=False).ids)

#!/usr/bin/env python3
"""Tiny tokenizers of every kind in Hugging Face's files, with the ids that their own libraries give.

    pip install tokenizers sentencepiece protobuf
    make_convert_tokenizers.py TEXT      TEXT: a text file to train on (English prose)

writes tests/goldens/convert/tokenizers/NAME/: tokenizer.json, tokenizer_config.json, tokenizer.model where there is
one, and ids.json: texts with their ids, special tokens included.
"""

import io
import json
import pathlib
import shutil
import sys

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers)

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "convert" / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = ["", " ", "Hello world", "the house of the man and the dog", "  two  spaces\n\nand lines\t", "I'M sure they'll",
         "12345 1 22 333", "caf\u00e9 na\u00efve \u4f60\u597d \U0001f600!", "a<|end|>b", "x = f(y)[0]; // z",
         "hi</s>", "Queen\u2019s <mark> text", "\u00c4pfel UPPER lower"]


def byte_level(text, pattern, size, name, post=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    tokenizer.add_tokens([AddedToken("<mark>", normalized=False), AddedToken("<|turn|>")])
    if post:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", 280)])
    config = {"bos_token": "<|begin|>", "eos_token": {"__type": "AddedToken", "content": "<|end|>", "special": True},
              "tokenizer_class": "PreTrainedTokenizerFast",
              "chat_template": "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"}
    save(name, tokenizer, config)


def spm(text, name):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()), model_writer=model, model_type="bpe", vocab_size=360, byte_fallback=True,
        character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    ids = {piece: i for i, piece in enumerate(pieces)}
    # As transformers makes the merges of a SentencePiece model: all pairs of pieces that make a piece.
    merges = []
    for piece, i in ids.items():
        pairs = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in ids and piece[k:] in ids]
        pairs.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(processor.get_score(i), pair) for pair in pairs]
    merges = [pair for _, pair in sorted(merges, key=lambda item: -item[0])]
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    config = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>",
              "unk_token": "<unk>", "tokenizer_class": "LlamaTokenizer"}
    save(name, tokenizer, config)
    (OUT / name / "tokenizer.model").write_bytes(model.getvalue())


def unigram(text, name):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>",
                                      show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))])
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "cls_token": "<s>",
              "sep_token": "</s>", "tokenizer_class": "XLMRobertaTokenizer"}
    save(name, tokenizer, config)


def wordpiece(text, name):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=128, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                        show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    config = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]",
              "mask_token": "[MASK]", "do_lower_case": True, "tokenizer_class": "BertTokenizer"}
    save(name, tokenizer, config)


def save(name, tokenizer, config):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    # SentencePiece, which GGUF's Unigram follows, drops a lone space; the tokenizers library keeps it.
    texts = [text for text in TEXTS if name != "unigram" or text != " "]
    cases = [{"text": text, "ids": tokenizer.encode(text).ids} for text in texts]
    (folder / "ids.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")
    print(name, tokenizer.get_vocab_size(), sum(p.stat().st_size for p in folder.iterdir()))


def main():
    # What the trained pieces look like matters little; a part of the text will do.
    text = "".join(c for c in pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")[:60000] if ord(c) < 0x100)
    byte_level(text, LLAMA3, 280, "bpe", post=True, ignore_merges=True)
    byte_level(text, QWEN2, 280, "bpe_qwen2")
    byte_level(text, None, 280, "bpe_gpt2")
    spm(text, "spm")
    unigram(text, "unigram")
    wordpiece(text, "wordpiece")


if __name__ == "__main__":
    main()

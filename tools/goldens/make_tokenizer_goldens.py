#!/usr/bin/env python3
"""Makes the small vocabularies and expected ids in tests/goldens/text.

    python3 make_tokenizer_goldens.py OUT_DIR

Needs the packages tokenizers (made with 0.23.3) and sentencepiece (0.2.3) with protobuf. Every id, piece and
decoded text comes from those two libraries; the vocabularies are trained here on the few sentences below.

Each family file holds {"metadata": the tokenizer.ggml.* keys as a GGUF file would hold them, "cases": [{"text",
"ids"}]}; pieces.json holds, for each split rule, the pieces that Hugging Face's pre-tokenizers cut.
"""

import io
import json
import pathlib
import sys
import tempfile

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as spm_model
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.",
    "However little known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so",
    "well fixed in the minds of the surrounding families, that he is considered as the rightful property of some one or other.",
    "My dear Mr. Bennet, said his lady to him one day, have you heard that Netherfield Park is let at last?",
    "for (int i = 0; i < 128; ++i) { sum += values[i] * 2.5; }   // the sum of 128 values",
    "    if x == 1234:\n        return 'done'\n\n\n    else:\n\t\treturn None\n",
    "Grüße aus München, à bientôt, señor. Žluťoučký kůň. Привет, мир! Γειά σου Κόσμε.",
    "数学は面白い。中文分词测试，没有空格。 한국어 문장입니다. हिन्दी में लिखा हुआ।",
    "I'm sure we'll see that they've done what she'd asked; it's John's, isn't it? I'LL SAY SO.",
    "🙂🙂 👩‍👩‍👧 ❤️ 1234567890 3.14159 1,000,000",
] * 4

TEXTS = [
    "",
    " ",
    "  ",
    "   \n\n  \t x",
    "\n",
    "\n\n\n",
    "Hello, World! How are you?",
    " leading and trailing ",
    "It is a truth universally acknowledged",
    "I'm sure they'LL say it's John's.",
    "for (int i = 0; i < 1234567; ++i)",
    "    indented\n        more\n\n\nend",
    "Grüße, naïve façade, ĳ ﬁ Å Å Ǆ",
    "Привет, мир! Γειά σου",
    "数学は面白い。中文分词测试",
    "한국어 हिन्दी में",
    "🙂👩‍👩‍👧❤️ é",
    "a\u00a0b\u2003c\u3000d\u200be",
    "12 345 6789 ½ ٣٤٥ 〇",
    "ＡＢＣ１２３　ｘ",
    "x" * 70 + " " * 9 + "y",
    "tabs\t\tand\r\nreturns\r\r",
    "ß ſ İ K µ",
    "\u0001\u0002 control \u007f",
    "snow ☃ man ☃☃ man",
]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+END|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*END"
         r"|NUM| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = CASED.replace("END", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?").replace("NUM", r"\p{N}{1,3}")
TEKKEN = CASED.replace("END", "").replace("NUM", r"\p{N}")
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
RULES = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [QWEN35],
    "gpt-4o": [GPT4O],
    "tekken": [TEKKEN],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "seed-coder": [QWEN2.replace(r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}\r\n]+")],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
                   r"|\s+(?!\S)|\s+"],
    "exaone-moe": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "jais-2": [LLAMA3.replace(r"\s+(?!\S)|\s+", r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)"
                              r"|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}")],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "gemma4": [r"[^\n]+|[\n]+"],
}

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def write(folder, name, value):
    path = folder / name
    path.write_text(json.dumps(value, ensure_ascii=True, indent=None, separators=(",", ":")).replace(
        '},{"text"', '},\n{"text"') + "\n")
    print(path, path.stat().st_size)


def split(regexes):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), "isolated") for r in regexes])


def pieces(folder):
    texts = TEXTS + [
        "A man's HELLO'S x'S 'ſ don'T", "camelCaseWORDS aÉÀb ǅa ʰx 中A中a", "a 1234567890 b12345c 1234_ 12345. ٣٤٥٦",
        "x  y   z\t\t\tw\n \n  \n", "…a،b۔c।d(e)f|g h", "http://a.b/c?d=e&f=/\n/\n", "e\u0301\u0301 क्षि a\u0301b",
        "\u180ea\u180e b\u0085c\u2028d", "。、「あ」〜ー々〇 漢字かなカナ", "a" * 9 + " " * 37 + "b", "!!!\n\n???\r\n...   ",
    ]
    out = {}
    for name, regexes in RULES.items():
        cut = split(regexes)
        out[name] = [[p for p, _ in cut.pre_tokenize_str(t)] for t in texts]
    write(folder, "pieces.json", {"texts": texts, "pieces": out})


def byte_level(folder, name, pre, regexes, size, ignore_merges, special):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([split(regexes), pre_tokenizers.ByteLevel(False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tok.train_from_iterator(CORPUS, trainer)
    for text, kind in special:
        token = AddedToken(text, normalized=False, special=kind == CONTROL)
        tok.add_special_tokens([token]) if kind == CONTROL else tok.add_tokens([token])
    vocab = sorted(tok.get_vocab().items(), key=lambda item: item[1])
    tokens = [t for t, _ in vocab]
    assert [i for _, i in vocab] == list(range(len(vocab)))
    kinds = dict(special)
    model = json.loads(tok.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    texts = TEXTS + ["<|im_start|>user\nHi<|im_end|>", "a<|end|><|endoftext|>b", "<|endoftext", "x    y  <pad>  z"]
    write(folder, name, {
        "metadata": {"model": "gpt2", "pre": pre, "tokens": tokens, "merges": merges,
                     "token_type": [kinds.get(t, NORMAL) for t in tokens],
                     "bos_token_id": tokens.index("<|endoftext|>"), "eos_token_id": tokens.index("<|endoftext|>")},
        "cases": [{"text": t, "ids": tok.encode(t, add_special_tokens=False).ids} for t in texts],
    })


def train_spm(**arguments):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, minloglevel=2, **arguments)
    proto = spm_model.ModelProto()
    proto.ParseFromString(model.getvalue())
    return spm.SentencePieceProcessor(model_proto=model.getvalue()), proto


def spm_metadata(proto, model):
    data = {
        "model": model,
        "tokens": [p.piece for p in proto.pieces],
        "scores": [p.score for p in proto.pieces],
        "token_type": [p.type for p in proto.pieces],
        "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0,
        "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
        "remove_extra_whitespaces": proto.normalizer_spec.remove_extra_whitespaces,
        "add_bos_token": False, "add_eos_token": False,
    }
    if proto.normalizer_spec.precompiled_charsmap:
        data["precompiled_charsmap"] = list(proto.normalizer_spec.precompiled_charsmap)
    return data


def sentencepiece_bpe(folder):
    sp, proto = train_spm(model_type="bpe", vocab_size=450, byte_fallback=True, normalization_rule_name="identity",
                          remove_extra_whitespaces=False, character_coverage=0.98, split_digits=True)
    write(folder, "spm.json", {
        "metadata": spm_metadata(proto, "llama"),
        "cases": [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in TEXTS],
    })


def unigram(folder, scratch):
    rules = scratch / "rules.tsv"
    mapping = {0x3000: " ", 0xA0: " ", 0x2003: " ", 0x9: " ", 0xA: " ", 0xD: " ", 0x200B: "", 0xFB01: "fi", 0x212B: "Å",
               0x133: "ij", 0x1C4: "DŽ"}
    mapping.update({0xFF01 + i: chr(0x21 + i) for i in range(94)})
    lines = ["%X\t%s" % (k, " ".join("%X" % ord(c) for c in v)) for k, v in mapping.items()]
    lines.append("41 30A\tC5")
    lines.append("65 301\tE9")
    rules.write_text("\n".join(lines) + "\n")
    for name, extra in (("unigram.json", dict(byte_fallback=False)),
                        ("unigram_bytes.json", dict(byte_fallback=True, remove_extra_whitespaces=False))):
        sp, proto = train_spm(model_type="unigram", vocab_size=456 if extra["byte_fallback"] else 205,
                              normalization_rule_tsv=str(rules), character_coverage=0.98, **extra)
        texts = [t for t in TEXTS if "\u0000" not in t]
        write(folder, name, {
            "metadata": spm_metadata(proto, "t5"),
            "cases": [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in texts],
        })


def wordpiece(folder):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=420, special_tokens=names, show_progress=False))
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]",
                                                       special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    vocab = sorted(tok.get_vocab().items(), key=lambda item: item[1])
    # GGUF marks the pieces that begin a word instead of those that continue one.
    tokens = [t if t in names else t[2:] if t.startswith("##") else "▁" + t for t, _ in vocab]
    texts = TEXTS + ["y" * 100, "y" * 101, "[MASK] is [SEP]", "İstanbul ÀÉÎ", "a\u0301b\u0327c", "\ufffdx\u0000y",
                     "한국어문장", "foo_bar-baz $5 (x)", "\u00adsoft\u00adhyphen"]
    write(folder, "wordpiece.json", {
        "metadata": {"model": "bert", "tokens": tokens,
                     "token_type": [UNKNOWN if t == "[UNK]" else CONTROL if t in names else NORMAL for t in tokens],
                     "unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3, "padding_token_id": 0,
                     "mask_token_id": 4},
        "cases": [{"text": t, "ids": tok.encode(t).ids} for t in texts],
    })


def plain_bpe(folder):
    """Merges on UTF-8 with U+2581 and byte tokens, the shape of Gemma 4's tokenizer."""
    alphabet = sorted({c for t in CORPUS[:5] for c in t.replace(" ", "▁")})
    tok = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tok.normalizer = normalizers.Replace(" ", "▁")
    tok.pre_tokenizer = pre_tokenizers.Split(Regex("[^\\n]+|\\n+"), "isolated")
    names = ["<pad>", "<eos>", "<bos>", "<unk>"] + ["<0x%02X>" % b for b in range(256)]
    tok.train_from_iterator([t for t in CORPUS[:5] * 4], trainers.BpeTrainer(
        vocab_size=420, special_tokens=names, initial_alphabet=alphabet, show_progress=False))
    # The trainer registers its special tokens as added ones; a fresh tokenizer has byte fallback only.
    model = json.loads(tok.to_str())["model"]
    plain = Tokenizer(models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]], byte_fallback=True,
                                 unk_token="<unk>"))
    plain.normalizer = tok.normalizer
    plain.pre_tokenizer = tok.pre_tokenizer
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    types = [CONTROL] * 3 + [UNKNOWN] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 260)
    write(folder, "plain_bpe.json", {
        "metadata": {"model": "gemma4", "tokens": tokens, "merges": [" ".join(m) for m in model["merges"]],
                     "token_type": types, "bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3,
                     "add_space_prefix": False, "add_bos_token": False},
        "cases": [{"text": t, "ids": plain.encode(t, add_special_tokens=False).ids} for t in TEXTS],
    })


def streams(folder):
    """Byte sequences and what Python makes of them: U+FFFD for each maximal subpart that is no character."""
    rows = [b"", b"abc", "é".encode(), "🙂".encode(), "👩‍👩‍👧".encode(), b"\xff", b"a\xffb", b"\xc3", b"\xc3(", b"\xe2\x82",
            b"\xe2\x82A", b"\xe2(\xa1", b"\xf0\x9f\x99", b"\xf0\x9f\x99\xf0\x9f\x99\x82", b"\xc0\xaf", b"\xe0\x80\xaf",
            b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\x80\x80", b"\xf0\x80\x80\x41",
            b"\xf1\x80\x80\xe1\x80\xc2b", b"\xef\xbf\xbd", b"\xe1\xa0\xc0"]
    write(folder, "streams.json", [{"bytes": list(r), "text": r.decode("utf-8", "replace")} for r in rows])


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pieces(folder)
    special = [("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("    ", USER),
               ("  ", USER), ("<pad>", USER)]
    byte_level(folder, "bpe_gpt2.json", "gpt-2", RULES["gpt-2"], 420, False, special)
    byte_level(folder, "bpe_llama3.json", "llama-bpe", RULES["llama-bpe"], 400, True, special[:3])
    byte_level(folder, "bpe_smollm.json", "smollm", RULES["smollm"], 400, False, special[:3])
    plain_bpe(folder)
    sentencepiece_bpe(folder)
    with tempfile.TemporaryDirectory() as scratch:
        unigram(folder, pathlib.Path(scratch))
    wordpiece(folder)
    streams(folder)


main()

#!/usr/bin/env python3
"""Goldens for tests/text/grammar/gbnf_tokens_test.cpp: which tokens llama.cpp lets through after given tokens,
under grammars that name tokens.

Run:  pip install llama-cpp-python
      python tools/goldens/make_gbnf_token_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf > tests/goldens/text/gbnf_tokens.json
The model is only read for its vocabulary. Made with llama-cpp-python 0.3.36 (llama.cpp of May 2026).

A token counts as let through when llama.cpp's mask has it and llama.cpp then takes it: its mask also shows
tokens that begin as characters and go on into a token's place, which end the process when they are drawn. Each
is tried in a process of its own. Of the vocabulary: all tokens without text, and some with (whole characters
only: those that are parts of one llama.cpp does not take for "any token but").

{"vocabulary": size, "tokens": [[id, "text"|"control"|"end", bytes as text]],
 "cases": [{"grammar", "places": [{"after": [id], "allowed": [id]}]}], "refused": [grammar]}
"""
import ctypes
import json
import os
import sys

os.environ["GGML_NO_BACKTRACE"] = "1"  # of the processes that are meant to end
import llama_cpp as L


def main():
    log = L.llama_log_callback(lambda *_: None)
    L.llama_log_set(log, None)
    params = L.llama_model_default_params()
    params.vocab_only = True
    model = L.llama_model_load_from_file(sys.argv[1].encode(), params)
    vocab = L.llama_model_get_vocab(model)
    size = L.llama_vocab_n_tokens(vocab)
    quiet = os.open(os.devnull, os.O_WRONLY)

    def piece(token):
        buffer = ctypes.create_string_buffer(512)
        length = L.llama_token_to_piece(vocab, token, buffer, 512, 0, True)
        return buffer.raw[:length]

    def ids(text):
        data = text.encode()
        out = (L.llama_token * 64)()
        return list(out[:L.llama_tokenize(vocab, data, len(data), out, 64, False, True)])

    def one(text):
        found = ids(text)
        assert len(found) == 1, (text, found)
        return found[0]

    # What the texts that the grammars below are about begin with, and every 1500th token.
    chosen = {ids(t)[0] for t in ["a", "b", "x", "ab", " the", " t", "th", "the", "h", "e", " ", "\n", "<", ">", "</",
                               "><", " a", " b", ".", "..", "bar", "foo", "1", "2", "22", "abc", "}", "{", "\"", "é"]}
    chosen |= set(range(17)) | set(range(300, size, 1500))
    tokens = []
    for token in sorted(chosen):
        text = piece(token)
        if L.llama_vocab_is_eog(vocab, token):
            use = "end"
        elif L.llama_vocab_get_attr(vocab, token) & L.LLAMA_TOKEN_ATTR_CONTROL:
            use = "control"
        else:
            use = "text"
        try:
            tokens.append([token, use, text.decode()])
        except UnicodeDecodeError:
            pass

    def sampler(grammar, after):
        made = L.llama_sampler_init_grammar(vocab, grammar.encode(), b"root")
        for token in after:
            L.llama_sampler_accept(made, token)
        return made

    def survives(made, token):
        child = os.fork()
        if child == 0:
            os.dup2(quiet, 2)
            L.llama_sampler_accept(made, token)
            os._exit(0)
        return os.waitpid(child, 0)[1] == 0

    def allowed(grammar, after):
        made = sampler(grammar, after)
        data = (L.llama_token_data * len(tokens))(*[L.llama_token_data(t[0], 0.0, 0.0) for t in tokens])
        array = L.llama_token_data_array(ctypes.cast(data, L.llama_token_data_p), len(tokens), -1, False)
        L.llama_sampler_apply(made, ctypes.byref(array))
        shown = [array.data[i].id for i in range(array.size) if array.data[i].logit == 0.0]
        left = [t for t in shown if survives(made, t)]
        L.llama_sampler_free(made)
        return left

    a, b, the, bar = one("a"), one("b"), one(" the"), one("bar")
    space_t, x, file_sep, foo = one(" t"), one("x"), one("<file_sep>"), one("foo")
    start, ab, newline, stars = one("<|im_start|>"), one("ab"), one("\n"), one("<gh_stars>")
    cases = [
        ('root ::= <[5]> "a"', [[], [5], [5, a]]),
        ('root ::= <|im_start|> [a-z]+ <file_sep>', [[], [start], [start, bar], [start, bar, file_sep]]),
        ('root ::= !<|im_start|>* <|im_start|> "b"', [[], [the, stars], [the, start], [the, start, b]]),
        (f'root ::= !<[{a}]> "b"', [[], [b], [stars], [b, b]]),
        (f'root ::= "ab" !<[{ab}]> | "a" <[{b}]> "."', [[], [a], [ab], [a, b], [ab, the]]),
        (f'root ::= <[{the}]> "x"', [[], [the], [the, x]]),
        (f'root ::= (<[{the}]> | " t") "x"', [[], [space_t], [the]]),
        ('root ::= !<[9]>{2} "."?', [[], [the], [the, the]]),
        ('root ::= "<" !<file_sep>+ ">"', [[], [one("<")], [one("<"), bar], [one("<"), bar, one(">")]]),
        ('root ::= item* end\nitem ::= !<file_sep>\nend ::= <file_sep> "\\n"',
         [[], [newline, bar], [bar, file_sep], [bar, file_sep, newline]]),
        (f'root ::= ("foo" <gh_stars> | !<[{foo}]> !<gh_stars>)+', [[], [foo], [bar], [foo, stars], [bar, foo]]),
        ('root ::= ("(" root ")" | <[7]>)', [[], [7]]),
        ('root ::= !<|im_end|>', [[], [the]]),
    ]
    refused = ['root ::= <nothere>', 'root ::= <[x]>', 'root ::= <[99999999999]>', 'root ::= !"a"', 'root ::= <[5',
               'root ::= <[5]', 'root ::= <file_sep', 'root ::= ! <[5]>', 'root ::= <[]>', 'root ::= <[-1]>',
               'root ::= !', 'root ::= <the >']
    for grammar in refused:
        assert not L.llama_sampler_init_grammar(vocab, grammar.encode(), b"root"), grammar
    out = {"vocabulary": size, "tokens": tokens,
           "cases": [{"grammar": grammar,
                      "places": [{"after": after, "allowed": allowed(grammar, after)} for after in places]}
                     for grammar, places in cases],
           "refused": refused}
    json.dump(out, sys.stdout, ensure_ascii=True, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()

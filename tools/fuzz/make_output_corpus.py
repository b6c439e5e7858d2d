#!/usr/bin/env python3
"""Writes the seeds of fuzz_output: `make_output_corpus.py [FOLDER]` (default tests/fuzz/corpus/output).

The first three bytes of a seed choose the family (its place in src/text/output/families.cpp), the options and
the size of the pieces; the rest is an answer as a model of that family writes it.
"""
import pathlib
import sys

BAR, SEP = "｜", "▁"
SEEDS = [
    (0, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        "<|constrain|>json<|message|>{\"a\": \"x\"}<|call|>"),
    (1, "all\nhi\n>>>f\n{\"a\": \"x\"}>>>python\nprint(1)"),
    (2, "<function=f>{\"a\": \"x\"}</function><|python_tag|>x = 1"),
    (3, "<|channel>thought\nhm\n<channel|><|tool_call>call:f{a:<|\"|>x<|\"|>,b:[1,{c:true}]}<tool_call|>"),
    (6, f"<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name=\"f\">\n<{BAR}DSML{BAR}parameter name=\"a\" "
        f"string=\"true\">x</{BAR}DSML{BAR}parameter>\n</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>"),
    (7, "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x</parameter>\n</invoke>\n</minimax:tool_call>"),
    (11, "<think>hm</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"),
    (14, "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=b>\n[{'c': None}]\n</parameter>\n"
         "</function>\n</tool_call>"),
    (16, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
         "<|tool_call_end|><|tool_calls_section_end|>"),
    (17, f"<{BAR}tool{SEP}calls{SEP}begin{BAR}><{BAR}tool{SEP}call{SEP}begin{BAR}>function<{BAR}tool{SEP}sep{BAR}>f\n"
         f"```json\n{{}}\n```<{BAR}tool{SEP}call{SEP}end{BAR}><{BAR}tool{SEP}calls{SEP}end{BAR}>"),
    (22, "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {}}\n]<|END_ACTION|>"),
    (25, "a[TOOL_CALLS]f[ARGS]{\"a\": \"\\u00e9\"}[TOOL_CALLS][{\"name\": \"f\", \"arguments\": \"{}\"}]"),
    (30, "<|tool_call_start|>[f(a='''x''', b=[1, (2.5, None)]), f(\"y\")]<|tool_call_end|>"),
    (35, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>\n<tool_call>no</tool_call>"),
    (36, "{\"name\": \"f\", \"parameters\": {\"a\": \"x\"}}; {\"name\": \"f\", \"parameters\": {}}"),
    (36, "<|python_tag|>f.call(a=\"x\", b=1)"),
]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/output")
    folder.mkdir(parents=True, exist_ok=True)
    for number, (family, text) in enumerate(SEEDS):
        for options in (0, 1):
            head = bytes([family, options, number % 8])
            (folder / f"seed-{number:02d}-{options}").write_bytes(head + text.encode())


main()

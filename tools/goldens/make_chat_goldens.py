#!/usr/bin/env python3
"""Renders small templates of each chat style with Jinja2, as transformers sets it up, into tests/goldens/text.

    python3 make_chat_goldens.py OUT.json

Needs jinja2 (made with 3.1.6). `smollm2` is the template inside the default model's file; the others are written for
this test in the shape of the models' own: same output expressions and conditions, other spelling and spacing. The
templates in `other` are none of the styles and must be refused.
"""

import json
import sys

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."
TEMPLATES = {
    "smollm2": ("chatml", "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
                "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
                "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    "chatml-plain": ("chatml", """{#- a comment #}
{%- for message in messages %}
    {{- "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\\n" }}
{%- endif %}
"""),
    "chatml-bos": ("chatml", "{{bos_token}}{% for message in messages %}"
                   "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
                   "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"),
    "llama3": ("llama3", "{% for m in [] %}{% endfor %}{% for message in messages %}"
               "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim"
               " + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
               "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"),
    "llama2": ("llama2", """{%- if messages[0].role == "system" %}
{%- set loop_messages = messages[1:] %}{%- set system_message = messages[0].content %}
{%- else %}{%- set loop_messages = messages %}{%- set system_message = false %}{%- endif %}
{%- for message in loop_messages %}
  {%- if (message.role == "user") != (loop.index0 % 2 == 0) %}{{- raise_exception(\"""" + ALTERNATE + """\") }}{%- endif %}
  {%- if loop.index0 == 0 and system_message != false %}
    {%- set content = "<<SYS>>\\n" + system_message + "\\n<</SYS>>\\n\\n" + message.content %}
  {%- else %}{%- set content = message.content %}{%- endif %}
  {%- if message.role == "user" %}{{- bos_token + "[INST] " + content.strip() + " [/INST]" }}
  {%- elif message.role == "assistant" %}{{- " " + content.strip() + " " + eos_token }}{%- endif %}
{%- endfor %}"""),
    "mistral": ("mistral", "{{ bos_token }}{% for message in messages %}"
                "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('" + ALTERNATE + "') }}{% endif %}"
                "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
                "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
                "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"),
    "mistral-space": ("mistral", "{{ bos_token }}{% for message in messages %}"
                      "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('" + ALTERNATE + "') }}{% endif %}"
                      "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
                      "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}"
                      "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"),
    "gemma3": ("gemma", """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception(\"""" + ALTERNATE + """\") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""),
    "phi3-first": ("phi3", "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') %}"
                   "{{'<|user|>' + '\\n' + message['content'] + '<|end|>' + '\\n' + '<|assistant|>' + '\\n'}}"
                   "{% elif (message['role'] == 'assistant') %}{{message['content'] + '<|end|>' + '\\n'}}{% endif %}{% endfor %}"),
    "zephyr": ("zephyr", """{% for message in messages %}
{% if message.role == "user" %}
{{ "<|user|>\\n" + message.content + eos_token }}
{% elif message.role == "system" %}
{{ "<|system|>\\n" + message.content + eos_token }}
{% elif message.role == "assistant" %}
{{ "<|assistant|>\\n" + message.content + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ "<|assistant|>" }}
{% endif %}
{% endfor %}
"""),
}
OTHER = {
    "own style": "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n{% endfor %}",
    "chatml that thinks": TEMPLATES["chatml-plain"][1] + "{{- '<think>\\n' }}",
    "chatml that strips": TEMPLATES["chatml-plain"][1].replace("message.content", "message.content.strip()"),
    "chatml of another end": TEMPLATES["chatml-plain"][1].replace("<|im_end|>", "<|im_stop|>"),
    "chatml without a prompt": TEMPLATES["chatml-plain"][1].split("{%- if add")[0],
}

USER, SYSTEM, BOT = ({"role": r} for r in ("user", "system", "assistant"))


def say(role, content):
    return {**role, "content": content}


CONVERSATIONS = [
    [say(USER, "Hello!")],
    [say(SYSTEM, "Be brief."), say(USER, " What is 2+2?\n")],
    [say(SYSTEM, "Bé \"exact\"."), say(USER, "A 'quoted' {{ thing }}"), say(BOT, " Yes.\u3000"), say(USER, "Why?\n\nSay it."),
     say(BOT, "Because 🙂"), say(USER, "\u00a0ok \u001c")],
    [say(USER, "one"), say(USER, "two")],
    [say(USER, "one"), say(BOT, "two")],
    [say(SYSTEM, ""), say(USER, "")],
]


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.globals["raise_exception"] = raise_exception
    return env


def main():
    env = environment()
    styles = []
    for name, (style, source) in TEMPLATES.items():
        cases = []
        for messages in CONVERSATIONS:
            for prompt in (True, False):
                case = {"messages": messages, "add_generation_prompt": prompt}
                try:
                    case["output"] = env.from_string(source).render(messages=messages, add_generation_prompt=prompt,
                                                                   bos_token="<s>", eos_token="</s>")
                except jinja2.exceptions.TemplateError as error:
                    case["error"] = error.message
                cases.append(case)
        styles.append({"name": name, "style": style, "template": source, "cases": cases})
    with open(sys.argv[1], "w") as out:
        json.dump({"styles": styles, "other": OTHER}, out, indent=1)
        out.write("\n")


main()

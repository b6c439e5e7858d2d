#!/usr/bin/env python3
"""Renders small templates, one point of the language each, with Jinja2 as transformers sets it up.

    python3 make_jinja_goldens.py tests/goldens/text/jinja.json

Needs jinja2 (made with 3.1.6).
"""

import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 1, 15, 12, 0, 0)
VARIABLES = {
    "n": None, "t": True, "i": 7, "f": 2.5, "s": "Héllo, wörld 🙂", "e": "", "text": "  a b\n c\t", "big": 1e20,
    "l": [3, 1, 2], "names": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": "x", "items": 5}, "q": "it's \"q\"\\\n",
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Ann", "age": 41}],
    "nested": {"list": [1, 2.0, None, True, "é", {"k": []}], "empty": {}, "inf": 1.5e300},
    "xml": "<a href='x'>&</a>", "html": "a&b",
}
TEMPLATES = [
    # Printing.
    "{{ n }} {{ t }} {{ i }} {{ f }} {{ big }} {{ 1e16 }} {{ 123456789.0 }} {{ 1e-5 }} {{ 0.0001 }} {{ -0.0 }} {{ 1.0 }}",
    "{{ l }} {{ d }} {{ nested }} {{ [q, 'a\\'b', \"c\\td\"] }} {{ (1,) }} {{ () }} {{ (1, 'a') }} {{ {} }} {{ {1: 2, n: t} }}",
    "{{ missing }}|{{ missing|default('x') }}|{{ e|default('y', true) }}|{{ n|default('z') }}|{{ [missing] }}",
    "{{ ['\\x07\\u200b\\xa0é\\U0001f642\\x7f'] }}",
    # Operators and precedence.
    "{{ 1 + 2 * 3 ** 2 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }}",
    "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 1 + 1.0 }} {{ t + 1 }} {{ +t }} {{ -i }} {{ 0x1F }} {{ 1_000 }} {{ 0b11 }} {{ 0o17 }}",
    "{{ 1 ~ 2 + 3 }}", "{{ 'a' ~ 1 ~ n ~ 2.0 }}", "{{ 'a' * 3 }}{{ 2 * 'b' }} {{ [1] * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ t == 1 }} {{ n == missing }}",
    "{{ not t }} {{ not t or t }} {{ not (t and i) }} {{ 0 or 'x' }} {{ 0 and 'x' }} {{ 1 and 2 or 3 }} {{ not 1 == 2 }}",
    "{{ 1 in l }} {{ 9 not in l }} {{ 'H' in s }} {{ 'a' in d }} {{ 'z' in missing }} {{ not 1 in l }}",
    "{{ 'y' if t else 'n' }} {{ 'y' if n }}| {{ 1 if n else 2 if e else 3 }} {{ (1 if t) + 1 }}",
    "{{ i|string ~ 'x'|upper }} {{ -1|abs }} {{ (-1)|abs }} {{ 'a' 'b' }} {{ 5 is odd and 4 is even }} {{ not 5 is odd }}",
    "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 'a' + n }}", "{{ [1] + n }}", "{{ n + 1 }}", "{{ missing + 1 }}", "{{ missing.x }}",
    "{{ missing['x'] }}", "{{ missing() }}", "{{ 1 in n }}", "{{ 1 < 'a' }}", "{{ n < 1 }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 'a' in 5 }}",
    "{{ 1 in 'abc' }}", "{{ -'a' }}", "{{ [[1]] == [[1.0]] }} {{ {'a': [1]} == {'a': [1]} }} {{ (1,) == [1] }}",
    # Access.
    "{{ s[0] }}{{ s[1] }}{{ s[-1] }}|{{ s[100] }}|{{ l[-1] }}|{{ l[9] }}|{{ d.a }}|{{ d['a'] }}|{{ d.zz }}|{{ d['zz'] }}|{{ l.0 }}|{{ n.x }}|{{ i.x }}",
    "{{ s[1:5] }}|{{ s[:-3] }}|{{ s[::-1] }}|{{ s[-2:] }}|{{ l[1:] }}|{{ l[::-1] }}|{{ l[5:] }}|{{ (1,2,3)[:2] }}|{{ s[::3] }}|{{ l[-100:100] }}|{{ range(5)[1:3] }}",
    "{{ d['items'] }} {{ d.items()|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 1) }} {{ d.items() }}",
    "{{ n[1:] }}", "{{ d[1:] }}", "{{ missing[1:] }}", "{{ l[::0] }}", "{{ ''.__class__ }}|{{ ''.__class__.__mro__ }}", "{{ d.a.b.c }}",
    "{{ l.append(1) }}", "{{ d.pop('a') }}", "{{ d.update({}) }}", "{{ l.sort is defined }}", "{{ {[1]: 2} }}", "{{ d[[1]] }}", "{{ n() }}",
    # String methods.
    "{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.lstrip('ab') }}|{{ 'abcab'.rstrip('ba') }}",
    "{{ 'a,b,,c'.split(',') }} {{ text.split() }} {{ 'a b  c'.split(' ') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(none, 1) }} {{ ' a b '.split(maxsplit=1) }}",
    "{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b c '.rsplit(none, 1) }} {{ 'a\nb\r\nc'.splitlines() }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'a'.rpartition('=') }}",
    "{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith('b', 1) }} {{ 'banana'.find('n') }} {{ 'banana'.rfind('n') }} {{ 'banana'.count('an') }} {{ 'x'.find('y') }} {{ s.find('w') }}",
    "{{ s.upper() }} {{ s.lower() }} {{ 'straße'.upper() }} {{ s.title() }} {{ \"they're x1y\".title() }} {{ 'aBc'.swapcase() }} {{ 'hELLO wORLD'.capitalize() }}",
    "{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'ab'.replace('', '.') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}",
    "{{ '5'.zfill(3) }} {{ '-5'.zfill(4) }} {{ 'a'.center(4) }}|{{ 'ab'.center(5, '*') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }}|{{ ','.join(['a', 'b']) }}",
    "{{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'ab'.islower() }} {{ 'AB1'.isupper() }} {{ 'é'.isascii() }}",
    "{{ ','.join([1]) }}", "{{ 'a'.split('') }}", "{{ 'a'.index('b') }}", "{{ 'a'.nothing() }}", "{{ 'a'.strip(1) }}", "{{ 'a'.replace('a') }}",
    # Formatting.
    "{{ '%s|%5s|%-5s|%.2s' % ('a', 'b', 'c', 'def') }} {{ '%d %5d %-5d| %05d %+d %x %X %o' % (1, 2, 3, 4, 5, 255, 255, 8) }}",
    "{{ '%.2f %8.3f %e %g %g' % (1.005, 3.14159, 12345.678, 0.00001, 1e10) }} {{ '%s' % n }} {{ '%s' % [1] }} {{ '%(a)s' % d }} {{ '%r %%' % 'x' }} {{ '%d' % 3.9 }}",
    "{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format('a', 'b') }} {{ '{x}'.format(x=2) }} {{ '{0[a]} {0[b]}'.format(d) }} {{ '{{}}'.format() }}",
    "{{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+}|{:,}'.format('a', 'b', 'c', 'd', 42, 5, 1234567) }} {{ '{:.2f} {:10.3f} {:%} {:x} {:#x} {:b}'.format(3.14159, 2.5, 0.25, 255, 255, 5) }} {{ '{!r}'.format('a') }}",
    "{{ '%s %s' % ('a',) }}", "{{ '%d' % 'a' }}", "{{ 'x' % 1 }}", "{{ '{}'.format() }}", "{{ '{:d}'.format('a') }}", "{{ '%s-%d'|format('a', 3) }}",
    # Filters.
    "{{ l|sort }} {{ l|sort(reverse=true) }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ d|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'x': 2, 'y': 1}|dictsort(false, 'value') }}",
    "{{ l|length }} {{ s|length }} {{ d|length }} {{ e|length }} {{ missing|length }} {{ l|first }} {{ l|last }} {{ []|first }}| {{ l|sum }} {{ people|sum('age') }} {{ l|min }} {{ l|max }} {{ names|max }} {{ []|min }}|",
    "{{ l|join }} {{ l|join(', ') }} {{ people|join('-', 'name') }} {{ s|list }} {{ d|list }} {{ l|reverse|list }} {{ 'abc'|reverse }} {{ names|unique|list }} {{ [1, 1.0, 2]|unique|list }}",
    "{{ people|selectattr('tags')|list|length }} {{ people|selectattr('name', 'equalto', 'Ann')|map(attribute='age')|list }} {{ people|rejectattr('age', 'gt', 30)|list|length }} {{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ [0, 1, '']|select|list }}",
    "{{ l|map('string')|join('+') }} {{ names|map('upper')|list }} {{ people|map(attribute='tags', default='-')|list }} {{ people|map(attribute='tags.0')|list }} {{ ['a ']|map('trim')|first }} {{ l|map('default', 1)|list }}",
    "{{ n|selectattr('x')|list }} {{ n|map('upper')|list }} {{ d|items|list }} {{ missing|items|list }} {{ text|trim }}| {{ s|upper }} {{ s|lower }} {{ s|title }} {{ 'hELLO'|capitalize }} {{ 'foo bar-baz (qux)'|title }} {{ i|upper }}",
    "{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, false, true) }}|{{ 'a\nb\n'|indent('>') }}|{{ ''|indent(2, true) }}|",
    "{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ '3.9'|int }} {{ 3.9|int }} {{ '0x1f'|int(0, 16) }} {{ n|int }} {{ ' 7 '|int }} {{ '2.5'|float }} {{ 'x'|float }} {{ 1|float }} {{ -3|abs }} {{ '1_0'|int }}",
    "{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 7|round }} {{ 2.675|round(2) }}",
    "{{ 'aXa'|replace('a', 'b') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'hello world foo'|truncate(8) }} {{ 'hello world foo'|truncate(8, true, leeway=0) }} {{ 'hello world'|truncate(9, false, '…', 0) }} {{ 'a b c'|wordcount }} {{ 'ab'|center(6) }}|",
    "{{ xml|e }} {{ xml|escape }} {{ xml|safe }} {{ xml|safe + xml }} {{ xml|safe ~ xml }} {{ [xml|safe, xml]|join }} {{ (xml|safe) is string }} {{ (html|safe)|upper + html }} {{ xml|forceescape }} {{ html|urlencode }} {{ {'a b': 'c&d'}|urlencode }}",
    "{{ l|batch(2)|list }} {{ l|batch(2, 'x')|list }} {{ [1,2,3,4,5]|slice(2)|list }} {{ [1,2,3,4,5]|slice(2, 'x')|list }} {% for k, g in people|groupby('name') %}{{ k }}:{{ g|length }} {% endfor %}",
    "{{ d|attr('a') }}|{{ 'a'|attr('upper') is defined }}|{{ people|groupby('name')|length }}|{{ l|d }}",
    "{{ n|list }}", "{{ missing|list }}", "{{ n|join }}", "{{ 5|length }}", "{{ 5|items|list }}", "{{ 'a'|dictsort }}", "{{ ['a', 1]|sort }}", "{{ 'a'|nosuch }}", "{% if false %}{{ 'a'|nosuch }}{% endif %}ok",
    "{{ 1 if true else ('a'|nosuch) }}", "{% for x in [] %}{{ x|nosuch }}{% endfor %}", "{{ 'a' is nosuch }}", "{{ l|map|list }}", "{{ l|join(1, 2, 3) }}", "{{ s|upper(1) }}", "{{ missing|int }}", "{{ l|select('nosuch')|list }}",
    # tojson.
    "{{ nested|tojson }} {{ s|tojson }} {{ q|tojson }} {{ xml|tojson }} {{ (1, 2)|tojson }} {{ '\\x01\\x7f'|tojson }} {{ {1: 2, n: 3, t: 4, 1.5: 5}|tojson }} {{ 1e20|tojson }}",
    "{{ nested|tojson(indent=2) }} {{ [[], {}]|tojson(indent=1) }} {{ l|tojson(indent='--') }} {{ l|tojson(indent=0) }}",
    "{{ s|tojson(ensure_ascii=true) }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(indent=4, separators=(' ;', ' = ')) }}",
    "{{ missing|tojson }}", "{{ l|map('string')|tojson }}", "{{ range(3)|tojson }}", "{{ namespace()|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ d.items()|tojson }}",
    # Tests.
    "{{ s is string }} {{ i is number }} {{ t is number }} {{ t is integer }} {{ i is integer }} {{ f is float }} {{ t is boolean }} {{ n is none }} {{ d is mapping }} {{ l is iterable }} {{ s is iterable }} {{ i is iterable }} {{ missing is iterable }}",
    "{{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ missing is sequence }} {{ range(2) is sequence }} {{ d.items() is sequence }} {{ i is sequence }} {{ t is true }} {{ 1 is true }} {{ n is false }} {{ missing is undefined }} {{ missing is defined }} {{ d.zz is defined }}",
    "{{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ 1 is in [1] }} {{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is ge 2 }} {{ 'a' is lower }} {{ 'A' is upper }} {{ l is sameas l }} {{ range is callable }} {{ s is callable }} {{ 'upper' is filter }} {{ n is not none }} {{ n is not defined }}",
    # Statements.
    "{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ' first' if loop.first }}{{ ' last' if loop.last }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}{% for c in s %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for (a, b) in [(1, 2)] %}{{ a + b }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }} {% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}{% for x in missing %}{% else %}undef{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}|{% for x in [1] %}{% break %}{% else %}else{% endfor %}|{% for x in [1, 2] %}{% continue %}{% else %}E{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
    "{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}{% set ns = namespace(v=0) %}{% for y in l %}{% set ns.v = ns.v + y %}{% endfor %}{{ ns.v }}{{ ns.none }}|{{ ns['v'] }}",
    "{% set a, b = 1, 2 %}{{ b }}{{ a }}{% set t1 = 1, %}{{ t1 }}{% set c %}x{{ a }}{% endset %}{{ c }}{% set c2 | upper %}abc{% endset %}{{ c2 }}{% if t %}{% set a = 9 %}{% endif %}{{ a }}{% with a = 5, z = 6 %}{{ a }}{{ z }}{% endwith %}{{ a }}{{ z }}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c=4) }} {{ f() }}| {{ f.name }} {{ f(b=1, a=2) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}{% macro g(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) g(5) %}[{{ y }}]{% endcall %}{% call(y=1) g(6) %}{{ y }}{% endcall %}",
    "{% macro f() %}{{ later }}{% endmacro %}{% set later = 1 %}{{ f() }}{% for q in [1] %}{% set inner = q %}{% macro g() %}{{ inner }}{% endmacro %}{{ g() }}{% endfor %}{{ inner }}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, a=1) }}", "{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}",
    "{% filter upper %}a{{ s }}{% endfilter %}{% filter replace('a', 'b')|upper %}aa{% endfilter %}{% raw %}{{ x }}{% if %}{% endraw %}{# {{ no }} #}{% generation %}g{% set zz = 1 %}{% endgeneration %}{{ zz }}",
    "{% if n %}1{% elif t %}2{% else %}3{% endif %}{% if e %}{% elif 0 %}{% endif %}{% if [] %}a{% else %}b{% endif %}{% print 1, 2 %}",
    "{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(3) }} {{ range(0, 5, 2) }} {{ dict(a=1, b=2) }} {{ dict([('x', 1)], y=2) }} {% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }} {% set j = joiner(',') %}{{ j() }}a{{ j() }}b",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %b %a %j %d %e %-d %p %I %y %%') }}", "{{ raise_exception('no: ' ~ i) }}", "{% set x.y = 1 %}", "{% set a, b = [1] %}", "{% for a, b in [1] %}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{{ range(100001)|length }}", "{{ range(0, 1, 0) }}", "{{ l|map('string')|length }}", "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "{{ f(*[1], **{'a': 2}) }}", "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1], **{'b': 2}) }}{{ f(1, *[2]) }}",
    # White space.
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if t %}\n  b\n  {%- endif -%}\n\n c", "  {{ i }}  \n  {{- i -}}  \n x", "a {%+ if t %} b {%+ endif +%}\nc", "  {# c #}\n  x {# y #}\n{#- z -#}\n w", "x\n\n", "x\r\ny\rz\r\n", "{% if t -%}\n  a\n{%- endif %}\n\n b", "  {% raw -%}\n a {%- endraw +%}\nb",
    "{% set x = [\n 1,\n 2 ] %}\n{{ x }}", "{{ '{{' }}{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}['a'] }}{{ \"a\\\"b\" }}{{ 'a\\\\n' }}", "\t{% if t %}\t{% endif %}\t\nx", "a{% if t %} \n {% endif %}b", "{{ i }}\n{% if t %}\n{% endif %}", "{{-1}}{{ - 1 }}{{ 1 -}} x", "a\u00a0\n{%- if t %}b{% endif %}", "x{{ 'a' }}\n\n{{ 'b' }}\n",
    # Errors of syntax.
    "{{ }}", "{{ 1 + }}", "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% for x in %}{% endfor %}", "{{ 'a }}", "{{ (1 }}", "{{ 1 ) }}", "{% nosuch %}", "{# a", "{% raw %}x", "{{ a b }}", "{% set 1 = 2 %}", "{% break %}", "{% macro f(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ x| }}", "{{ x is }}", "{{ a ? b }}", "{% for x in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", "{{ 1 is odd is even }}", "{{ x. }}", "{{ 'a' not 'b' }}",
]


class GenerationTag(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Raised(jinja2.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def kind_of(error):
    if isinstance(error, Raised):
        return "raised"
    if isinstance(error, (jinja2.TemplateSyntaxError, SyntaxError)):
        return "syntax"
    if isinstance(error, jinja2.UndefinedError):
        return "undefined"
    if isinstance(error, jinja2.sandbox.SecurityError):
        return "security"
    return "type"


def main():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    cases = []
    for source in TEMPLATES:
        case = {"template": source}
        try:
            case["output"] = env.from_string(source).render(**json.loads(json.dumps(VARIABLES)))
        except Exception as error:
            case["error"] = kind_of(error)
            if case["error"] == "raised":
                case["message"] = error.message
        cases.append(case)
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"variables": VARIABLES, "cases": cases}, out, ensure_ascii=False, indent=1)
        out.write("\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "errors")


main()

"""The `openai` package for Python, unmodified, against the server."""
import json
import os
import unittest
from typing import Literal, Optional

import openai
import pydantic

URL, KEY = os.environ["QUIPU_URL"] + "/v1", os.environ["QUIPU_KEY"]
MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "a tool", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}}}}
EAGER = {"ignore_eos": True}


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)

    def tearDown(self):
        self.client.close()

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").id, "tiny")

    def test_chat(self):
        answer = self.client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_completion_tokens=5, temperature=0, extra_body=EAGER)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.usage.completion_tokens, 5)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 5)

    def test_embeddings(self):
        # The package asks for base64 and decodes it unless it is told otherwise.
        texts = ["the hello", "he", "the hello"]
        coded = self.client.embeddings.create(model="tiny", input=texts)
        plain = self.client.embeddings.create(model="tiny", input=texts, encoding_format="float")
        self.assertEqual([e.index for e in coded.data], [0, 1, 2])
        self.assertEqual(len(coded.data[0].embedding), 64)
        for a, b in zip(coded.data, plain.data):
            self.assertAlmostEqual(sum(x * x for x in a.embedding), 1, places=5)
            for x, y in zip(a.embedding, b.embedding):
                self.assertAlmostEqual(x, y, places=7)
        self.assertEqual(coded.data[0].embedding, coded.data[2].embedding)
        self.assertNotEqual(coded.data[0].embedding, coded.data[1].embedding)
        short = self.client.embeddings.create(model="tiny", input="he", dimensions=8)
        self.assertEqual(len(short.data[0].embedding), 8)
        self.assertEqual(short.usage.total_tokens, short.usage.prompt_tokens)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.embeddings.create(model="tiny", input="the " * 2000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_stream_joins_to_the_whole(self):
        ask = dict(model="tiny", messages=MESSAGES, max_tokens=20, temperature=0, extra_body=EAGER)
        whole = self.client.chat.completions.create(**ask)
        text, usage = "", None
        for chunk in self.client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, 20)

    def test_logprobs_n_and_seed(self):
        answer = self.client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=3, n=2, seed=5, logprobs=True, top_logprobs=4,
            temperature=1, extra_body=EAGER)
        self.assertEqual(len(answer.choices), 2)
        for choice in answer.choices:
            self.assertEqual(len(choice.logprobs.content), 3)
            self.assertEqual(len(choice.logprobs.content[0].top_logprobs), 4)

    def test_completions_echo(self):
        answer = self.client.completions.create(model="tiny", prompt="hello", echo=True, logprobs=1, max_tokens=1,
                                                temperature=0, extra_body=EAGER)
        self.assertTrue(answer.choices[0].text.startswith("hello"))
        self.assertIsNone(answer.choices[0].logprobs.token_logprobs[0])
        self.assertLess(answer.choices[0].logprobs.token_logprobs[1], 0)

    def test_tools_are_accepted_and_calls_come_apart(self):
        text = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
        grammar = {"grammar": "root ::= " + '"' + text.replace('"', '\\"') + '"'}
        ask = dict(model="tiny", messages=MESSAGES, tools=[TOOL], extra_body=grammar)
        call = self.client.chat.completions.create(**ask).choices[0].message.tool_calls[0]
        self.assertEqual((call.function.name, call.function.arguments.replace(" ", "")), ("f", '{"a":1}'))
        with self.client.chat.completions.stream(**ask) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].finish_reason, "tool_calls")
        self.assertEqual(final.choices[0].message.tool_calls[0].function.name, "f")

    def calls_of(self, **ask):
        """Calls of a whole answer; the same ones streamed, put together as the package's own helper does.

        Always with a seed: without one each request draws its own, and the two answers may differ.
        """
        ask = dict(model="tiny", messages=MESSAGES, temperature=1.5, max_tokens=300, seed=11) | ask
        whole = self.client.chat.completions.create(**ask).choices[0]
        names, arguments, finish = {}, {}, None
        for chunk in self.client.chat.completions.create(**ask, stream=True):
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                for delta in choice.delta.tool_calls or []:
                    if delta.id:
                        self.assertNotIn(delta.index, names)
                        self.assertEqual(delta.type, "function")
                        names[delta.index] = delta.function.name
                    arguments[delta.index] = arguments.get(delta.index, "") + (delta.function.arguments or "")
        calls = [(c.function.name, c.function.arguments) for c in whole.message.tool_calls or []]
        self.assertEqual([(names[i], arguments[i]) for i in sorted(names)], calls)
        self.assertEqual(finish, whole.finish_reason)
        return [(name, json.loads(text)) for name, text in calls]

    def test_tool_choice(self):
        other = {"type": "function", "function": {"name": "g", "strict": True, "parameters": {
            "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "on": {"type": "boolean"}},
            "required": ["city", "on"], "additionalProperties": False}}}
        none = {"type": "function", "function": {"name": "none", "parameters": {"type": "object", "properties": {}}}}
        tools = [TOOL, other, none]
        for seed in range(4):
            calls = self.calls_of(tools=tools, tool_choice="required", seed=seed)
            self.assertGreaterEqual(len(calls), 1)
            for name, arguments in calls:
                if name == "g":
                    self.assertEqual(set(arguments), {"city", "on"})
                self.assertLessEqual(set(arguments), {"f": {"a"}, "g": {"city", "on"}, "none": set()}[name])
            single = self.calls_of(tools=tools, tool_choice="required", seed=seed, parallel_tool_calls=False)
            self.assertEqual(len(single), 1)
            named = self.calls_of(tools=tools, tool_choice={"type": "function", "function": {"name": "g"}}, seed=seed)
            self.assertEqual([name for name, _ in named], ["g"])
            self.assertIsInstance(named[0][1]["on"], bool)
            for name, _ in self.calls_of(tools=tools, tool_choice="auto", seed=seed):
                self.assertIn(name, ("f", "g", "none"))
        # Several calls in one answer.
        text = "".join('<tool_call>{"name": "f", "arguments": {"a": %d}}</tool_call>' % i for i in range(3))
        several = self.calls_of(tools=tools, extra_body={"grammar": "root ::= " + json.dumps(text)})
        self.assertEqual(several, [("f", {"a": i}) for i in range(3)])
        self.assertEqual(self.calls_of(tools=tools, tool_choice="none"), [])

    def test_strict_schema_as_a_class(self):
        class Person(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=12)
            age: int = pydantic.Field(ge=0, le=150)
            tags: list[Literal["a", "b"]] = pydantic.Field(max_length=3)
            boss: Optional["Person"]

        for seed in range(4):
            answer = self.client.chat.completions.parse(
                model="tiny", messages=MESSAGES, max_tokens=300, seed=seed, temperature=1.5, response_format=Person)
            self.assertIsInstance(answer.choices[0].message.parsed, Person)

    def test_structured_output(self):
        answer = self.client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=300, seed=3, response_format={
                "type": "json_schema", "json_schema": {"name": "x", "schema": {
                    "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
                    "additionalProperties": False}}})
        self.assertRegex(answer.choices[0].message.content, r'^\{\s*"ok"\s*:\s*(true|false)\s*\}$')

    def test_responses_and_their_stream(self):
        ask = dict(model="tiny", input="hello", max_output_tokens=12, temperature=0, extra_body=EAGER)
        whole = self.client.responses.create(**ask)
        self.assertEqual((whole.status, whole.usage.output_tokens), ("incomplete", 12))
        events = list(self.client.responses.create(**ask, stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        with self.client.responses.stream(model="tiny", input="hello", extra_body={"grammar": 'root ::= "yes"'}) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_response().output_text, "yes")

    def test_responses_call_tools(self):
        text = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
        tool = {"type": "function", **TOOL["function"], "strict": False}
        ask = dict(model="tiny", tools=[tool])
        grammar = {"grammar": "root ::= " + '"' + text.replace('"', '\\"') + '"'}
        call = self.client.responses.create(**ask, input="hello", extra_body=grammar).output[-1]
        self.assertEqual((call.type, call.name, call.arguments.replace(" ", "")), ("function_call", "f", '{"a":1}'))
        turns = [{"role": "user", "content": "hello"}, call.to_dict(),
                 {"type": "function_call_output", "call_id": call.call_id, "output": "42"}]
        last = self.client.responses.create(**ask, input=turns, extra_body={"grammar": 'root ::= "It is 42."'})
        self.assertEqual(last.output_text, "It is 42.")
        events = list(self.client.responses.create(**ask, input="hello", stream=True, extra_body=grammar))
        self.assertIn("response.function_call_arguments.done", [e.type for e in events])

    def test_errors_are_the_right_exceptions(self):
        ask = self.client.chat.completions.create
        with self.assertRaises(openai.NotFoundError) as unknown:
            ask(model="gpt-9", messages=MESSAGES)
        self.assertEqual(unknown.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as bad:
            ask(model="tiny", messages=MESSAGES, temperature=-1)
        self.assertIn("temperature", str(bad.exception))
        with self.assertRaises(openai.BadRequestError) as long:
            ask(model="tiny", messages=[{"role": "user", "content": "x" * 3000}], stream=True)
        self.assertEqual(long.exception.code, "context_length_exceeded")
        self.assertIn("1024", str(long.exception))
        with self.assertRaises(openai.BadRequestError) as stored:
            self.client.responses.create(model="tiny", input="x", previous_response_id="resp_1")
        self.assertEqual(stored.exception.param, "previous_response_id")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=URL, api_key="wrong", max_retries=0).models.list()


if __name__ == "__main__":
    unittest.main(verbosity=0)

"""The `openai` package for Python, unmodified, against the server."""
import os
import unittest

import openai

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

    def test_structured_output(self):
        answer = self.client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=300, seed=3, response_format={
                "type": "json_schema", "json_schema": {"name": "x", "schema": {
                    "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
                    "additionalProperties": False}}})
        self.assertRegex(answer.choices[0].message.content, r'^\{\s*"ok"\s*:\s*(true|false)\s*\}$')

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
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=URL, api_key="wrong", max_retries=0).models.list()


if __name__ == "__main__":
    unittest.main(verbosity=0)

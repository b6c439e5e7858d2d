"""The `anthropic` package for Python, unmodified, against the server."""
import os
import unittest

import anthropic

URL, KEY = os.environ["QUIPU_URL"], os.environ["QUIPU_KEY"]
MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {"name": "f", "description": "a tool",
        "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
# Newer versions of the package have no argument for it.
EAGER = {"ignore_eos": True, "temperature": 0}


def saying(text):
    return {"grammar": "root ::= " + '"' + text.replace('"', '\\"') + '"'}


class Anthropic(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)

    def tearDown(self):
        self.client.close()

    def test_message(self):
        answer = self.client.messages.create(model="tiny", max_tokens=5, messages=MESSAGES, system="be kind",
                                             extra_body=EAGER)
        self.assertEqual(answer.stop_reason, "max_tokens")
        self.assertEqual(answer.content[0].type, "text")
        self.assertEqual(answer.usage.output_tokens, 5)

    def test_stream_joins_to_the_whole(self):
        ask = dict(model="tiny", max_tokens=20, messages=MESSAGES, extra_body=EAGER)
        whole = self.client.messages.create(**ask)
        with self.client.messages.stream(**ask) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.usage.output_tokens, 20)
        self.assertEqual(final.stop_reason, "max_tokens")

    def test_counting(self):
        counted = self.client.messages.count_tokens(model="tiny", messages=MESSAGES)
        answer = self.client.messages.create(model="tiny", max_tokens=1, messages=MESSAGES)
        self.assertEqual(counted.input_tokens, answer.usage.input_tokens)

    def test_tools_and_their_results(self):
        call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
        ask = dict(model="tiny", max_tokens=200, tools=[TOOL])
        answer = self.client.messages.create(**ask, messages=MESSAGES, extra_body=saying(call))
        self.assertEqual(answer.stop_reason, "tool_use")
        self.assertEqual((answer.content[-1].name, answer.content[-1].input), ("f", {"a": 1}))
        with self.client.messages.stream(**ask, messages=MESSAGES, extra_body=saying(call)) as stream:
            self.assertEqual(stream.get_final_message().content[-1].input, {"a": 1})
        turns = MESSAGES + [{"role": "assistant", "content": answer.content},
                            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": answer.content[-1].id,
                                                          "content": "42"}]}]
        last = self.client.messages.create(**ask, messages=turns, extra_body=saying("It is 42."))
        self.assertEqual(last.content[0].text, "It is 42.")

    def test_errors_are_the_right_exceptions(self):
        ask = self.client.messages.create
        with self.assertRaises(anthropic.NotFoundError):
            ask(model="claude-9", max_tokens=1, messages=MESSAGES)
        with self.assertRaises(anthropic.BadRequestError) as bad:
            ask(model="tiny", max_tokens=1, messages=MESSAGES, extra_body={"temperature": -1})
        self.assertIn("temperature", str(bad.exception))
        with self.assertRaises(anthropic.BadRequestError) as long:
            ask(model="tiny", max_tokens=1, messages=[{"role": "user", "content": "x" * 3000}])
        self.assertIn("1024", str(long.exception))
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=URL, api_key="wrong", max_retries=0).messages.create(
                model="tiny", max_tokens=1, messages=MESSAGES)


if __name__ == "__main__":
    unittest.main(verbosity=0)

"""The `ollama` package for Python, unmodified, against the server."""
import os
import unittest

import ollama

URL, KEY = os.environ["QUIPU_URL"], os.environ["QUIPU_KEY"]
MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "a tool", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}}}}
FEW = {"num_predict": 5, "temperature": 0}


class Ollama(unittest.TestCase):
    def setUp(self):
        self.client = ollama.Client(host=URL, headers={"Authorization": f"Bearer {KEY}"})

    def test_models(self):
        self.assertEqual([m.model for m in self.client.list().models], ["tiny:latest"])
        self.assertEqual([m.model for m in self.client.ps().models], ["tiny:latest"])
        shown = self.client.show("tiny")
        self.assertEqual(shown.details.family, "llama")
        self.assertIn("completion", shown.capabilities)

    def test_chat_and_its_stream(self):
        whole = self.client.chat(model="tiny", messages=MESSAGES, options=FEW)
        self.assertEqual(whole.message.role, "assistant")
        self.assertTrue(whole.done)
        parts = list(self.client.chat(model="tiny:latest", messages=MESSAGES, options=FEW, stream=True))
        self.assertEqual("".join(p.message.content or "" for p in parts), whole.message.content)
        self.assertEqual(parts[-1].eval_count, whole.eval_count)

    def test_generate(self):
        answer = self.client.generate(model="tiny", prompt="hello", options=FEW, keep_alive="5m")
        self.assertIn(answer.done_reason, ("length", "stop"))
        parts = list(self.client.generate(model="tiny", prompt="hello", options=FEW, stream=True))
        self.assertEqual("".join(p.response for p in parts), answer.response)

    def test_format_is_obeyed(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
                  "additionalProperties": False}
        answer = self.client.chat(model="tiny", messages=MESSAGES, format=schema, options={"seed": 3, "num_predict": 300})
        self.assertRegex(answer.message.content, r'^\{\s*"ok"\s*:\s*(true|false)\s*\}$')

    def test_tools_are_accepted(self):
        answer = self.client.chat(model="tiny", messages=MESSAGES, tools=[TOOL], options=FEW)
        self.assertIsNotNone(answer.message)

    def test_errors_carry_their_status(self):
        with self.assertRaises(ollama.ResponseError) as unknown:
            self.client.chat(model="x", messages=MESSAGES)
        self.assertEqual(unknown.exception.status_code, 404)
        with self.assertRaises(ollama.ResponseError) as bad:
            self.client.chat(model="tiny", messages=MESSAGES, options={"temperature": -1})
        self.assertEqual(bad.exception.status_code, 400)
        self.assertIn("temperature", bad.exception.error)
        with self.assertRaises(ollama.ResponseError) as refused:
            ollama.Client(host=URL).list()
        self.assertEqual(refused.exception.status_code, 401)


if __name__ == "__main__":
    unittest.main(verbosity=0)

// The `openai` package for Node, unmodified, against the server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createRequire } from "node:module";

const OpenAI = createRequire(process.env.QUIPU_NODE_MODULES + "/")("openai");
const client = new OpenAI({
  baseURL: process.env.QUIPU_URL + "/v1",
  apiKey: process.env.QUIPU_KEY,
  maxRetries: 0,
});
const messages = [{ role: "user", content: "hello" }];
const eager = { model: "tiny", messages, temperature: 0, ignore_eos: true };

test("models", async () => {
  const list = await client.models.list();
  assert.deepEqual(list.data.map((m) => m.id), ["tiny"]);
});

test("a chat and its stream are the same", async () => {
  const whole = await client.chat.completions.create({ ...eager, max_tokens: 12 });
  assert.equal(whole.choices[0].finish_reason, "length");
  assert.equal(whole.usage.completion_tokens, 12);
  let text = "";
  const stream = await client.chat.completions.create({ ...eager, max_tokens: 12, stream: true });
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(text, whole.choices[0].message.content);
});

test("calls come apart", async () => {
  const said = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>';
  const answer = await client.chat.completions.create({
    model: "tiny",
    messages,
    grammar: "root ::= " + JSON.stringify(said),
    tools: [{ type: "function", function: { name: "f", parameters: { type: "object", properties: { a: { type: "integer" } } } } }],
  });
  const call = answer.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "f");
  assert.deepEqual(JSON.parse(call.function.arguments), { a: 1 });
});

test("responses", async () => {
  const ask = { model: "tiny", input: "hello", max_output_tokens: 12, temperature: 0, ignore_eos: true };
  const whole = await client.responses.create(ask);
  assert.equal(whole.status, "incomplete");
  let text = "";
  for await (const event of await client.responses.create({ ...ask, stream: true }))
    if (event.type === "response.output_text.delta") text += event.delta;
  assert.equal(text, whole.output_text);
});

test("errors are the right classes", async () => {
  await assert.rejects(client.chat.completions.create({ model: "x", messages }), OpenAI.NotFoundError);
  await assert.rejects(client.chat.completions.create({ ...eager, temperature: -1 }), OpenAI.BadRequestError);
  await assert.rejects(
    client.chat.completions.create({ model: "tiny", messages: [{ role: "user", content: "x".repeat(3000) }] }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded",
  );
  const other = new OpenAI({ baseURL: client.baseURL, apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(other.models.list(), OpenAI.AuthenticationError);
});

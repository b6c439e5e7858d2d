// Stands in for `quipu serve` in the quick tests: OpenAI's events as https://platform.openai.com/docs/api-reference/chat
// describes them. What it answers depends on the first word of the question.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';

const page = readFileSync(new URL('../dist/index.html', import.meta.url));
const kModel = 'mock-1b';

export const kMarkdown = `# Heading

Some *text* with \`code\`, a [link](https://example.org/) and ünïcödé 🪢.

\`\`\`python
def knot(n: int) -> str:
    """Tie one."""
    return "o" * n  # <script>
\`\`\`

| cord | knots |
| --- | ---: |
| red | 3 |

1. one
2. two
   - [x] done
`;

export const kEvil = `<img src=x onerror="window.harm = 'img'">

<script>window.harm = 'script'</script>

[click](javascript:window.harm='link') ![p](https://example.org/steal?q=secret)

<a href="javascript:window.harm='a'">a</a> <svg onload="window.harm='svg'"></svg> <iframe src="javascript:parent.harm='frame'"></iframe>

\`\`\`"><img src=x onerror="window.harm='lang'">
<img src=x onerror="window.harm='code'">
\`\`\`

| <img src=x onerror="window.harm='cell'"> |
| --- |
| <b onmouseover="window.harm='bold'">b</b> |

<style>body { display: none }</style>
<form action="https://example.org/"><input name=q></form>
`;

const kMinimal = { markdown: kMarkdown, evil: kEvil };

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** { url, requests, close() }. `requests` holds the body of every chat request; `cancelled` counts clients that left. */
export async function mockServer({ key = '', port = 0, models = [kModel] } = {}) {
  const state = { requests: [], cancelled: 0, unexpected: [] };
  const fail = (response, status, message, headers = {}) => {
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    response.end(JSON.stringify({ error: { message, type: 'invalid_request_error', param: null, code: null } }));
  };

  async function chat(body, response) {
    const request = JSON.parse(body);
    state.requests.push(request);
    const question = request.messages.at(-1).content;
    const word = question.split(/\s/)[0].toLowerCase();
    if (word === 'busy') return fail(response, 429, 'The queue is full.', { 'Retry-After': '7' });
    if (word === 'long') return fail(response, 400, "This model's maximum context length is 8 tokens.");
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' });
    let gone = false;
    response.on('close', () => {
      if (!response.writableFinished) ((gone = true), ++state.cancelled);
    });
    const event = (object) => `data: ${JSON.stringify(object)}\n\n`;
    const chunk = (delta, finish_reason = null) =>
      event({ object: 'chat.completion.chunk', model: kModel, choices: [{ index: 0, delta, finish_reason }] });
    const words = (text) => text.match(/\s*\S+|\s+$/g) ?? [];
    response.write(chunk({ role: 'assistant', content: '' }) + ': heartbeat\n\n');

    let pieces = words(kMinimal[word] ?? `You said: ${question}`).map((content) => ({ content }));
    if (word === 'reason')
      pieces = [...words('First I count the knots.').map((text) => ({ reasoning_content: text })), { content: 'Three.' }];
    if (word === 'think') pieces = ['<th', 'ink>\nHm, ', 'a cord.</thi', 'nk>\n\nA cord', '.'].map((content) => ({ content }));
    if (word === 'slow' || word === 'die') pieces = Array.from({ length: 400 }, (_, i) => ({ content: `${i} ` }));
    if (word === 'settings') pieces = [{ content: '```json\n' + JSON.stringify(request, null, 1) + '\n```\n' }];

    for (const [i, piece] of pieces.entries()) {
      if (gone) return;
      if (word === 'die' && i === 5) return response.destroy();
      if (word === 'error' && i === 2) {
        return response.end(event({ error: { message: 'out of memory in the step', type: 'server_error', code: null } }));
      }
      // Bytes arrive as they like: events, lines and characters are cut anywhere.
      const bytes = Buffer.from(chunk(piece).replaceAll('\n', word === 'markdown' ? '\r\n' : '\n'));
      const cut = 1 + ((i * 37) % (bytes.length - 1));
      response.write(bytes.subarray(0, cut));
      await sleep(word === 'slow' ? 20 : 1);
      response.write(bytes.subarray(cut));
    }
    const tokens = pieces.length;
    response.write(chunk({}, word === 'cut' ? 'length' : 'stop'));
    const usage = { prompt_tokens: 11, completion_tokens: tokens, total_tokens: 11 + tokens, prompt_tokens_details: { cached_tokens: 4 } };
    if (request.stream_options?.include_usage) response.write(event({ choices: [], usage }));
    response.end('data: [DONE]\n\n');
  }

  const server = createServer(async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    if (request.url === '/') {
      response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' });
      return response.end(page);
    }
    if (key !== '' && request.headers.authorization !== `Bearer ${key}`)
      return fail(response, 401, 'this server wants an API key');
    if (request.url === '/v1/models') {
      response.writeHead(200, { 'Content-Type': 'application/json' });
      return response.end(JSON.stringify({ object: 'list', data: models.map((id) => ({ id, object: 'model' })) }));
    }
    if (request.url === '/v1/chat/completions' && request.method === 'POST') return chat(body, response);
    state.unexpected.push(request.url);
    return fail(response, 404, `there is no ${request.url}`);
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  return {
    ...state,
    state,
    port: server.address().port,
    url: `http://127.0.0.1:${server.address().port}/`,
    close: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))),
  };
}

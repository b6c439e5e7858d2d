/** The data of server-sent events, one after the other (https://html.spec.whatwg.org/multipage/server-sent-events.html).
 * Comments, which servers send as heartbeats, and other fields are skipped. */
export async function* events(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let data: string[] = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      // A line break that may be half of CR LF waits for its other half.
      const lines = rest.split(done ? /\r\n|\n|\r/ : /\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (line === '') {
          if (data.length > 0) yield data.join('\n');
          data = [];
        } else if (line.startsWith('data:')) {
          data.push(line.slice(line.startsWith('data: ') ? 6 : 5));
        }
      }
      // An event that the end cuts off is none.
      if (done) return;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

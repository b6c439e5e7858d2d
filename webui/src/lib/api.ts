// The two paths of OpenAI's interface that the page uses.
import type { PromptMessage } from './chat';
import { events } from './sse';

/** A sentence for the user. Status 0: no answer came, or the rest of one did not. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export interface Sampling {
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  max_tokens?: number;
  seed?: number;
}

export interface ChatRequest extends Sampling {
  model?: string;
  messages: PromptMessage[];
}

export type Delta =
  | { kind: 'text' | 'reasoning'; text: string }
  | { kind: 'end'; reason: string }
  | { kind: 'usage'; promptTokens: number; cachedTokens: number; tokens: number };

const kUnreachable = 'The server does not answer. Is it running?';
const kBroken = 'The connection broke off before the answer was complete.';

function headersFor(key: string): Record<string, string> {
  return key === '' ? {} : { Authorization: `Bearer ${key}` };
}

/** The message of an error object, in OpenAI's form or a plain one. */
function errorMessage(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null || !('error' in body)) return undefined;
  const error = body.error;
  if (typeof error === 'string') return error;
  if (typeof error === 'object' && error !== null && 'message' in error && typeof error.message === 'string')
    return error.message;
  return undefined;
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, kUnreachable);
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => '');
  let message: string | undefined;
  try {
    message = errorMessage(JSON.parse(text));
  } catch {
    // No JSON: the status says what there is to say.
  }
  const wait = response.headers.get('Retry-After');
  const again = wait && /^\d+$/.test(wait) ? ` Try again in ${wait} s.` : '';
  throw new ApiError(response.status, (message ?? `The server answered with status ${response.status}.`) + again);
}

export async function listModels(key: string): Promise<string[]> {
  const response = await ask('v1/models', { headers: headersFor(key) });
  const body: unknown = await response.json().catch(() => null);
  if (typeof body !== 'object' || body === null || !('data' in body) || !Array.isArray(body.data))
    throw new ApiError(response.status, 'The list of models is not in the form that was expected.');
  return body.data.map((model: { id?: unknown }) => model?.id).filter((id) => typeof id === 'string');
}

interface Chunk {
  choices?: {
    delta?: { content?: string | null; reasoning_content?: string | null; reasoning?: string | null };
    finish_reason?: string | null;
  }[];
  usage?: {
    prompt_tokens?: number;
    completion_tokens?: number;
    prompt_tokens_details?: { cached_tokens?: number } | null;
  } | null;
}

/** The answer, piece by piece. Throws ApiError; when `signal` aborts, the AbortError of fetch. */
export async function* chat(request: ChatRequest, key: string, signal: AbortSignal): AsyncGenerator<Delta> {
  const response = await ask('v1/chat/completions', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headersFor(key) },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.body) throw new ApiError(0, kBroken);
  let ended = false;
  try {
    for await (const data of events(response.body)) {
      if (data === '[DONE]') return;
      let chunk: Chunk;
      try {
        chunk = JSON.parse(data);
      } catch {
        throw new ApiError(response.status, 'The server sent an event that is no JSON.');
      }
      const failure = errorMessage(chunk);
      if (failure !== undefined) throw new ApiError(response.status, failure);
      const choice = chunk.choices?.[0];
      const reasoning = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning;
      if (reasoning) yield { kind: 'reasoning', text: reasoning };
      if (choice?.delta?.content) yield { kind: 'text', text: choice.delta.content };
      if (choice?.finish_reason) {
        ended = true;
        yield { kind: 'end', reason: choice.finish_reason };
      }
      if (chunk.usage) {
        yield {
          kind: 'usage',
          promptTokens: chunk.usage.prompt_tokens ?? 0,
          cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
          tokens: chunk.usage.completion_tokens ?? 0,
        };
      }
    }
  } catch (error) {
    if (signal.aborted || error instanceof ApiError) throw error;
    throw new ApiError(0, kBroken);
  }
  if (!ended) throw new ApiError(0, kBroken);
}

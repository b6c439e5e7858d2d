// The page's state: the list of conversations, the one that is open, and the answers being written.
import { SvelteMap } from 'svelte/reactivity';
import { ApiError, chat, listModels } from './api';
import {
  branch,
  find,
  newConversation,
  newMessage,
  promptOf,
  show,
  titleOf,
  type Attachment,
  type Conversation,
  type Message,
  type Summary,
} from './chat';
import { ReasoningSplitter } from './reasoning';
import { settings } from './settings.svelte';
import { Store } from './store';

const kSaveEvery = 1000;
const kAskAgain = 3000;
const kUndoFor = 8000;
/** Rendering takes longer than a token of a small model: the page shows what came in this time at once. */
const kShowEvery = 40;

/** An answer being written. */
interface Run {
  conversation: Conversation;
  message: Message;
  abort: AbortController;
}

export type Connection = 'asking' | 'ready' | 'unreachable' | 'wants key';

class Session {
  summaries = $state<Summary[]>([]);
  current = $state<Conversation>(newConversation(settings.system));
  runs = new SvelteMap<string, Run>();
  models = $state<string[]>([]);
  connection = $state<Connection>('asking');
  /** What is wrong with the connection or the browser, in a sentence. */
  trouble = $state('');
  /** The conversation that can be brought back. */
  removed = $state<Conversation | null>(null);

  #store: Store | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #undoTimer: ReturnType<typeof setTimeout> | undefined;

  get running(): Run | undefined {
    return this.runs.get(this.current.id);
  }
  get model(): string {
    return this.models.includes(settings.model) ? settings.model : (this.models[0] ?? '');
  }

  async start(): Promise<void> {
    void this.connect();
    try {
      this.#store = await Store.open((id) => void this.#changedElsewhere(id));
      this.summaries = await this.#store.list();
      const last = sessionStorage.getItem('quipu.open') ?? '';
      if (this.summaries.some((summary) => summary.id === last)) await this.open(last);
    } catch {
      this.trouble = 'This browser keeps nothing for this page: conversations are lost when it is closed.';
    }
  }

  // ---- the server ----

  /** Asks for the models, again and again until the server answers. */
  async connect(): Promise<void> {
    clearTimeout(this.#timer);
    try {
      this.models = await listModels(settings.key);
      this.connection = 'ready';
    } catch (error) {
      const status = error instanceof ApiError ? error.status : 0;
      this.connection = status === 401 ? 'wants key' : 'unreachable';
      if (status !== 401) this.#timer = setTimeout(() => void this.connect(), kAskAgain);
    }
  }

  setKey(key: string): void {
    settings.key = key.trim();
    settings.save();
    this.connection = 'asking';
    void this.connect();
  }

  // ---- conversations ----

  create(): void {
    this.current = newConversation(settings.system);
    sessionStorage.removeItem('quipu.open');
  }

  async open(id: string): Promise<void> {
    const running = this.runs.get(id);
    const found = running?.conversation ?? (await this.#store?.get(id));
    if (!found) return;
    this.current = found;
    sessionStorage.setItem('quipu.open', id);
  }

  async rename(id: string, title: string): Promise<void> {
    const conversation = await this.#whole(id);
    if (!conversation || title.trim() === '') return;
    conversation.title = title.trim();
    await this.#save(conversation);
  }

  async remove(id: string): Promise<void> {
    const conversation = await this.#whole(id);
    if (!conversation) return;
    this.stop(id);
    this.removed = $state.snapshot(conversation);
    clearTimeout(this.#undoTimer);
    this.#undoTimer = setTimeout(() => (this.removed = null), kUndoFor);
    this.summaries = this.summaries.filter((summary) => summary.id !== id);
    if (this.current.id === id) this.create();
    await this.#store?.remove(id);
  }

  async bringBack(): Promise<void> {
    const conversation = this.removed;
    this.removed = null;
    if (!conversation) return;
    await this.#save(conversation);
    await this.open(conversation.id);
  }

  async whole(id: string): Promise<Conversation | undefined> {
    const conversation = await this.#whole(id);
    return conversation && $state.snapshot(conversation);
  }

  async all(): Promise<Conversation[]> {
    return (await this.#store?.all()) ?? [];
  }

  async setSystem(text: string): Promise<void> {
    this.current.system = text;
    if (this.current.messages.length > 0) await this.#save(this.current);
  }

  async #whole(id: string): Promise<Conversation | undefined> {
    if (this.current.id === id) return this.current;
    return this.runs.get(id)?.conversation ?? (await this.#store?.get(id));
  }

  async #save(conversation: Conversation): Promise<void> {
    const { id, title, updated } = conversation;
    const others = this.summaries.filter((summary) => summary.id !== id);
    this.summaries = [...others, { id, title, updated }].sort((a, b) => b.updated - a.updated);
    try {
      await this.#store?.put($state.snapshot(conversation));
    } catch {
      this.trouble = 'This conversation could not be kept: the browser has no room for it.';
    }
  }

  async #changedElsewhere(id: string): Promise<void> {
    if (!this.#store || this.runs.has(id)) return;
    this.summaries = await this.#store.list();
    if (this.current.id !== id) return;
    const now = await this.#store.get(id);
    if (now) this.current = now;
    else this.create();
  }

  // ---- questions and answers ----

  async send(text: string, attachments: Attachment[]): Promise<void> {
    await this.#ask(this.current.leaf, text, attachments);
  }

  /** The same question in other words, as a new branch. */
  async edit(message: Message, text: string): Promise<void> {
    await this.#ask(message.parent, text, message.attachments);
  }

  async #ask(parent: string | null, text: string, attachments: Attachment[]): Promise<void> {
    if (this.running) return;
    const conversation = this.current;
    const question = newMessage('user', parent);
    question.text = text.trim();
    question.attachments = attachments;
    conversation.messages.push(question);
    conversation.leaf = question.id;
    if (conversation.title === '') conversation.title = titleOf(question);
    sessionStorage.setItem('quipu.open', conversation.id);
    await this.#answer(conversation, question.id);
  }

  /** Another answer beside this one. */
  async regenerate(message: Message): Promise<void> {
    if (this.running || message.parent === null) return;
    await this.#answer(this.current, message.parent);
  }

  async choose(version: Message): Promise<void> {
    show(this.current, version);
    await this.#save(this.current);
  }

  stop(id = this.current.id): void {
    this.runs.get(id)?.abort.abort();
  }

  /** Before the page goes: what there is of the answers. */
  saveAll(): void {
    for (const { conversation } of this.runs.values()) void this.#save(conversation);
  }

  async #answer(conversation: Conversation, question: string): Promise<void> {
    const created = newMessage('assistant', question);
    created.model = this.model;
    conversation.messages.push(created);
    conversation.leaf = created.id;
    conversation.updated = Date.now();
    // The proxy, whose changes the page sees.
    const message = find(conversation, created.id) ?? created;
    const abort = new AbortController();
    this.runs.set(conversation.id, { conversation, message, abort });
    void this.#save(conversation);
    const saving = setInterval(() => void this.#save(conversation), kSaveEvery);
    try {
      await this.#read(conversation, message, question, abort.signal);
    } catch (error) {
      if (abort.signal.aborted) {
        message.end = 'stopped';
      } else {
        message.end = 'error';
        message.error = error instanceof Error ? error.message : String(error);
        if (error instanceof ApiError && error.status === 401) this.connection = 'wants key';
        if (error instanceof ApiError && error.status === 0) void this.connect();
      }
    } finally {
      clearInterval(saving);
      conversation.updated = Date.now();
      this.runs.delete(conversation.id);
      // Deleted while it ran: it stays deleted.
      if (this.current.id === conversation.id || this.summaries.some((summary) => summary.id === conversation.id))
        await this.#save(conversation);
    }
  }

  async #read(conversation: Conversation, message: Message, question: string, signal: AbortSignal): Promise<void> {
    const splitter = new ReasoningSplitter();
    const asked = performance.now();
    let first = 0;
    let last = 0;
    let tokens = 0;
    let prompt = { promptTokens: 0, cachedTokens: 0 };
    let text = '';
    let reasoning = '';
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      timer = undefined;
      message.text += text;
      message.reasoning += reasoning;
      text = reasoning = '';
      if (first > 0)
        message.usage = { ...prompt, tokens, seconds: (last - first) / 1000, firstToken: (first - asked) / 1000 };
    };
    const request = {
      ...(this.model === '' ? {} : { model: this.model }),
      ...$state.snapshot(settings.sampling),
      messages: promptOf(conversation, question),
    };
    try {
      for await (const delta of chat(request, settings.key, signal)) {
        if (delta.kind === 'end') {
          message.end = delta.reason === 'length' ? 'length' : 'stop';
        } else if (delta.kind === 'usage') {
          prompt = { promptTokens: delta.promptTokens, cachedTokens: delta.cachedTokens };
          tokens = delta.tokens;
        } else {
          last = performance.now();
          if (first === 0) first = last;
          // A piece is a token, near enough, until the server counts.
          ++tokens;
          const parts = delta.kind === 'text' ? splitter.push(delta.text) : { text: '', reasoning: delta.text };
          text += parts.text;
          reasoning += parts.reasoning;
          timer ??= setTimeout(show, kShowEvery);
        }
      }
    } finally {
      const rest = splitter.end();
      text += rest.text;
      reasoning += rest.reasoning;
      clearTimeout(timer);
      show();
    }
    message.end ??= 'stop';
  }

  /** The messages that are shown. */
  get messages(): Message[] {
    return branch(this.current);
  }
}

export const session = new Session();

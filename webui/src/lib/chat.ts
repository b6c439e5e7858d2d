// A conversation is a tree: editing a question or asking for another answer adds a branch, and nothing is lost. `leaf`
// says which branch is shown.

export interface Attachment {
  name: string;
  text: string;
}

export interface Usage {
  promptTokens: number;
  cachedTokens: number;
  tokens: number;
  /** From the first token to the last one. */
  seconds: number;
  /** From the question to the first token. */
  firstToken: number;
}

/** `stopped`: by the user. Absent while the answer is being written. */
export type End = 'stop' | 'length' | 'stopped' | 'error';

export interface Message {
  id: string;
  parent: string | null;
  role: 'user' | 'assistant';
  text: string;
  reasoning: string;
  attachments: Attachment[];
  created: number;
  model?: string;
  end?: End;
  error?: string;
  usage?: Usage;
}

export interface Conversation {
  id: string;
  title: string;
  system: string;
  created: number;
  updated: number;
  leaf: string | null;
  messages: Message[];
}

export interface Summary {
  id: string;
  title: string;
  updated: number;
}

/** What the server gets. */
export interface PromptMessage {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

/** randomUUID is there only for pages from HTTPS or this machine; a phone on the same network has neither. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation(system: string): Conversation {
  const now = Date.now();
  return { id: newId(), title: '', system, created: now, updated: now, leaf: null, messages: [] };
}

export function newMessage(role: Message['role'], parent: string | null): Message {
  return { id: newId(), parent, role, text: '', reasoning: '', attachments: [], created: Date.now() };
}

export function find(conversation: Conversation, id: string | null): Message | undefined {
  return conversation.messages.find((message) => message.id === id);
}

/** The messages that are shown, oldest first: from the root to `leaf`. */
export function branch(conversation: Conversation, leaf = conversation.leaf): Message[] {
  const byId = new Map(conversation.messages.map((message) => [message.id, message]));
  const list: Message[] = [];
  for (let at = leaf === null ? undefined : byId.get(leaf); at; at = at.parent === null ? undefined : byId.get(at.parent))
    list.unshift(at);
  return list;
}

/** All versions of a message, oldest first. */
export function versions(conversation: Conversation, message: Message): Message[] {
  return conversation.messages.filter((other) => other.parent === message.parent && other.role === message.role);
}

/** Shows the branch of a version, as it was last continued. */
export function show(conversation: Conversation, version: Message): void {
  let leaf = version;
  for (;;) {
    const next = conversation.messages.findLast((message) => message.parent === leaf.id);
    if (!next) break;
    leaf = next;
  }
  conversation.leaf = leaf.id;
}

/** A fence that nothing in the text ends. */
export function fenceFor(text: string): string {
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), (run) => run[0].length));
  return '`'.repeat(longest + 1);
}

/** A question with its files, as the model reads it. */
export function contentOf(message: Message): string {
  const files = message.attachments.map(({ name, text }) => {
    const fence = fenceFor(text);
    return `${name}:\n${fence}\n${text.endsWith('\n') ? text : text + '\n'}${fence}`;
  });
  return [...files, message.text].filter((part) => part !== '').join('\n\n');
}

/** The prompt that ends with `leaf`. Chat templates want questions and answers to alternate: answers that never came are
 * left out, and questions that follow each other become one. */
export function promptOf(conversation: Conversation, leaf: string): PromptMessage[] {
  const list: PromptMessage[] = [];
  if (conversation.system.trim() !== '') list.push({ role: 'system', content: conversation.system });
  for (const message of branch(conversation, leaf)) {
    const content = message.role === 'user' ? contentOf(message) : message.text;
    if (content === '' && message.role === 'assistant') continue;
    const last = list.at(-1);
    if (last?.role === message.role) last.content += '\n\n' + content;
    else list.push({ role: message.role, content });
  }
  return list;
}

export function titleOf(message: Message): string {
  const words = message.text.trim().split('\n')[0] || message.attachments[0]?.name || '';
  return words.length > 60 ? words.slice(0, 59).trimEnd() + '…' : words;
}

// Files in and out of the page.
import { branch, contentOf, type Attachment, type Conversation } from './chat';

export const kLargestFile = 1 << 20;

/** The file's text; throws a sentence for the user when it is not text. */
export async function readTextFile(file: File): Promise<Attachment> {
  if (file.size > kLargestFile)
    throw new Error(`${file.name} has ${(file.size / kLargestFile).toFixed(1)} MiB; files up to 1 MiB can be attached.`);
  const notText = new Error(`${file.name} is not a text file.`);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw notText;
  }
  if (text.includes('\0')) throw notText;
  return { name: file.name, text };
}

export function asMarkdown(conversation: Conversation): string {
  const parts = [`# ${conversation.title}`];
  if (conversation.system.trim() !== '') parts.push('## System', conversation.system);
  for (const message of branch(conversation)) {
    parts.push(message.role === 'user' ? '## User' : `## Assistant${message.model ? ` (${message.model})` : ''}`);
    if (message.reasoning) parts.push(message.reasoning.trim().replace(/^/gm, '> '));
    parts.push(message.role === 'user' ? contentOf(message) : message.text);
  }
  return parts.join('\n\n') + '\n';
}

export function fileName(title: string, extension: string): string {
  const words = title.normalize('NFKD').replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 50);
  return `${words || 'conversation'}.${extension}`;
}

export function download(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** The clipboard's interface is there only for pages from HTTPS or this machine. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'off-screen';
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}

// Conversations live in this browser's IndexedDB: summaries for the list, whole ones when they are opened.
import type { Conversation, Summary } from './chat';

const kName = 'quipu';
const kVersion = 1;

function finished<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('IndexedDB failed'));
  });
}

function done(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error('IndexedDB gave up'));
  });
}

export class Store {
  #base: IDBDatabase;
  #channel: BroadcastChannel;

  /** `changed` is called when another tab wrote or removed a conversation. */
  static async open(changed: (id: string) => void): Promise<Store> {
    const request = indexedDB.open(kName, kVersion);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('conversations', { keyPath: 'id' });
      request.result.createObjectStore('summaries', { keyPath: 'id' });
    };
    return new Store(await finished(request), changed);
  }

  private constructor(base: IDBDatabase, changed: (id: string) => void) {
    this.#base = base;
    this.#channel = new BroadcastChannel(kName);
    this.#channel.onmessage = (event) => changed(String(event.data));
  }

  /** Newest first. */
  async list(): Promise<Summary[]> {
    const all: Summary[] = await finished(this.#base.transaction('summaries').objectStore('summaries').getAll());
    return all.sort((a, b) => b.updated - a.updated);
  }

  get(id: string): Promise<Conversation | undefined> {
    return finished(this.#base.transaction('conversations').objectStore('conversations').get(id));
  }

  all(): Promise<Conversation[]> {
    return finished(this.#base.transaction('conversations').objectStore('conversations').getAll());
  }

  async put(conversation: Conversation): Promise<void> {
    const { id, title, updated } = conversation;
    const transaction = this.#base.transaction(['conversations', 'summaries'], 'readwrite');
    transaction.objectStore('conversations').put(conversation);
    transaction.objectStore('summaries').put({ id, title, updated });
    await done(transaction);
    this.#channel.postMessage(id);
  }

  async remove(id: string): Promise<void> {
    const transaction = this.#base.transaction(['conversations', 'summaries'], 'readwrite');
    transaction.objectStore('conversations').delete(id);
    transaction.objectStore('summaries').delete(id);
    await done(transaction);
    this.#channel.postMessage(id);
  }
}

// Servers that know a model's form give its reasoning apart. For the others: a text that begins with <think>.
const kOpen = '<think>';
const kClose = '</think>';

export interface Parts {
  text: string;
  reasoning: string;
}

export class ReasoningSplitter {
  #state: 'start' | 'reasoning' | 'gap' | 'text' = 'start';
  #held = '';

  /** What is certain after this piece; the rest is held until more comes. */
  push(piece: string): Parts {
    const out: Parts = { text: '', reasoning: '' };
    this.#held += piece;
    if (this.#state === 'start') {
      const begun = this.#held.trimStart();
      if (begun.startsWith(kOpen)) {
        this.#state = 'reasoning';
        this.#held = begun.slice(kOpen.length).replace(/^\n/, '');
      } else if (!kOpen.startsWith(begun)) {
        this.#state = 'text';
      } else {
        return out;
      }
    }
    if (this.#state === 'reasoning') {
      const end = this.#held.indexOf(kClose);
      if (end < 0) {
        const sure = this.#held.length - overlap(this.#held, kClose);
        out.reasoning = this.#held.slice(0, sure);
        this.#held = this.#held.slice(sure);
        return out;
      }
      out.reasoning = this.#held.slice(0, end);
      this.#held = this.#held.slice(end + kClose.length);
      this.#state = 'gap';
    }
    if (this.#state === 'gap') {
      this.#held = this.#held.trimStart();
      if (this.#held === '') return out;
      this.#state = 'text';
    }
    out.text = this.#held;
    this.#held = '';
    return out;
  }

  /** What was held when the answer ended. */
  end(): Parts {
    const held = this.#held;
    this.#held = '';
    return this.#state === 'reasoning' ? { text: '', reasoning: held } : { text: held, reasoning: '' };
  }
}

/** Length of the longest end of `text` that `mark` begins with. */
function overlap(text: string, mark: string): number {
  for (let length = Math.min(text.length, mark.length - 1); length > 0; --length) {
    if (mark.startsWith(text.slice(text.length - length))) return length;
  }
  return 0;
}

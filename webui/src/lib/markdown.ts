// Markdown to HTML that is safe to show: a model may print anything. Its own HTML is shown as text, pictures become links,
// and what is left goes through DOMPurify. The page's policy forbids the rest a second time.
import DOMPurify from 'dompurify';
import { Marked, type Token, type Tokens } from 'marked';
import { highlight } from './highlight';

const kEntities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
export const escape = (text: string) => text.replace(/[&<>"']/g, (sign) => kEntities[sign] ?? sign);

const marked = new Marked({
  gfm: true,
  renderer: {
    html({ text }: Tokens.HTML | Tokens.Tag) {
      return escape(text);
    },
    image({ href, text }: Tokens.Image) {
      return `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
    code({ text, lang }: Tokens.Code) {
      const name = (lang ?? '').trim().split(/\s/)[0] ?? '';
      return (
        `<div class="code"><div class="code-head"><span>${escape(name)}</span>` +
        `<button type="button" class="copy" aria-label="Copy the code">Copy</button></div>` +
        `<pre tabindex="0"><code>${highlight(text, name) ?? escape(text)}</code></pre></div>`
      );
    },
    table(token: Tokens.Table) {
      const row = (cells: Tokens.TableCell[], tag: string) =>
        `<tr>${cells
          .map((cell) => {
            const align = cell.align ? ` align="${cell.align}"` : '';
            return `<${tag}${align}>${this.parser.parseInline(cell.tokens)}</${tag}>`;
          })
          .join('')}</tr>`;
      return (
        `<div class="table" tabindex="0"><table><thead>${row(token.header, 'th')}</thead>` +
        `<tbody>${token.rows.map((cells) => row(cells, 'td')).join('')}</tbody></table></div>`
      );
    },
  },
});

const kTags =
  'a blockquote br button code del div em h1 h2 h3 h4 h5 h6 hr input li ol p pre span strong table tbody td th thead tr ul';
const kAttributes = 'align aria-label checked class disabled href rel start tabindex target title type';
const kSafe = {
  ALLOWED_TAGS: kTags.split(' '),
  ALLOWED_ATTR: kAttributes.split(' '),
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
};

// The address check runs on every attribute that is not known to be plain text.
DOMPurify.addHook('uponSanitizeAttribute', (_, event) => {
  if (event.attrName !== 'href') event.forceKeepAttr = kSafe.ALLOWED_ATTR.includes(event.attrName);
});
DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName !== 'A') return;
  node.setAttribute('target', '_blank');
  node.setAttribute('rel', 'noopener noreferrer nofollow');
});

/** The text's blocks. A block whose `raw` is unchanged needs not be rendered again. */
export function blocks(text: string): Token[] {
  return marked.lexer(text).filter((token) => token.type !== 'space' && token.type !== 'def');
}

export function render(block: Token): string {
  return DOMPurify.sanitize(marked.parser([block]), kSafe);
}

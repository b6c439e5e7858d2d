// Puts script and style into the page, and the page's Content-Security-Policy before them: nothing runs but this script,
// nothing is loaded, and only the server that gave the page is asked. The server sends the same policy as a header.
//
// Beside it goes a list of checksums of all that the page was made from: from it tools/check_dist.py tells, without Node,
// whether the committed page is that of the committed sources.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';

const kRoot = new URL('../', import.meta.url);
const kSources = ['index.html', 'package.json', 'package-lock.json', 'svelte.config.js', 'tools/one_page.js', 'vite.config.js'];

const digest = (data, form) => createHash('sha256').update(data).digest(form);
const hash = (text) => `'sha256-${digest(text, 'base64')}'`;

/** In the form of sha256sum. */
function checksums(page) {
  const below = readdirSync(new URL('src/', kRoot), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => `${entry.parentPath ?? entry.path}/${entry.name}`.replace(/\/\/+/g, '/').slice(kRoot.pathname.length));
  const lines = [...kSources, ...below].map((path) => `${digest(readFileSync(new URL(path, kRoot)), 'hex')}  ${path}\n`);
  return [...lines, `${digest(page, 'hex')}  dist/index.html\n`].sort((a, b) => (a.slice(66) < b.slice(66) ? -1 : 1)).join('');
}

/** The licences of what is in the script, which want to be where it is. */
function licences(chunk) {
  const folders = chunk.moduleIds.map((id) => id.match(/.*\/node_modules\/(?:@[^/]+\/)?[^/]+/)?.[0]).filter(Boolean);
  const notices = [...new Set(folders)].map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, 'utf8'));
    const file = readdirSync(folder).filter((entry) => /^licen[cs]e(\.md|\.txt)?$/i.test(entry));
    if (file.length !== 1) throw new Error(`one_page: ${name} has ${file.length} licence files, expected 1`);
    return `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file[0]}`, 'utf8').trim()}\n`;
  });
  const text = `This page contains:\n\n${notices.sort().join('\n\n')}`;
  if (/--!?>/.test(text)) throw new Error('one_page: a licence ends its own comment');
  return `<!--\n${text}-->\n`;
}

export function policy(script, style) {
  return [
    "default-src 'none'",
    `script-src ${hash(script)}`,
    `style-src ${hash(style)}`,
    'img-src data:',
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

export function onePage() {
  return {
    name: 'one-page',
    apply: 'build',
    enforce: 'post',
    generateBundle(_, bundle) {
      const only = (kind, list) => {
        if (list.length !== 1) throw new Error(`one_page: ${list.length} ${kind} in the bundle, expected 1`);
        return list[0];
      };
      const files = Object.values(bundle);
      const page = only('pages', files.filter((file) => file.fileName.endsWith('.html')));
      const chunk = only('scripts', files.filter((file) => file.type === 'chunk'));
      const sheet = only('style sheets', files.filter((file) => file.fileName.endsWith('.css')));
      if (files.length !== 3) throw new Error(`one_page: ${files.map((file) => file.fileName)}, expected three files`);

      // "</script" and "<!--" mean something to the HTML parser. In code they stand inside strings, templates and regular
      // expressions, where \x3c is the same sign.
      const script = chunk.code.trim().replace(/<(?=\/script|!--)/gi, '\\x3c');
      const style = String(sheet.source).trim();
      if (/<\/style/i.test(style)) throw new Error('one_page: the style sheet ends its own element');
      const swap = (html, pattern, text) => {
        if (html.match(pattern)?.length !== 1) throw new Error(`one_page: the page has no single ${pattern}`);
        return html.replace(pattern, () => text);
      };
      let html = String(page.source);
      html = swap(html, /[ \t]*<link rel="stylesheet"[^>]*>\n?/g, `<style>${style}</style>\n`);
      html = swap(html, /[ \t]*<script type="module"[^>]*><\/script>\n?/g, `<script type="module">${script}</script>\n`);
      html = swap(
        html,
        /<!--policy-->/g,
        `<meta http-equiv="Content-Security-Policy" content="${policy(script, style)}" />`,
      );
      html += licences(chunk);
      page.source = html;
      delete bundle[chunk.fileName];
      delete bundle[sheet.fileName];
      this.emitFile({ type: 'asset', fileName: 'sources.sha256', source: checksums(html) });
    },
  };
}

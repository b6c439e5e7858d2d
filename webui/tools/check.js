// Fails when the committed page is not what the sources build.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'vite';

if (/"resolved"/.test(readFileSync('package-lock.json', 'utf8'))) {
  console.error('package-lock.json names a registry: npm install with the settings of .npmrc leaves it out');
  process.exit(1);
}
const folder = mkdtempSync(join(tmpdir(), 'quipu-webui-'));
try {
  await build({ logLevel: 'warn', build: { outDir: folder, emptyOutDir: true } });
  for (const name of ['index.html', 'sources.sha256']) {
    if (readFileSync(join(folder, name)).equals(readFileSync(join('dist', name)))) continue;
    console.error(`dist/${name} is not what the sources build: npm run build, and commit it`);
    process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true });
}
if (!process.exitCode) console.log('dist is what the sources build');

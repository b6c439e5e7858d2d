// Runs the named test files, or all of them; exits with 77, which ctest shows as skipped, where they cannot run.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromiumPath } from './browser.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const skip = (reason) => {
  console.log(`SKIPPED: ${reason}`);
  process.exit(77);
};
if (!existsSync(`${root}/node_modules/playwright-core`)) skip('run `npm ci` in webui first');
if (!chromiumPath()) skip('there is no Chromium (Debian: chromium); QUIPU_CHROMIUM names one elsewhere');
process.env.QUIPU_TEST_MODEL ??= `${process.env.QUIPU_CACHE ?? `${process.env.HOME}/.cache/quipu`}/models/SmolLM2-135M-Instruct.Q4_1.gguf`;
const named = process.argv.slice(2);
if (named.includes('serve.test.js')) {
  if (!existsSync(process.env.QUIPU_BINARY ?? '')) skip('QUIPU_BINARY names no quipu');
  if (!existsSync(process.env.QUIPU_TEST_MODEL ?? '')) skip('the default model is absent (quipu pull smollm2)');
}
const files = (named.length > 0 ? named : readdirSync(`${root}/tests`).filter((name) => name.endsWith('.test.js'))).map(
  (name) => `${root}/tests/${name}`,
);
// A failed test may leave a server or a browser open: that must not keep the run from ending.
const options = ['--test', '--test-force-exit', '--test-reporter=spec'];
process.exit(spawnSync(process.execPath, [...options, ...files], { stdio: 'inherit' }).status ?? 1);

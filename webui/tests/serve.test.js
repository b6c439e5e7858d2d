// The page and `quipu serve` together, on a real model: QUIPU_BINARY and QUIPU_TEST_MODEL.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, test } from 'node:test';
import { answered, answers, ask, closePage, composer, launch, openPage } from './browser.js';

const kKey = 'test-key-0123456789';
const kPatience = 240_000;
const ready = process.env.QUIPU_BINARY && process.env.QUIPU_TEST_MODEL;

let browser, page, server;

/** Starts a server and waits until it has a model; { process, url }. */
function serve(port = 0) {
  const child = spawn(
    process.env.QUIPU_BINARY,
    ['serve', '-m', process.env.QUIPU_TEST_MODEL, '--alias', 'real', '--port', String(port), '--api-key', kKey, '-c', '2048', '--temp', '0'],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  return new Promise((resolve, reject) => {
    let text = '';
    child.on('exit', (code) => reject(new Error(`quipu serve ended with ${code}: ${text}`)));
    child.stderr.on('data', (data) => {
      text += data;
      const address = text.match(/listening on (http:\S+)/);
      if (address && /quipu: ready/.test(text)) resolve({ process: child, url: address[1] });
    });
  });
}
const end = (child, signal) => new Promise((resolve) => (child.once('exit', resolve), child.kill(signal)));

before(async () => {
  if (!ready) return;
  [server, browser] = await Promise.all([serve(), launch()]);
});
after(async () => {
  await browser?.close();
  if (server && server.process.exitCode === null && server.process.signalCode === null) await end(server.process, 'SIGKILL');
});

test('the page of quipu serve', { skip: !ready && 'QUIPU_BINARY or QUIPU_TEST_MODEL is not set', timeout: 2 * kPatience }, async (t) => {
  await t.test('comes from the server and asks for the key', async () => {
    page = await openPage(browser, server.url);
    const field = page.getByLabel('This server wants an API key.');
    await field.fill(kKey);
    await field.press('Enter');
    await page.locator('.model').getByText('real', { exact: true }).waitFor();
  });

  await t.test('streams an answer and counts its tokens', async () => {
    await page.getByRole('button', { name: 'Settings' }).click();
    await page.getByLabel('Max tokens').fill('24');
    await page.keyboard.press('Escape');
    await ask(page, 'Count from one to fifty in words.');
    const answer = await answered(page, kPatience);
    assert.equal(await page.locator('.failure').count(), 0);
    assert.notEqual((await answer.locator('.answer').innerText()).trim(), '');
    assert.match(await answer.locator('.stats').innerText(), /tokens\/s · 24 tokens$/);
    await answer.getByText('Cut off:').waitFor();
    assert.match(await answer.locator('.stats').getAttribute('title'), /^[1-9]\d* prompt tokens, \d+ of them known/);
  });

  await t.test('stops, and the server ends the sequence', async () => {
    await page.getByRole('button', { name: 'Settings' }).click();
    await page.getByLabel('Max tokens').fill('1500');
    await page.keyboard.press('Escape');
    await ask(page, 'Write a very long story about a knotted string.');
    await answers(page).nth(1).locator('.answer').waitFor({ timeout: kPatience });
    await composer(page).press('Escape');
    await (await answered(page)).getByText('Stopped.').waitFor();
    const running = async () => {
      const text = await (await fetch(new URL('/metrics', server.url), { headers: { Authorization: `Bearer ${kKey}` } })).text();
      return Number(text.match(/^quipu_running_sequences(?:\{.*\})? (\d+)/m)[1]);
    };
    for (let i = 0; (await running()) > 0; ++i) {
      assert.ok(i < 600, 'the sequence still runs');
      await page.waitForTimeout(100);
    }
  });

  await t.test('keeps the history over a reload', async () => {
    const before = await answers(page).locator('.answer').allInnerTexts();
    await page.reload();
    await answers(page).nth(1).locator('.answer').waitFor();
    assert.deepEqual(await answers(page).locator('.answer').allInnerTexts(), before);
  });

  await t.test('shows that the server died', async () => {
    await ask(page, 'Write another very long story.');
    await answers(page).nth(2).locator('.answer').waitFor({ timeout: kPatience });
    await end(server.process, 'SIGKILL');
    await page.locator('.failure').getByText('The connection broke off before the answer was complete.').waitFor();
    await page.locator('.notice').getByText('The server does not answer.').waitFor();
    server = await serve(Number(new URL(server.url).port));
    await page.locator('.notice').waitFor({ state: 'detached' });
    await closePage(page);
  });
});

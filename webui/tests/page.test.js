import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { answered, answers, ask, closePage, composer, launch, openPage, questions } from './browser.js';
import { mockServer } from './mock_server.js';

let browser, server, page;
before(async () => (browser = await launch()));
after(() => browser?.close());
beforeEach(async () => {
  server = await mockServer();
  page = await openPage(browser, server.url);
});
afterEach(async () => {
  await server.close();
  await closePage(page);
});

const list = () => page.locator('.sidebar .title');
const reload = async () => {
  await page.reload();
  await list().first().waitFor();
};

test('asks, streams and shows the model and the speed', async () => {
  await page.getByText('mock-1b', { exact: true }).waitFor();
  await ask(page, 'hello there');
  const answer = await answered(page);
  assert.equal(await answer.locator('.answer').innerText(), 'You said: hello there');
  assert.match(await answer.locator('.tools .stats').innerText(), /^[\d.]+ tokens\/s · 4 tokens$/);
  assert.deepEqual(server.requests[0].messages, [{ role: 'user', content: 'hello there' }]);
  assert.equal(server.requests[0].model, 'mock-1b');
  assert.equal(server.requests[0].stream, true);
  // What the user did not set is the server's to choose.
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed'])
    assert.equal(name in server.requests[0], false, name);
  assert.equal(await page.title(), 'hello there · quipu');
  await ask(page, 'and again');
  await answered(page);
  assert.deepEqual(server.requests[1].messages.map((message) => message.role), ['user', 'assistant', 'user']);
  assert.equal(server.requests[1].messages[1].content, 'You said: hello there');
});

test('asks nobody but the server', async () => {
  await ask(page, 'evil');
  await answered(page);
  const hosts = page.asked.filter((url) => !url.startsWith('data:')).map((url) => new URL(url).host);
  assert.deepEqual([...new Set(hosts)], [new URL(server.url).host]);
  assert.deepEqual(server.unexpected, []);
});

test('renders Markdown, highlights and copies code', async () => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await ask(page, 'markdown');
  const answer = await answered(page);
  assert.equal(await answer.locator('h1').innerText(), 'Heading');
  assert.equal(await answer.locator('em').innerText(), 'text');
  assert.equal(await answer.locator('td[align=right]').innerText(), '3');
  assert.equal(await answer.locator('li input[type=checkbox]').isChecked(), true);
  assert.match(await answer.locator('p').first().innerText(), /ünïcödé 🪢/);
  assert.equal(await answer.locator('a').getAttribute('rel'), 'noopener noreferrer nofollow');
  assert.equal(await answer.locator('.code .hljs-keyword').first().innerText(), 'def');
  const plain = await page.evaluate(() => getComputedStyle(document.querySelector('.code code')).color);
  const keyword = await page.evaluate(() => getComputedStyle(document.querySelector('.hljs-keyword')).color);
  assert.notEqual(keyword, plain);
  await answer.getByRole('button', { name: 'Copy the code' }).click();
  await answer.getByText('Copied').waitFor();
  assert.equal(
    await page.evaluate(() => navigator.clipboard.readText()),
    'def knot(n: int) -> str:\n    """Tie one."""\n    return "o" * n  # <script>',
  );
});

test('shows what a model prints as text, and runs none of it', async () => {
  await ask(page, 'evil');
  const answer = await answered(page);
  const found = await answer.evaluate((element) => ({
    tags: [...new Set([...element.querySelectorAll('.answer *')].map((node) => node.tagName))].sort(),
    handlers: [...element.querySelectorAll('*')].flatMap((node) => node.getAttributeNames().filter((name) => /^on|^style$/.test(name))),
    links: [...element.querySelectorAll('a')].map((node) => node.getAttribute('href')),
    text: element.textContent,
  }));
  for (const tag of ['IMG', 'SCRIPT', 'STYLE', 'FORM', 'IFRAME', 'INPUT', 'B']) assert.ok(!found.tags.includes(tag), tag);
  assert.deepEqual(found.handlers, []);
  assert.deepEqual(found.links.filter((href) => href !== null), ['https://example.org/steal?q=secret']);
  assert.ok(found.text.includes(`<img src=x onerror="window.harm = 'img'">`));
  for (const link of await answer.locator('a').all()) {
    if ((await link.getAttribute('href')) === null) await link.click();
  }
  await page.waitForTimeout(100);
  assert.equal(await page.evaluate(() => window.harm), undefined);
  // Nor would a script that found another way in.
  await page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = "window.harm = 'policy'";
    document.body.append(script);
  });
  assert.equal(await page.evaluate(() => window.harm), undefined);
  assert.equal(page.faults.length, 1);
  page.faults = [];
});

test('folds reasoning, given apart or in the text', async () => {
  for (const [question, reasoning, text] of [
    ['reason', 'First I count the knots.', 'Three.'],
    ['think', 'Hm, a cord.', 'A cord.'],
  ]) {
    await ask(page, question);
    const answer = await answered(page);
    assert.equal(await answer.locator(':scope > .answer').innerText(), text);
    const fold = answer.locator('details.reasoning');
    assert.equal(await fold.getAttribute('open'), null);
    await fold.locator('summary').click();
    assert.equal(await fold.locator('.answer').innerText(), reasoning);
  }
  // Reasoning does not go back to the model.
  assert.equal(server.requests[1].messages[1].content, 'Three.');
});

test('stops on Escape, and the server hears of it', async () => {
  await ask(page, 'slow');
  await answers(page).getByText('3 4 5').waitFor();
  assert.match(await answers(page).locator('.live').innerText(), /^[\d.]+ tokens\/s$/);
  assert.equal(await page.getByRole('button', { name: 'Send' }).count(), 0);
  await page.keyboard.press('Escape');
  const answer = await answered(page);
  await answer.getByText('Stopped.').waitFor();
  const text = await answer.locator('.answer').innerText();
  assert.match(text, /^0 1 2 3 4 5/);
  await page.waitForTimeout(200);
  assert.equal(await answer.locator('.answer').innerText(), text);
  assert.equal(server.state.cancelled, 1);
  // The button does the same.
  await ask(page, 'slow again');
  await page.getByRole('button', { name: 'Stop' }).click();
  await (await answered(page)).getByText('Stopped.').waitFor();
});

test('keeps conversations over a reload, and opens the same one', async () => {
  await ask(page, 'first question');
  await answered(page);
  await page.keyboard.press('Control+Shift+O');
  await ask(page, 'second question');
  await answered(page);
  await reload();
  assert.deepEqual(await list().allInnerTexts(), ['second question', 'first question']);
  await answers(page).getByText('You said: second question').waitFor();
  await list().nth(1).click();
  await answers(page).getByText('You said: first question').waitFor();
});

test('keeps what there is of an answer when the page goes', async () => {
  await ask(page, 'slow');
  await answers(page).getByText('8 9 10').waitFor();
  await page.waitForTimeout(1200);
  await reload();
  await answers(page).getByText('0 1 2 3 4 5 6 7 8').waitFor();
  await page.getByText('The page was closed before the answer was complete.').waitFor();
});

test('edits a question and answers again, keeping the other versions', async () => {
  await ask(page, 'one');
  await answered(page);
  await ask(page, 'two');
  await answered(page);
  await page.getByRole('button', { name: 'Edit the message' }).first().click();
  const field = page.getByRole('textbox', { name: 'Edit the message' });
  assert.equal(await field.inputValue(), 'one');
  await field.press('Escape');
  assert.equal(await questions(page).count(), 2);
  await page.getByRole('button', { name: 'Edit the message' }).first().click();
  await field.fill('uno');
  await field.press('Enter');
  await answered(page);
  assert.deepEqual(server.requests.at(-1).messages, [{ role: 'user', content: 'uno' }]);
  assert.equal(await questions(page).count(), 1);
  await page.getByRole('button', { name: 'Earlier version' }).first().click();
  assert.deepEqual(await questions(page).locator('.bubble').allInnerTexts(), ['one', 'two']);

  await page.getByRole('button', { name: 'Answer again' }).last().click();
  await answered(page);
  assert.equal(await answers(page).last().locator('.versions').innerText(), '2/2');
  assert.deepEqual(server.requests.at(-1).messages.map((message) => message.content), ['one', 'You said: one', 'two']);
  await reload();
  assert.equal(await answers(page).last().locator('.versions').innerText(), '2/2');
});

test('sends the system prompt and the sampling settings, and keeps them', async () => {
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('System prompt').fill('Be brief.');
  const values = { Temperature: '0.3', 'Top p': '0.9', 'Top k': '20', 'Min p': '0.05', 'Max tokens': '64', Seed: '7' };
  for (const [name, value] of Object.entries(values)) await page.getByLabel(name).fill(value);
  await page.keyboard.press('Escape');
  await ask(page, 'hello');
  await answered(page);
  const { temperature, top_p, top_k, min_p, max_tokens, seed, messages } = server.requests[0];
  assert.deepEqual(
    { temperature, top_p, top_k, min_p, max_tokens, seed },
    { temperature: 0.3, top_p: 0.9, top_k: 20, min_p: 0.05, max_tokens: 64, seed: 7 },
  );
  assert.deepEqual(messages[0], { role: 'system', content: 'Be brief.' });
  await reload();
  await page.getByRole('button', { name: 'Settings' }).click();
  assert.equal(await page.getByLabel('Top k').inputValue(), '20');
  assert.equal(await page.getByLabel('System prompt').inputValue(), 'Be brief.');
  // What is out of range is not sent.
  await page.getByLabel('Top p').fill('3');
  await page.getByLabel('Temperature').fill('');
  await page.getByRole('button', { name: 'Close the settings' }).click();
  await ask(page, 'again');
  await answered(page);
  assert.equal('top_p' in server.requests[1] || 'temperature' in server.requests[1], false);
});

test('attaches text files and refuses others', async () => {
  const files = page.locator('input[type=file]');
  await files.setInputFiles([
    { name: 'notes.md', mimeType: 'text/markdown', buffer: Buffer.from('a\n```\nb\n```\n') },
    { name: 'ü.txt', mimeType: 'text/plain', buffer: Buffer.from('grüße') },
  ]);
  await page.getByRole('button', { name: 'Remove ü.txt' }).click();
  await files.setInputFiles([{ name: 'x.bin', mimeType: '', buffer: Buffer.from([1, 0, 255, 3]) }]);
  await page.getByRole('alert').getByText('x.bin is not a text file.').waitFor();
  await files.setInputFiles([{ name: 'big.txt', mimeType: '', buffer: Buffer.alloc(3 << 19, 'a') }]);
  await page.getByText('big.txt has 1.5 MiB; files up to 1 MiB can be attached.').waitFor();
  await ask(page, 'what is this?');
  await answered(page);
  assert.equal(server.requests[0].messages[0].content, 'notes.md:\n````\na\n```\nb\n```\n````\n\nwhat is this?');
  assert.match(await questions(page).first().innerText(), /notes\.md\s*4 lines/);
});

test('shows errors of the server and asks again', async () => {
  await ask(page, 'busy now');
  const failure = page.locator('.failure');
  await failure.getByText('The queue is full. Try again in 7 s.').waitFor();
  await failure.getByRole('button', { name: 'Try again' }).click();
  await answered(page);
  assert.equal(server.requests.length, 2);
  for (const [question, sentence] of [
    ['long', "This model's maximum context length is 8 tokens."],
    ['error', 'out of memory in the step'],
    ['die', 'The connection broke off before the answer was complete.'],
  ]) {
    await page.keyboard.press('Control+Shift+O');
    await ask(page, question);
    await page.getByRole('alert').getByText(sentence).waitFor();
  }
  assert.match(await answers(page).last().locator('.answer').innerText(), /^0 1 2 3/);
  await ask(page, 'cut');
  await (await answered(page)).getByText('Cut off:').waitFor();
  // An answer that never came does not go to the model: questions and answers alternate.
  await page.keyboard.press('Control+Shift+O');
  await ask(page, 'busy');
  await page.getByText('The queue is full.').waitFor();
  await ask(page, 'now?');
  await answered(page);
  assert.deepEqual(server.requests.at(-1).messages, [{ role: 'user', content: 'busy\n\nnow?' }]);
});

test('says when the server is gone, and when it is back', async () => {
  await ask(page, 'slow');
  await answers(page).getByText('3 4').waitFor();
  await server.close();
  await page.locator('.failure').getByText('The connection broke off').waitFor();
  await page.locator('.notice').getByText('The server does not answer.').waitFor();
  await ask(page, 'are you there?');
  await page.locator('.failure').getByText('The server does not answer. Is it running?').waitFor();
  server = await mockServer({ port: server.port });
  await page.locator('.notice').waitFor({ state: 'detached' });
  await page.locator('.failure').last().getByRole('button', { name: 'Try again' }).click();
  await answers(page).getByText('are you there?').waitFor();
});

test('asks for an API key when the server wants one', async () => {
  const locked = await mockServer({ key: 'sesame', models: ['small', 'large'] });
  const guest = await openPage(browser, locked.url);
  const field = guest.getByLabel('This server wants an API key.');
  await field.fill('wrong');
  await field.press('Enter');
  const again = guest.getByLabel('The API key is not one of this server’s.');
  await again.fill('sesame');
  await again.press('Enter');
  await guest.getByLabel('Model').selectOption('large');
  await ask(guest, 'hello');
  await answered(guest);
  assert.equal(locked.requests[0].model, 'large');
  await guest.reload();
  await guest.getByLabel('Model').waitFor();
  assert.equal(await guest.getByLabel('Model').inputValue(), 'large');
  await closePage(guest);
  await locked.close();
});

test('renames, exports, deletes and brings back', async () => {
  await ask(page, 'reason about knots');
  await answered(page);
  await page.getByRole('button', { name: 'Rename reason about knots' }).click();
  await page.getByLabel('Name of the conversation').fill('Knots: a study');
  await page.keyboard.press('Enter');
  assert.deepEqual(await list().allInnerTexts(), ['Knots: a study']);

  const saved = async (name) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name }).click()]);
    return [download.suggestedFilename(), await readFile(await download.path(), 'utf8')];
  };
  assert.deepEqual(await saved('Export Knots: a study'), [
    'Knots-a-study.md',
    '# Knots: a study\n\n## User\n\nreason about knots\n\n## Assistant (mock-1b)\n\n> First I count the knots.\n\nThree.\n',
  ]);
  const [name, text] = await saved('Export all');
  assert.equal(name, 'quipu-conversations.json');
  assert.equal(JSON.parse(text)[0].messages[1].text, 'Three.');

  await page.getByRole('button', { name: 'Delete Knots: a study' }).click();
  await page.getByText('Deleted “Knots: a study”.').waitFor();
  assert.equal(await list().count(), 0);
  await page.getByRole('button', { name: 'Undo' }).click();
  await answers(page).getByText('Three.').waitFor();
  await page.getByRole('button', { name: 'Delete Knots: a study' }).click();
  await page.reload();
  await composer(page).waitFor();
  await page.waitForTimeout(100);
  assert.equal(await list().count(), 0);
});

test('is used with the keyboard alone', async () => {
  assert.equal(await page.evaluate(() => document.activeElement.id), 'composer');
  await page.keyboard.type('line one');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('line two');
  assert.equal(server.requests.length, 0);
  await page.keyboard.press('Enter');
  await answered(page);
  assert.equal(server.requests[0].messages[0].content, 'line one\nline two');
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'composer');
  assert.equal(await composer(page).inputValue(), '');
  // Every control has a name.
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll('button, input, textarea, select')]
      .filter((e) => !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()))
      .map((e) => e.outerHTML),
  );
  assert.deepEqual(nameless, []);
  const order = [];
  await page.evaluate(() => (document.activeElement.blur(), window.getSelection().removeAllRanges()));
  await page.locator('.skip').focus();
  for (let i = 0; i < 6; ++i) {
    order.push(await page.evaluate(() => document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.trim()));
    await page.keyboard.press('Tab');
  }
  assert.deepEqual(order, [
    'To the message field',
    'New conversation',
    'line one',
    'Rename line one',
    'Export line one',
    'Delete line one',
  ]);
});

test('fits a phone', async () => {
  const phone = await openPage(browser, server.url, { viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
  await ask(phone, 'markdown');
  await answered(phone);
  assert.equal(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  const outside = await phone.evaluate(() =>
    [...document.querySelectorAll('main button, main textarea, main h1, main .model')]
      .map((e) => [e.getAttribute('aria-label') || e.textContent, e.getBoundingClientRect()])
      .filter(([, box]) => box.width < 20 || box.left < 0 || box.right > innerWidth)
      .map(([name, box]) => `${name}: ${box.left} to ${box.right}`),
  );
  assert.deepEqual(outside, []);
  // The end of the answer is in sight.
  const room = await phone.evaluate(() => {
    const scroller = document.querySelector('.scroller');
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  });
  assert.ok(room < 2, `${room} px below`);
  // The list is out of the way, for fingers and for the keyboard.
  assert.equal(await phone.locator('.side').evaluate((side) => side.inert && side.getBoundingClientRect().right <= 0), true);
  await phone.getByRole('button', { name: 'Conversations' }).tap();
  await phone.getByRole('button', { name: 'New conversation' }).tap();
  assert.equal(await answers(phone).count(), 0);
  assert.equal(await phone.locator('.side').evaluate((side) => side.inert), true);
  await closePage(phone);
});

test('is light or dark as the system says, or as the user says', async () => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: 'light' });
  const light = await ground();
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await ground();
  assert.notEqual(light, dark);
  await page.getByRole('button', { name: 'Theme: system' }).click();
  assert.equal(await ground(), light);
  await page.reload();
  await page.getByRole('button', { name: 'Theme: light' }).click();
  await page.emulateMedia({ colorScheme: 'light' });
  assert.equal(await ground(), dark);
});

test('goes on answering while another conversation is shown, until it is deleted', async () => {
  await ask(page, 'slow one');
  await answers(page).getByText('3 4 5').waitFor();
  await page.keyboard.press('Control+Shift+O');
  await ask(page, 'hello');
  await answers(page).getByText('You said: hello').waitFor();
  assert.equal(server.state.cancelled, 0);
  await list().getByText('slow one').click();
  const length = async () => (await answers(page).locator('.answer').innerText()).length;
  const before = await length();
  await answers(page).getByText(' 40 41 ').waitFor();
  assert.ok((await length()) > before);
  await page.getByRole('button', { name: 'Delete slow one' }).click();
  await page.waitForTimeout(300);
  assert.equal(server.state.cancelled, 1);
  assert.deepEqual(await list().allInnerTexts(), ['hello']);
  await reload();
  assert.deepEqual(await list().allInnerTexts(), ['hello']);
});

test('two tabs show the same conversations', async () => {
  const other = await page.context().newPage();
  await other.goto(server.url);
  await ask(page, 'from the first tab');
  await answered(page);
  await other.locator('.sidebar .title').getByText('from the first tab').click();
  await answers(other).getByText('You said: from the first tab').waitFor();
});

// A headless Chromium for the tests, and what they say to the page.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';

const kPlaces = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

export function chromiumPath() {
  const named = process.env.QUIPU_CHROMIUM;
  return named ? (existsSync(named) ? named : undefined) : kPlaces.find((place) => existsSync(place));
}

export async function launch() {
  const { chromium } = await import('playwright-core');
  // Containers run tests as root, and have little shared memory.
  const args = ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'];
  return chromium.launch({ executablePath: chromiumPath(), args });
}

/** A page in a browser of its own, which fails the test when a script fails or the page's policy is broken. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.faults = [];
  page.asked = [];
  page.on('pageerror', (error) => page.faults.push(String(error)));
  page.on('console', (message) => {
    if (/Content Security Policy/.test(message.text())) page.faults.push(message.text());
  });
  page.on('request', (request) => page.asked.push(request.url()));
  await page.goto(url);
  return page;
}

export async function closePage(page) {
  await page.context().close();
  assert.deepEqual(page.faults, []);
}

export const composer = (page) => page.getByRole('textbox', { name: 'Message', exact: true });
export const answers = (page) => page.locator('.message.assistant');
export const questions = (page) => page.locator('.message.user');

export async function ask(page, text) {
  await composer(page).fill(text);
  await composer(page).press('Enter');
}

/** Waits for the answer's end. */
export async function answered(page, timeout = 30_000) {
  await page.locator('[role=log][aria-busy=false]').waitFor({ timeout });
  return answers(page).last();
}

// Helpers for browser tests.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { fragment, SCREENSHOTS } from './stage.js';

/** Time limit for a step on a busy machine. */
export const TIMEOUT_MS = 30_000;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Opens the dashboard on a bucket, and records errors that the page throws. */
export async function openDashboard(stage, { go = 'overview', payload = {}, context = {}, url = stage.url, plain = false } = {}) {
  const browserContext = await stage.browser.newContext({ viewport: { width: 1320, height: 860 }, ...context });
  await browserContext.grantPermissions(['clipboard-read', 'clipboard-write']).catch(() => undefined);
  const page = await browserContext.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  page.errors = [];
  page.requests = [];
  page.streams = 0;
  page.on('response', (response) => { if (response.url().endsWith('/v1/events')) page.streams += 1; });
  page.on('pageerror', (error) => page.errors.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) page.errors.push(message.text());
  });
  page.on('request', (request) => page.requests.push({ method: request.method(), url: request.url() }));
  await page.goto(plain ? url : url + fragment(stage.s3, stage.bucket, payload, go));
  return page;
}

export async function closePage(page) {
  assert.deepEqual(page.errors, [], 'the page threw errors');
  assert.equal(await page.evaluate(() => window.qoHacked), undefined, 'no content of a task ran as a script');
  await page.context().close();
}

/** Goes to another page of the dashboard, and waits until that has begun: the browser tells the dashboard later, and until then the old page is there. */
export async function visit(page, hash) {
  await page.evaluate((target) => new Promise((done) => {
    addEventListener('hashchange', () => done(), { once: true });
    // The address may be the same as before.
    setTimeout(done, 1000);
    location.hash = target;
  }), hash);
}

/** Waits until no dialog is left. The browser reports that a dialog is closed with its next frame, and then the dashboard removes it. */
export async function noDialog(page) {
  await page.locator('dialog').waitFor({ state: 'detached' });
}

/** Waits until the page has sent no request for a while. */
export async function quiet(page, forMs = 700) {
  const end = Date.now() + TIMEOUT_MS * 2;
  let many = -1;
  while (page.requests.length !== many) {
    if (Date.now() > end) throw new Error('timed out waiting until the page sends no requests');
    many = page.requests.length;
    await page.waitForTimeout(forMs);
  }
}

/** Waits until the page listens to the events of its server. It does not see changes between its first requests and that. */
export async function listens(page) {
  await until('the page listens', async () => page.streams > 0);
}

/** Waits until the page shows a text. */
export async function shows(page, text, selector = '#app') {
  await page.locator(selector).filter({ hasText: text }).first().waitFor();
}

/** Fails on serious accessibility violations. */
export async function checkAccess(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).slice(0, 3).join(' | ')}`), [], `axe on ${name}`);
}

/** The size of a phone's screen. */
const PHONE = { width: 390, height: 800 };

/** Takes screenshots with the light and the dark theme, as the page is and, if that is wide, on a phone. Nothing may overflow there. */
export async function screenshot(page, name, { fullPage = false } = {}) {
  await page.evaluate(() => window.scrollTo(0, 0));
  await takeThemes(page, name, fullPage);
  const size = page.viewportSize();
  if (size.width <= PHONE.width) return;
  await page.setViewportSize(PHONE);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(overflow <= 0, `${name} is ${overflow} px too wide for a phone`);
  await takeThemes(page, `${name}-phone`, true);
  await page.setViewportSize(size);
}

async function takeThemes(page, name, fullPage) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.screenshot({ path: join(SCREENSHOTS, `${name}-${scheme}.png`), fullPage, animations: 'disabled' });
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

/** Waits until a condition holds. */
export async function until(what, condition) {
  const end = Date.now() + TIMEOUT_MS * 2;
  for (;;) {
    const result = await condition();
    if (result) return result;
    if (Date.now() > end) throw new Error(`timed out waiting until ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

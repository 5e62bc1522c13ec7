// Tokens, reloads and several tabs, on a server.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { checkAccess, closePage, listens, openDashboard, quiet, screenshot, shows, TIMEOUT_MS, until, visit } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { serveQo } from '../support/serve.js';
import { startBrowser } from '../support/stage.js';

/** How long a new task takes to appear on a quiet machine, generously. */
const ALONE_MS = 150;
let browser;
let folder;
let open;
let guarded;
let store;
let admin;
before(async () => {
  browser = await startBrowser();
  folder = mkdtempSync(join(tmpdir(), 'qo-ui-'));
  store = `sqlite:${join(folder, 'qo.db')}`;
  open = await serveQo({ store: 'memory:?engine=slate' });
  await open.submit([{ task_type: 'hello' }]);
  admin = await token('admin');
  guarded = await serveQo({ store });
  await guarded.api('POST', '/v1/tasks', { task_type: 'hello' }, { authorization: `Bearer ${admin}` });
});
after(async () => {
  open?.stop();
  guarded?.stop();
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function qo(...words) {
  const { stdout } = await promisify(execFile)(await programs.qo(), ['--store', store, ...words], { env: { PATH: process.env.PATH, HOME: '/nonexistent' } });
  return stdout.trim();
}

/** Creates a token and waits until the server knows it: servers read the tokens again every few seconds. */
async function token(scope, name = scope) {
  const created = await qo('token', 'create', '--name', name, '--scope', scope);
  if (guarded) await until('the token is known', async () => (await fetch(`${guarded.url}/v1/info`, { headers: { authorization: `Bearer ${created}` } })).ok);
  return created;
}

const openAt = (server, hash = '#/overview', context = {}) => openDashboard({ browser, url: `${server.url}/ui/${hash}` }, { plain: true, context });

async function enter(page, value) {
  await page.locator('input[name=token]').fill(value);
  await page.getByRole('button', { name: 'Connect', exact: true }).click();
}

test('a token without the scope read gets a clear page', async () => {
  const page = await openAt(guarded);
  await shows(page, 'Connect to a queue');
  await enter(page, await token('submit'));
  await shows(page, 'This token cannot read tasks: its scope is submit', '.problem');
  await shows(page, 'qo token create --name dashboard --scope read', '.command');
  await checkAccess(page, 'a token without read');
  await screenshot(page, 'token-without-read');
  await enter(page, await token('read'));
  await shows(page, 'Throughput');
  await closePage(page);
});

test('a revoked token leads back to the form, at the same address', async () => {
  const revoked = await token('admin', 'short-lived');
  const page = await openAt(guarded, '#/tasks?tab=due');
  await enter(page, revoked);
  await page.getByRole('button', { name: 'Cancel all…' }).waitFor();
  await page.locator('select[aria-label="Refresh interval"]').selectOption('5');
  await qo('token', 'revoke', revoked.split('_')[1]);
  await shows(page, 'Connect to a queue');
  await shows(page, 'Enter a valid token', '.problem');
  assert.equal(await page.getByRole('button', { name: 'Cancel all…' }).count(), 0, 'no action is left');
  assert.equal(await page.locator('input[name=url]').inputValue(), guarded.url);
  await enter(page, admin);
  await page.getByRole('button', { name: 'Cancel all…' }).waitFor();
  assert.match(await page.evaluate(() => location.hash), /tab=due/);
  await closePage(page);
});

test('a reload asks for the token again and returns to the same page; nothing is stored', async () => {
  const page = await openAt(guarded, '#/tasks?tab=due&q=type:hello');
  await enter(page, admin);
  await page.locator('.tasks-table tbody tr').first().waitFor();
  const kept = await page.evaluate(async () => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, await indexedDB.databases(), await caches.keys()]));
  assert.ok(!kept.includes(admin), 'the token is in memory only');
  await page.reload();
  await shows(page, 'The page was reloaded, so its credentials are gone', '.notice');
  await screenshot(page, 'reloaded');
  await checkAccess(page, 'after a reload');
  assert.equal(await page.evaluate(() => document.activeElement.name), 'token', 'the token can be typed at once');
  await enter(page, admin);
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.equal(await page.evaluate(() => location.hash), '#/tasks?tab=due&q=type:hello');
  await closePage(page);
});

test('a new or reloaded tab gets the session of another open tab of the server', async () => {
  const page = await openAt(guarded);
  await enter(page, admin);
  await shows(page, 'Throughput');
  const second = await page.context().newPage();
  second.setDefaultTimeout(TIMEOUT_MS);
  await second.goto(`${guarded.url}/ui/#/tasks`);
  await second.locator('.tasks-table tbody tr').first().waitFor();
  await page.reload();
  await shows(page, 'Throughput');
  // Another path of the origin is not the dashboard and gets nothing from this code.
  const other = await page.context().newPage();
  await other.goto(`${guarded.url}/docs`);
  assert.equal(await other.evaluate(async () => (await import('/ui/js/http/handover.js')).mayHandOver(location.origin)), false);
  await closePage(page);
});

test('a page on another site can link to the dashboard', async () => {
  const site = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(`<!doctype html><title>another site</title><a href="${open.url}/ui/#/tasks">the queue</a>`);
  });
  await new Promise((resolve) => { site.listen(0, '127.0.0.1', resolve); });
  const page = await openDashboard({ browser, url: `http://localhost:${site.address().port}/` }, { plain: true });
  await page.getByRole('link', { name: 'the queue' }).click();
  await page.locator('.tasks-table tbody tr').first().waitFor();
  await closePage(page);
  site.close();
});

test('seven tabs over plain HTTP share one event stream, and all stay live', async () => {
  // The streams are counted from the first on.
  const page = await openDashboard({ browser, url: 'about:blank' }, { plain: true });
  const streams = new Set();
  page.context().on('request', (request) => { if (request.url().endsWith('/v1/events')) streams.add(request); });
  page.context().on('requestfailed', (request) => streams.delete(request));
  page.context().on('requestfinished', (request) => streams.delete(request));
  await page.goto(`${open.url}/ui/#/tasks?q=type:for_all_tabs`);
  const tabs = [page];
  for (let tab = 1; tab < 7; tab += 1) {
    const next = await page.context().newPage();
    next.setDefaultTimeout(TIMEOUT_MS);
    await next.goto(`${open.url}/ui/#/tasks?q=type:for_all_tabs`);
    tabs.push(next);
  }
  for (const tab of tabs) {
    await shows(tab, 'No task matches');
    await tab.locator('select[aria-label="Refresh interval"]').selectOption('0');
  }
  await listens(page);
  await open.submit([{ task_type: 'for_all_tabs' }]);
  await Promise.all(tabs.map((tab) => shows(tab, 'for_all_tabs', '.tasks-table')));
  assert.equal(streams.size, 1, 'one stream is open');
  // When the tab that listens is closed, another one takes over.
  const listensAgain = tabs[1].context().waitForEvent('response', (response) => response.url().endsWith('/v1/events'));
  await tabs[0].close();
  await listensAgain;
  await visit(tabs[6], '#/tasks?q=type:after_the_first');
  await shows(tabs[6], 'No task matches');
  await open.submit([{ task_type: 'after_the_first' }]);
  await shows(tabs[6], 'after_the_first', '.tasks-table');
  await tabs[1].context().close();
});

/** Submits 4,000 tasks within 8 s. Returns their rate, how far the page was behind at most, and how long one task takes to appear without any load. */
async function burst() {
  const server = await serveQo({ store: 'memory:?engine=slate' });
  const page = await openDashboard({ browser, url: `${server.url}/ui/#/overview` }, { plain: true });
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  await shows(page, 'No tasks yet');
  await listens(page);
  const shownTotal = () => page.evaluate(() => Number(/([\d,]+) tasks? in total/.exec(document.querySelector('main').textContent)?.[1].replaceAll(',', '') ?? 0));
  const BEFORE = 3;
  const before = await timesAlone(server, page, shownTotal, 1, BEFORE);
  const submitted = [[Date.now(), BEFORE]];
  let isOver = false;
  const load = (async () => {
    const started = Date.now();
    for (let batch = 1; batch <= 80; batch += 1) {
      await server.submit(Array.from({ length: 50 }, () => ({ task_type: 'burst' })));
      submitted.push([Date.now(), BEFORE + batch * 50]);
      await new Promise((done) => setTimeout(done, Math.max(started + batch * 100 - Date.now(), 0)));
    }
    isOver = true;
  })();
  // How long ago the tasks were submitted that the page does not show yet.
  let worst = 0;
  while (!isOver) {
    const shown = await shownTotal();
    const now = Date.now();
    const missing = submitted.find(([, many]) => many > shown);
    if (missing) worst = Math.max(worst, now - missing[0]);
    await new Promise((done) => setTimeout(done, 50));
  }
  await load;
  const rate = 4000 / ((submitted.at(-1)[0] - submitted[0][0]) / 1000);
  await shows(page, `${(BEFORE + 4000).toLocaleString('en')} tasks in total`);
  // The machine may have become slower meanwhile.
  const after = await timesAlone(server, page, shownTotal, BEFORE + 4000 + 1, 3);
  await closePage(page);
  server.stop();
  const median = (times) => times.sort((a, b) => a - b)[1];
  return { rate, worst, alone: Math.max(median(before), median(after)) };
}

/** How long each of some single tasks takes to appear; with the first of them, the page shows `total`. */
async function timesAlone(server, page, shownTotal, total, tasks) {
  const times = [];
  for (let many = total; many < total + tasks; many += 1) {
    // The page refreshes at most once a second, which is not what is measured here.
    await page.waitForTimeout(1500);
    const started = Date.now();
    await server.submit([{ task_type: 'burst' }]);
    while (await shownTotal() < many) {
      if (Date.now() - started > TIMEOUT_MS) throw new Error(`the page does not show task ${many}`);
      await new Promise((done) => setTimeout(done, 10));
    }
    times.push(Date.now() - started);
  }
  return times;
}

test('the page is at most two seconds behind at 500 events a second', async (t) => {
  // A page that waits for a pause in the events is behind by the whole burst, 8 s.
  const GOAL_MS = 2000;
  const tries = [];
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const { rate, worst, alone } = await burst();
    t.diagnostic(`${Math.round(rate)} events a second, the page was at most ${worst} ms behind; without load a task appears after ${alone} ms`);
    if (rate >= 450 && worst <= GOAL_MS) return;
    tries.push({ rate, worst, alone });
  }
  // The machine has other things to do, or is slow: it may take as many times longer as a single task takes. The rate is that of this
  // process, which says nothing about the page.
  const slowness = Math.max(1, ...tries.map(({ alone }) => alone / ALONE_MS));
  const limit = Number(process.env.QO_UI_LIVE_MS ?? Math.min(GOAL_MS * slowness, 6000));
  const best = tries.reduce((a, b) => (b.worst < a.worst ? b : a));
  assert.ok(best.worst <= limit, `${best.worst} ms behind, with a limit of ${limit} ms`);
});

test('a notification from a hidden tab causes no request; the tab refreshes when it is shown', async () => {
  const page = await openAt(open, '#/tasks?q=type:while_hidden');
  await shows(page, 'No task matches');
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  const hide = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  await quiet(page);
  page.requests.length = 0;
  await open.submit([{ task_type: 'while_hidden' }]);
  await page.waitForTimeout(1500);
  assert.deepEqual(page.requests, []);
  await hide(false);
  await until('the task is shown', async () => (await page.locator('.tasks-table').count()) === 1);
  await closePage(page);
});

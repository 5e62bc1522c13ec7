// A hundred thousand tasks in one bucket.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { closePage, openDashboard, screenshot, shows } from '../support/browser.js';
import { fillWithTasks } from '../support/many.js';
import { story } from '../support/programs.js';
import { setUp } from '../support/setup.js';

const TASKS = 100_000;
const LATENCY_MS = 30;
/** The goal is 2 s; slower machines can set a higher limit. */
const FIRST_PAGE_MS = Number(process.env.QO_UI_FIRST_PAGE_MS ?? 2000);

let stage;
/** The number of tasks by status. */
const model = {};
before(async () => {
  const objects = await story();
  const records = objects.filter(({ key, body }) => key.startsWith('tasks/') && ['completed', 'failed', 'archived'].includes(JSON.parse(body).status)).map(({ body }) => body);
  stage = await setUp('many', { versioned: false, objects: [] });
  await fillWithTasks(stage, stage.bucket, records, TASKS);
  const statuses = records.map((body) => JSON.parse(body).status);
  for (let index = 0; index < TASKS; index += 1) model[statuses[index % statuses.length]] = (model[statuses[index % statuses.length]] ?? 0) + 1;
});
after(async () => { await stage?.close(); });

async function addLatency(page) {
  const session = await page.context().newCDPSession(page);
  await session.send('Network.enable');
  await session.send('Network.emulateNetworkConditions', { offline: false, latency: LATENCY_MS, downloadThroughput: -1, uploadThroughput: -1 });
}

/** Opens the first page of tasks. Returns how long that takes, seen from within the page. */
async function openFirstPage() {
  const page = await openDashboard(stage, { go: 'settings' });
  await shows(page, 'Theme');
  await addLatency(page);
  page.requests.length = 0;
  const took = await page.evaluate(() => new Promise((done) => {
    const started = performance.now();
    const isShown = () => document.querySelectorAll('.tasks-table tbody tr').length === 50;
    new MutationObserver((_, observer) => {
      if (!isShown()) return;
      observer.disconnect();
      done(Math.round(performance.now() - started));
    }).observe(document.body, { subtree: true, childList: true });
    setTimeout(() => done(60_000), 60_000);
    location.hash = '#/tasks';
  }));
  return { page, took };
}

test('the first page of tasks loads within two seconds at 30 ms per request', async (t) => {
  let { page, took } = await openFirstPage();
  // The machine may have been busy with something else.
  for (let tries = 1; took > FIRST_PAGE_MS && tries < 3; tries += 1) {
    t.diagnostic(`${took} ms; once more`);
    await closePage(page);
    ({ page, took } = await openFirstPage());
  }
  const lists = page.requests.filter(({ url }) => url.includes('list-type=2')).length;
  const gets = page.requests.filter(({ url }) => /\/tasks\/[0-9a-f]\//.test(url) && !url.includes('list-type')).length;
  t.diagnostic(`${TASKS} tasks: first page in ${took} ms, ${lists} LIST, ${gets} GET`);
  assert.ok(lists <= 1 && gets <= 50, `${lists} LIST, ${gets} GET`);
  assert.ok(took <= FIRST_PAGE_MS, `${took} ms`);
  await shows(page, 'within each thousand ids');
  await screenshot(page, 'tasks-many');
  await closePage(page);
});

test('estimates are marked and close to the real numbers', async (t) => {
  const page = await openDashboard(stage);
  await shows(page, 'estimate from a sample');
  const total = await page.locator('.tiles-section .note').innerText();
  const about = Number(/about ([\d,]+)(K?)/.exec(total)?.[1].replace(',', '')) * (total.includes('K') ? 1000 : 1);
  assert.ok(Math.abs(about - TASKS) < TASKS * 0.1, total);
  for (const status of ['completed', 'failed']) {
    const shown = await page.locator(`.tile.${status} .tile-value`).innerText();
    const [, digits, thousands] = /^~([\d,.]+)(K?)$/.exec(shown) ?? [];
    const value = Number(digits?.replaceAll(',', '')) * (thousands ? 1000 : 1);
    t.diagnostic(`${status}: ${shown} of ${model[status]}`);
    assert.ok(Math.abs(value - model[status]) <= model[status] * 0.25, `${status}: ${shown} of ${model[status]}`);
  }
  await shows(page, 'Sample: the');
  await screenshot(page, 'overview-many');
  await page.getByRole('button', { name: 'Count exactly' }).click();
  await shows(page, 'This reads about', 'dialog');
  await screenshot(page, 'count');
  await page.locator('dialog').getByRole('button', { name: 'Stop' }).click();
  await closePage(page);
});

test('a search without an index stops after a limit and can be continued', async () => {
  const page = await openDashboard(stage, { go: `tasks?q=${encodeURIComponent('type:nothing_like_it')}` });
  await shows(page, 'None of the 400 tasks checked matches');
  await shows(page, 'the search read 400 tasks and is not complete', '.pager');
  await page.getByRole('button', { name: 'Continue' }).click();
  await shows(page, 'Page 2');
  await shows(page, 'None of the 400 tasks checked matches');
  await shows(page, 'the search read 400 tasks and is not complete', '.pager');
  await screenshot(page, 'continue-search');
  await closePage(page);
});

// Bulk actions that a server does in the background: five thousand tasks and more.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { checkAccess, closePage, screenshot, shows, until } from '../support/browser.js';
import { setUpServer } from '../support/setup.js';

let stage;
let server;
before(async () => {
  stage = await setUpServer();
  ({ server } = stage);
});
after(async () => { await stage?.close(); });

const proceed = (page) => page.locator('dialog footer button').last();
const statuses = async (queue) => (await server.api('GET', '/v1/stats')).queues[queue].statuses;

/** Submits tasks, and opens the dialog that cancels all of them, with the number typed. */
async function openCancelAll(queue, many) {
  await server.submit(Array.from({ length: many }, () => ({ task_type: 'many', queue })));
  const page = await stage.open(`#/tasks?q=queue:${queue}`);
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await page.locator('dialog input[name=count]').fill(String(many));
  page.requests.length = 0;
  return page;
}

const sent = (page, method) => page.requests.filter((request) => request.method === method && request.url.includes('/v1/bulk')).length;

test('six thousand tasks are cancelled by one request, with progress', async () => {
  const page = await openCancelAll('six', 6000);
  // The values that the progress bar shows.
  await page.evaluate(() => {
    window.qoProgress = [];
    new MutationObserver(() => {
      const bar = document.querySelector('dialog progress');
      if (bar && window.qoProgress.at(-1) !== bar.value) window.qoProgress.push(bar.value);
    }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
  });
  await proceed(page).click();
  await page.locator('dialog progress').waitFor();
  await checkAccess(page, 'bulk in the background');
  await screenshot(page, 'bulk-background');
  await shows(page, 'Cancelled 6,000 tasks', 'dialog');
  assert.equal(sent(page, 'POST'), 1);
  assert.equal(sent(page, 'DELETE'), 0);
  const values = await page.evaluate(() => window.qoProgress);
  assert.ok(values.some((value) => value > 0 && value < 6000), `the bar showed ${values}`);
  assert.deepEqual(values, [...values].sort((a, b) => a - b), 'the bar never goes back');
  assert.deepEqual(await statuses('six'), { cancelled: 6000 });
  await closePage(page);
});

test('a bulk action in the background can be stopped, and says how much is left', async () => {
  const many = 12_000;
  const page = await openCancelAll('stopped', many);
  // The page is stopped while it asks for the progress for the first time.
  let asked = 0;
  await page.route('**/v1/bulk/*', async (route) => {
    asked += 1;
    if (asked === 1) await page.evaluate(() => document.querySelector('dialog footer button').click());
    await route.continue();
  });
  await proceed(page).click();
  await until('the dialog is closed', async () => (await page.locator('dialog').count()) === 0);
  await shows(page, 'not processed', '#toasts');
  assert.equal(sent(page, 'DELETE'), 1, 'the page cancels the operation');
  const { operations } = await server.api('GET', '/v1/bulk');
  assert.equal(operations[0].state, 'cancelled');
  const { pending, cancelled } = await statuses('stopped');
  assert.ok(pending > 0 && pending + cancelled === many, `${pending} pending, ${cancelled} cancelled`);
  const toast = await page.locator('#toasts').innerText();
  assert.ok(toast.includes(`Cancelled ${cancelled.toLocaleString('en')} tasks`), `${toast}, ${cancelled}`);
  // Nothing goes on behind the page.
  await page.waitForTimeout(1500);
  assert.equal((await statuses('stopped')).pending, pending);
  // The same action continues with what is left.
  await page.unroute('**/v1/bulk/*');
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await page.locator('dialog input[name=count]').fill(String(pending));
  await proceed(page).click();
  await shows(page, `Cancelled ${pending.toLocaleString('en')} tasks`, 'dialog');
  assert.deepEqual(await statuses('stopped'), { cancelled: many });
  await closePage(page);
});

test('a bulk action in the background goes on if the page is closed', async () => {
  const page = await openCancelAll('closed', 6000);
  await proceed(page).click();
  await page.locator('dialog progress').waitFor();
  await until('the request is sent', async () => sent(page, 'POST') === 1 && sent(page, 'GET') > 0);
  await page.context().close();
  await until('all tasks are cancelled', async () => (await statuses('closed')).cancelled === 6000);
});

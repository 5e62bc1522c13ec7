// Bulk actions that a server does in the background: five thousand tasks and more.
//
// The server's store is behind a gate that holds the writes of the server while the page is looked at. So it does not matter how fast the
// machine is: the server is in the middle of its work until the test lets it go on.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { checkAccess, closePage, noDialog, screenshot, shows, TIMEOUT_MS, until } from '../support/browser.js';
import { setUpGatedServer } from '../support/setup.js';
import { useServer } from '../support/sources.js';

const TASKS = 6000;
/** The server commits at most 32 of the changes of a bulk action at once, so this is a part of them. */
const COMMITS = 40;
const stage = useServer(setUpGatedServer);
// A test that fails must not stop the next one.
afterEach(() => stage.release());

/** Time limit for finding or changing all the tasks on a busy machine. */
const MANY_TASKS_MS = 4 * TIMEOUT_MS;
const proceed = (page) => page.locator('dialog footer button').last();
const statuses = async (queue) => (await stage.server.api('GET', '/v1/stats')).queues[queue].statuses;
const sent = (page, method) => page.requests.filter((request) => request.method === method && request.url.includes('/v1/bulk')).length;
const reports = (page, text) => page.locator('dialog').filter({ hasText: text }).waitFor({ timeout: MANY_TASKS_MS });
const bar = (page) => page.evaluate(() => document.querySelector('dialog progress')?.value);

/** Submits tasks, cancels all of them with the dialog, and waits until the page shows how far the server has come. Returns the page and that number. */
async function cancelAllInPart(queue) {
  await stage.server.submit(Array.from({ length: TASKS }, () => ({ task_type: 'many', queue })));
  const page = await stage.open(`#/tasks?q=queue:${queue}`);
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await page.locator('dialog input[name=count]').fill(String(TASKS), { timeout: MANY_TASKS_MS });
  page.requests.length = 0;
  stage.holdAfter(COMMITS);
  await proceed(page).click();
  const shown = await until('the bar has moved', () => bar(page));
  assert.ok(shown < TASKS, `${shown} of ${TASKS}`);
  return { page, shown };
}

test('six thousand tasks are cancelled by one request, with progress', async () => {
  const { page, shown } = await cancelAllInPart('six');
  // Once the server's writes are held, the bar shows exactly what it has done.
  const done = await until('the page shows what the server has done', async () => {
    const { operations: [{ state, result }] } = await stage.server.api('GET', '/v1/bulk');
    return state === 'running' && (await bar(page)) === result.matched && result.matched;
  });
  assert.ok(done >= shown && done < TASKS, `${done} done after ${shown}`);
  await shows(page, ' of 6,000', 'dialog');
  // The page gets no news while it is looked at, but the server works again: it does not wait for long.
  let show;
  const looked = new Promise((done) => { show = done; });
  await page.route('**/v1/bulk/*', async (route) => {
    await looked;
    await route.continue();
  });
  stage.release();
  await checkAccess(page, 'bulk in the background');
  await screenshot(page, 'bulk-background');
  // The values that the progress bar shows from here on.
  await page.evaluate(() => {
    const element = document.querySelector('dialog progress');
    window.qoProgress = [element.value];
    new MutationObserver(() => window.qoProgress.push(element.value)).observe(element, { attributes: true });
  });
  show();
  await reports(page, 'Cancelled 6,000 tasks');
  const values = await page.evaluate(() => window.qoProgress);
  assert.ok(values[0] >= shown, `the bar showed ${shown}, then ${values}`);
  assert.deepEqual(values, [...values].sort((a, b) => a - b), 'the bar never goes back');
  assert.equal(sent(page, 'POST'), 1);
  assert.equal(sent(page, 'DELETE'), 0);
  assert.deepEqual(await statuses('six'), { cancelled: TASKS });
  await closePage(page);
});

test('a bulk action in the background can be stopped, and says how much is left', async () => {
  const { page } = await cancelAllInPart('stopped');
  // The server may go on only after the page has told it to stop.
  const told = page.waitForResponse((response) => response.request().method() === 'DELETE');
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await noDialog(page);
  await told;
  stage.release();
  await shows(page, 'not processed', '#toasts');
  const toast = await page.locator('#toasts').innerText();
  const { operations } = await stage.server.api('GET', '/v1/bulk');
  assert.equal(operations[0].state, 'cancelled');
  const { pending, cancelled } = await statuses('stopped');
  assert.ok(pending > 0 && cancelled > 0 && pending + cancelled === TASKS, `${pending} pending, ${cancelled} cancelled`);
  assert.ok(toast.includes(`Cancelled ${cancelled.toLocaleString('en')} tasks`), `${toast}, ${cancelled}`);
  // Nothing goes on behind the page.
  await page.waitForTimeout(1500);
  assert.equal((await statuses('stopped')).pending, pending);
  assert.equal(sent(page, 'DELETE'), 1);
  // The same action continues with what is left.
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await page.locator('dialog input[name=count]').fill(String(pending), { timeout: MANY_TASKS_MS });
  await proceed(page).click();
  await reports(page, `Cancelled ${pending.toLocaleString('en')} tasks`);
  assert.deepEqual(await statuses('stopped'), { cancelled: TASKS });
  await closePage(page);
});

test('a bulk action in the background goes on if the page is closed', async () => {
  const { page } = await cancelAllInPart('closed');
  await page.context().close();
  stage.release();
  await until('all tasks are cancelled', async () => (await statuses('closed')).cancelled === TASKS);
});

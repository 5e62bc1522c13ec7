// Bulk actions hit only what was meant, on a bucket and on a server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkAccess, closePage, noDialog, screenshot, shows, until, visit } from '../support/browser.js';
import { useSources } from '../support/sources.js';

const TASKS = 450;
const stage = useSources('safety', {
  versioned: false, store: 'memory:?engine=slate',
  async fill({ server }) {
    await server.submit([{ task_type: 'fail_me', queue: 'failing', max_retries: 0 }]);
    await server.work(1, () => ({ fail: { error: 'no luck', kind: 'permanent' } }), { queues: ['failing'] });
    await server.submit(Array.from({ length: TASKS }, (_, index) => ({ task_type: index % 3 === 0 ? 'keep_me' : 'cancel_me', queue: 'waiting' })));
  },
});
const { SOURCES } = stage;
const pending = async () => (await stage.server.api('GET', '/v1/stats')).queues.waiting.statuses.pending;
const proceed = (page) => page.locator('dialog footer button').last();
const focused = (page) => page.evaluate(() => document.activeElement.textContent);

for (const [name, open] of Object.entries(SOURCES)) {
  test(`a search that is not understood offers no action on a ${name}`, async () => {
    const page = await open('tasks');
    await page.locator('.tasks-table tbody tr').first().waitFor();
    await page.locator('.selection button').first().waitFor();
    const misspelt = [
      ['tpye:oops', 'Unknown qualifier tpye:'],
      ['oops', 'oops is not a prefix of an id'],
      ['-text:timeout', 'a search can exclude only type:'],
      ['-cancel_me', 'is not a prefix of an id'],
      ['error:timeout', 'Unknown qualifier error:'],
      ['type:a type:b', 'type: is given twice'],
      ['status:failed status:due', 'status: is given twice'],
      ['tag:"open', 'quotation mark'],
    ];
    for (const [search, why] of misspelt) {
      await page.locator('#search').fill(search);
      await page.locator('#search').press('Enter');
      await shows(page, why, '.problem');
      assert.equal(await page.locator('.selection, .tasks-table').count(), 0, `${search} shows tasks or actions`);
      if (search === 'tpye:oops') await screenshot(page, `search-problem-${name}`);
    }
    await page.locator('#search').fill('');
    await page.locator('#search').press('Enter');
    await page.locator('.selection button').first().waitFor();
    await visit(page, '#/errors');
    await page.locator('.group').getByRole('button', { name: 'Archive…' }).first().waitFor();
    for (const [search, why] of misspelt) {
      await visit(page, `#/errors?q=${encodeURIComponent(search)}`);
      await shows(page, why, 'main.errors .problem');
      // The page is loaded, so groups would be there.
      await page.locator('button[aria-label=Refresh]:not(.busy)').waitFor();
      assert.equal(await page.locator('.group, .group-actions').count(), 0, `${search} shows groups`);
      assert.equal(await page.getByRole('button', { name: /…$/ }).count(), 0, `${search} offers actions`);
    }
    await closePage(page);
  });
}

test('the dialog restates the search, wants the number typed, and Enter goes back', async () => {
  const page = await SOURCES.server(`tasks?q=${encodeURIComponent('type:cancel_me status:pending')}`);
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await shows(page, 'Pending tasks of type cancel_me', 'dialog .filter-words');
  await shows(page, '300 tasks match: 300 pending', 'dialog');
  assert.equal(await focused(page), 'Go back');
  assert.ok(await proceed(page).isDisabled(), 'the number must be typed first');
  await checkAccess(page, 'a bulk action that wants the number typed');
  await screenshot(page, 'bulk-typed');
  await page.keyboard.press('Enter');
  await noDialog(page);
  assert.equal(await pending(), TASKS, 'Enter cancelled nothing');
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await shows(page, '300 tasks match', 'dialog');
  await page.locator('dialog input[name=count]').fill('299');
  assert.ok(await proceed(page).isDisabled(), 'a wrong number is not enough');
  await page.locator('dialog input[name=count]').fill('300');
  await page.keyboard.press('Enter');
  assert.ok(await proceed(page).isEnabled());
  assert.equal(await pending(), TASKS, 'Enter in the field cancelled nothing');
  // A task that is submitted meanwhile was not counted, so it must not be cancelled.
  await stage.server.submit([{ task_type: 'cancel_me', queue: 'waiting' }]);
  await proceed(page).click();
  await shows(page, 'Cancelled 300 tasks', 'dialog');
  assert.equal(await pending(), TASKS - 300 + 1);
  await page.locator('dialog footer').getByRole('button', { name: 'Close' }).click();
  await closePage(page);
});

/** How many of some tasks of the bucket have each status now. */
async function storedStatuses(tasks) {
  const many = {};
  for (const { status } of await Promise.all(tasks.map(({ id }) => stage.stored(id)))) many[status] = (many[status] ?? 0) + 1;
  return many;
}

test('more than a hundred tasks in a bucket want the number typed, and can be stopped', async () => {
  const ended = stage.tasks.filter((task) => task.status === 'completed');
  const completed = ended.length;
  assert.ok(completed > 100);
  const page = await SOURCES.bucket('tasks?tab=completed');
  await page.getByRole('button', { name: 'Archive all…' }).click();
  await shows(page, 'Completed tasks', 'dialog .filter-words');
  await shows(page, `Type ${completed}, the number of tasks`, 'dialog');
  assert.ok(await proceed(page).isDisabled());
  assert.equal(await focused(page), 'Go back');
  await page.keyboard.press('Enter');
  await noDialog(page);
  const first = stage.task({ status: 'completed' });
  assert.equal((await stage.stored(first.id)).status, 'completed');
  const before = await storedStatuses(stage.tasks);
  await page.getByRole('button', { name: 'Archive all…' }).click();
  await page.locator('dialog input[name=count]').fill(String(completed - 1));
  assert.ok(await proceed(page).isDisabled(), 'a wrong number is not enough');
  await page.locator('dialog input[name=count]').fill(String(completed));
  await proceed(page).click();
  await shows(page, `Archived ${completed} tasks.`, 'dialog');
  assert.deepEqual(await storedStatuses(ended), { archived: completed });
  const { completed: none, ...others } = await storedStatuses(stage.tasks);
  assert.equal(none, undefined);
  assert.deepEqual({ ...others, completed, archived: others.archived - completed }, before, 'no other task was changed');
  await page.locator('dialog footer').getByRole('button', { name: 'Close' }).click();

  const { archived } = others;
  await visit(page, '#/tasks?tab=archived');
  await page.getByRole('button', { name: 'Unarchive all…' }).click();
  await page.locator('dialog input[name=count]').fill(String(archived));
  // The store gets that many changes, and those after them only once the page was told to stop.
  const WRITTEN = 40;
  let sent = 0;
  let release;
  const released = new Promise((resolve) => { release = resolve; });
  const records = /\/tasks\/[0-9a-f]\/[^/]+\.json$/;
  await page.route(records, async (route) => {
    if (route.request().method() === 'PUT') {
      sent += 1;
      if (sent > WRITTEN) await released;
    }
    await route.continue();
  });
  await proceed(page).click();
  await shows(page, `${WRITTEN} of ${archived}`, 'dialog');
  await until('a change is held', () => sent > WRITTEN);
  await page.locator('dialog footer').getByRole('button', { name: 'Stop' }).click();
  await noDialog(page);
  release();
  // The report is shown for some seconds only.
  const report = await page.locator('#toasts .toast').filter({ hasText: 'not processed' }).innerText();
  await page.unroute(records);
  assert.match(report, /^Restored \d+ tasks; \d+ not processed$/);
  const [done, left] = report.match(/\d+/g).map(Number);
  assert.equal(done + left, archived, 'the report covers every task');
  assert.ok(done > WRITTEN && left > archived / 2, `only changes under way were finished: ${done} done, ${left} left`);
  const after = await storedStatuses(stage.tasks);
  assert.equal(after.archived, left, 'the report tells what is stored');
  await closePage(page);
});

test('Enter never confirms a destructive action on one task', async () => {
  const task = stage.tasks.find((one) => one.status === 'pending');
  const page = await SOURCES.bucket(`tasks/${task.id}`);
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  assert.equal(await focused(page), 'Go back');
  await page.locator('dialog input').fill('a reason');
  await page.locator('dialog input').press('Enter');
  await page.waitForTimeout(300);
  assert.equal(await page.locator('dialog').count(), 1, 'the dialog is still open');
  assert.equal((await stage.stored(task.id)).status, 'pending');
  await page.keyboard.press('Escape');
  await closePage(page);
});

test('purge deletes tasks for good, on a server', async () => {
  const [first] = await stage.server.submit([{ task_type: 'purge_me', queue: 'purge' }, { task_type: 'purge_me', queue: 'purge' }]);
  await stage.server.work(2, () => ({ complete: {} }), { queues: ['purge'] });
  const page = await SOURCES.server(`tasks/${first}`);
  await page.getByRole('button', { name: 'Purge', exact: true }).click();
  await shows(page, 'This cannot be undone', 'dialog');
  assert.equal(await focused(page), 'Go back');
  await proceed(page).click();
  await until('the list is shown', async () => (await page.title()).startsWith('Tasks'));
  assert.equal((await fetch(`${stage.server.url}/v1/tasks/${first}`)).status, 404);
  await visit(page, '#/tasks?tab=completed&q=queue:purge');
  await page.getByRole('button', { name: 'Purge all…' }).click();
  await shows(page, '1 task matches', 'dialog');
  await proceed(page).click();
  await shows(page, 'Purged 1 task', 'dialog');
  await page.locator('dialog footer').getByRole('button', { name: 'Close' }).click();
  await shows(page, 'No task matches');
  await closePage(page);
});

test('two thousand tasks are changed with few requests, with progress, and can be stopped', async () => {
  await stage.server.submit(Array.from({ length: 2000 }, () => ({ task_type: 'many', queue: 'many' })));
  const page = await SOURCES.server('tasks?q=queue:many');
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await page.locator('dialog input[name=count]').fill('2,000');
  page.requests.length = 0;
  // The page sends the next request only after the response, so it can be stopped in between.
  let sent = 0;
  await page.route('**/v1/bulk', async (route) => {
    sent += 1;
    if (sent === 3) {
      await page.evaluate(() => document.querySelector('dialog footer button').click());
      // The page stops when it hears that the dialog is closed, and a fast server would be faster.
      await noDialog(page);
    }
    await route.continue();
  });
  await proceed(page).click();
  await shows(page, 'not processed', '#toasts');
  const left = async () => (await stage.server.api('GET', '/v1/stats')).queues.many.statuses.pending;
  assert.equal(await left(), 1400, 'three requests of 200 tasks were sent');
  await page.unroute('**/v1/bulk');
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await page.locator('dialog input[name=count]').fill('1400');
  await proceed(page).click();
  await shows(page, 'Cancelled 1,400 tasks', 'dialog');
  await screenshot(page, 'bulk-report');
  const posts = page.requests.filter(({ method }) => method === 'POST').length;
  assert.ok(posts <= 10, `${posts} requests`);
  assert.equal((await stage.server.api('GET', '/v1/stats')).queues.many.statuses.cancelled, 2000);
  await closePage(page);
});


// What a new task keeps of the one that it is made from: copies, edited retries, and runs of schedules that are triggered by hand.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkAccess, closePage, screenshot, shows, until } from '../support/browser.js';
import { useSources } from '../support/sources.js';

const stage = useSources('kept', { versioned: false, objects: [] });
const { SOURCES } = stage;
const qo = (...words) => stage.qo(...words);
const submit = (...words) => qo('submit', '--input', '1', ...words);

/** The id of the task that the page has moved on to. */
async function otherTask(page, before) {
  await page.waitForFunction((id) => /tasks\/[0-9a-f-]{36}/.test(location.hash) && !location.hash.includes(id), before);
  return /[0-9a-f-]{36}/.exec(page.url().split('#')[1])[0];
}

for (const [kind, open] of Object.entries(SOURCES)) {
  test(`a copy keeps its limit key, and on a server its ordering key, on a ${kind}`, async () => {
    const id = await submit('--type', 'charge', '--limit-key', 'stripe', '--ordering-key', 'account 7', '--on-failure', 'stop');
    const page = await open(`tasks/${id}`);
    await page.getByRole('button', { name: 'Duplicate…' }).click();
    const dialog = page.locator('dialog');
    assert.equal(await dialog.getByLabel('Limit key').inputValue(), 'stripe');
    if (kind === 'server') assert.equal(await dialog.getByLabel('Ordering key').inputValue(), 'account 7');
    else await shows(page, 'The ordering key account 7 is not kept', 'dialog');
    await checkAccess(page, `the form of a copy on a ${kind}`);
    await screenshot(page, `copy-${kind}`);
    await dialog.locator('footer').getByRole('button', { name: 'Submit' }).click();
    const copy = await stage.stored(await otherTask(page, id));
    assert.deepEqual([copy.limit_key, copy.min_reader], ['stripe', 3]);
    assert.deepEqual([copy.ordering_key, copy.ordering_on_failure], kind === 'server' ? ['account 7', 'stop'] : [undefined, undefined]);
    // The engine reads what the page has written, and finds it in the index.
    assert.equal(JSON.parse(await qo('status', copy.id, '--json')).limit_key, 'stripe');
    await closePage(page);
  });

  test(`an edited retry of a task that stops its line, on a ${kind}`, async () => {
    const type = `sync-${kind}`;
    const failed = await submit('--type', type, '--ordering-key', type, '--on-failure', 'stop', '--retries', '0');
    await qo('worker', '--exec', `${type}=false`, '--max-tasks', '1');
    const page = await open(`tasks/${failed}`);
    await page.getByRole('button', { name: 'Edit and retry…' }).click();
    const dialog = page.locator('dialog');
    if (kind === 'server') {
      await shows(page, 'the new task joins the end of the line', 'dialog');
      assert.equal(await dialog.getByLabel('Cancel the failed task, so that its line continues').isChecked(), true);
    } else {
      await shows(page, 'The failed task stays as it was', 'dialog');
      assert.equal(await dialog.getByRole('checkbox').count(), 0, 'the page may not change a task of a line');
    }
    await checkAccess(page, `an edited retry on a ${kind}`);
    await screenshot(page, `edit-stopped-${kind}`);
    await dialog.locator('footer').getByRole('button', { name: 'Submit' }).click();
    const retry = await otherTask(page, failed);
    assert.equal((await stage.stored(failed)).status, kind === 'server' ? 'cancelled' : 'failed');
    await qo('worker', '--exec', `${type}=cat`, '--exit-when-idle', '1s');
    assert.equal((await stage.stored(retry)).status, 'completed', 'the new task is not stuck');
    await closePage(page);
  });

  test(`a schedule that is triggered on a ${kind} gives its task the limit key and the expiry`, async () => {
    const name = `nightly-${kind}`;
    await qo('schedule', 'add', name, '--cron', '30 2 * * *', '--type', 'report', '--limit-key', 'stripe', '--expires-in', '1h');
    const page = await open('schedules');
    const row = page.locator('.schedules-table tbody tr').filter({ hasText: name });
    await row.getByRole('button', { name: 'Trigger' }).click();
    const show = async () => JSON.parse(await qo('schedule', 'show', name, '--json'));
    await until('it has run', async () => (await show()).fired === 1);
    const task = await stage.stored((await show()).last.task);
    assert.equal(task.limit_key, 'stripe');
    assert.equal(Date.parse(task.expires_at) - Date.parse(task.created_at), 3_600_000);
    await closePage(page);
  });
}

test('a bucket refuses to trigger a schedule whose tasks have a group, and names the command', async () => {
  await qo('schedule', 'add', 'grouped', '--cron', '30 2 * * *', '--type', 'report', '--group', 'acme');
  const page = await SOURCES.bucket('schedules');
  await page.locator('.schedules-table tbody tr').filter({ hasText: 'grouped' }).getByRole('button', { name: 'Trigger' }).click();
  await shows(page, 'qo schedule trigger grouped', 'body');
  assert.equal(JSON.parse(await qo('schedule', 'show', 'grouped', '--json')).fired, 0);
  await closePage(page);
});

test('a bucket names the command of the action that it cannot apply to a task with an ordering key', async () => {
  const id = await submit('--type', 'sync', '--ordering-key', 'k');
  const page = await SOURCES.bucket(`tasks/${id}`);
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.locator('dialog footer').getByRole('button', { name: /^Cancel/ }).click();
  await shows(page, `qo cancel ${id}`, 'body');
  await closePage(page);
});

test('a cron schedule that was resumed on a bucket says when its next run is known', async () => {
  await qo('schedule', 'add', 'resumed', '--cron', '30 2 * * *', '--type', 'report');
  const page = await SOURCES.bucket('schedules');
  const row = page.locator('.schedules-table tbody tr').filter({ hasText: 'resumed' });
  await row.getByRole('button', { name: 'Pause' }).click();
  await page.locator('dialog footer').getByRole('button', { name: 'Pause' }).click();
  await row.getByRole('button', { name: 'Resume' }).click();
  await row.getByRole('button', { name: 'Pause' }).waitFor();
  assert.equal(await row.locator('td[data-label="Next run"]').innerText(), 'not known until it next runs');
  await closePage(page);
});

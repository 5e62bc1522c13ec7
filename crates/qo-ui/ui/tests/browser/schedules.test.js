// The schedules page, on a bucket and on a server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkAccess, closePage, screenshot, shows, until } from '../support/browser.js';
import { useSources } from '../support/sources.js';

const stage = useSources('schedules', {
  versioned: false,
  async prepare({ qo }) {
    await qo('schedule', 'add', 'nightly', '--cron', '30 2 * * *', '--time-zone', 'Europe/Berlin', '--type', 'report', '--input', '{"n": 1.0}');
    await qo('schedule', 'add', 'yearly', '--cron', '0 0 1 1 *', '--type', 'report', '--overlap', 'skip');
  },
});

/** The schedule as the command shows it. */
const shown = async (name) => JSON.parse(await stage.qo('schedule', 'show', name, '--json'));
const row = (page, name) => page.locator('.schedules-table tbody tr').filter({ hasText: name });

for (const [kind, open] of Object.entries(stage.SOURCES)) {
  test(`schedules are listed, paused, resumed and triggered on a ${kind}`, async () => {
    const page = await open('schedules');
    await shows(page, '30 2 * * * (Europe/Berlin)', '.schedules-table');
    await checkAccess(page, `schedules on a ${kind}`);
    await screenshot(page, `schedules-${kind}`);
    await row(page, 'nightly').getByRole('button', { name: 'Pause' }).click();
    await page.locator('dialog footer').getByRole('button', { name: 'Pause' }).click();
    await until('it is paused', async () => (await shown('nightly')).paused_at !== null);
    await row(page, 'nightly').getByRole('button', { name: 'Resume' }).click();
    await until('it is resumed', async () => (await shown('nightly')).paused_at === null);
    assert.ok((await shown('nightly')).next, 'the command knows the next run');
    const { fired } = await shown('yearly');
    await row(page, 'yearly').getByRole('button', { name: 'Trigger' }).click();
    await until('it has one more run', async () => (await shown('yearly')).fired === fired + 1);
    const { last } = await shown('yearly');
    assert.equal(last.kind, 'trigger');
    const task = JSON.parse(await stage.qo('status', last.task, '--json'));
    assert.deepEqual([task.task_type, task.status, task.tags], ['report', 'pending', ['schedule:yearly']]);
    await closePage(page);
  });
}

// Every page and form on a bucket and on a server, with all that it can show: pictures wide and on a phone, light and dark, and accessibility.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkAccess, closePage, noDialog, screenshot, shows, visit } from '../support/browser.js';
import { useSources } from '../support/sources.js';

async function prepare({ qo }) {
  await qo('schedule', 'add', 'nightly-report', '--cron', '30 2 * * 1-5', '--time-zone', 'Europe/Berlin', '--type', 'generate_report', '--overlap', 'skip');
  await qo('schedule', 'add', 'heartbeat', '--every', '90s', '--type', 'ping', '--jitter', '5s');
  await qo('schedule', 'pause', 'heartbeat');
  await qo('schedule', 'trigger', 'nightly-report');
  await qo('limit', 'set', 'stripe', '--key', 'stripe', '--concurrent', '5', '--starts', '100/1m');
  await qo('limit', 'set', 'reports', '--type', 'generate_report', '--concurrent', '2');
  await qo('webhook', 'add', 'billing', 'https://example.org/hooks/qo');
  await qo('webhook', 'add', 'alerts', 'https://alerts.example.org/services/a-rather-long-path/of-a-receiver?tenant=emea', '--on', 'failed', '--queue', 'billing');
  await qo('pause', '--type', 'resize_image', '--reason', 'the image library has a memory leak, see the ticket');
}
const stage = useSources('pages', { versioned: true, prepare });
const { SOURCES } = stage;
const failed = () => stage.task({ status: 'failed', task_type: 'nightly_backup' }).id;

/** Each page: its address, what must be visible, and where. */
const PAGES = () => ({
  overview: ['overview', 'Dead letters'],
  tasks: ['tasks', 'Page 1'],
  'tasks-failed': ['tasks?tab=failed', 'Page 1'],
  'tasks-running': ['tasks?tab=running', 'Page 1'],
  'tasks-scheduled': ['tasks?tab=scheduled', 'Page 1'],
  task: [`tasks/${failed()}`, 'Attempt 2'],
  'task-running': [`tasks/${stage.task({ status: 'running' }).id}`, 'lease expires'],
  'task-completed': [`tasks/${stage.task({ status: 'completed' }).id}`, 'Output'],
  errors: ['errors', 'for example'],
  queues: ['queues', 'alerts.example.org'],
  schedules: ['schedules', 'Europe/Berlin'],
  workers: ['workers', 'worker-eu-1'],
  settings: ['settings', 'Theme'],
});

/** Each form and dialog: the page, the button that opens it, what must be visible in it, and the sources that have it. */
const DIALOGS = () => ({
  'submit-form': ['tasks', 'Submit task…', 'Queue', ['bucket', 'server']],
  cancel: [`tasks/${stage.task({ status: 'running' }).id}`, 'Cancel', 'Reason', ['bucket', 'server']],
  purge: [`tasks/${failed()}`, 'Purge', 'permanently', ['server']],
  move: [`tasks/${failed()}`, 'Move', 'Queue', ['bucket', 'server']],
  'edit-and-retry': [`tasks/${failed()}`, 'Edit and retry…', 'Input', ['bucket', 'server']],
  'pause-type': ['queues', 'Pause a type…', 'Reason', ['bucket', 'server']],
  webhook: ['queues', 'Add a webhook…', 'completed', ['server']],
});

for (const [name, open] of Object.entries(SOURCES)) {
  test(`pictures of every page on a ${name}`, async () => {
    const page = await open('overview');
    for (const [title, [hash, text]] of Object.entries(PAGES())) {
      await visit(page, `#/${hash}`);
      await page.locator('main:not(.loading)').waitFor();
      await shows(page, text, '#main');
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, `${title} overflows`);
      if (title === 'schedules') {
        const times = page.locator('.schedules-table tbody tr').filter({ hasText: 'heartbeat' }).locator('.when');
        assert.deepEqual(await times.allInnerTexts(), ['–', '–'], 'a paused schedule without a run has neither time');
      }
      // Of the largest worker: its host, CPU, memory, and what it has completed.
      if (title === 'workers') for (const fact of ['ip-10-0-3-17', '96 %', '88.0 MiB', '1,204']) await shows(page, fact, '#main tbody');
      await checkAccess(page, `${title} on a ${name}`);
      await screenshot(page, `page-${name}-${title}`, { fullPage: true });
    }
    await closePage(page);
  });

  test(`pictures of every form and dialog on a ${name}`, async () => {
    // Forms use what the overview has found out, such as the names of queues.
    const page = await open('overview');
    await shows(page, 'Dead letters', '#main');
    for (const [title, [hash, button, text, sources]] of Object.entries(DIALOGS())) {
      if (!sources.includes(name)) continue;
      await visit(page, `#/${hash}`);
      await page.getByRole('button', { name: button, exact: true }).click();
      await shows(page, text, 'dialog');
      if (title === 'move') assert.ok((await page.locator('datalist option').count()) > 1, 'the queues are suggested');
      await checkAccess(page, `${title} on a ${name}`);
      await screenshot(page, `dialog-${name}-${title}`);
      await page.keyboard.press('Escape');
      await noDialog(page);
    }
    await closePage(page);
  });
}

test('a task shows the end of what its last attempts printed, on a bucket and on a server', async () => {
  const record = await stage.stored(failed());
  const at = new Date().toISOString();
  record.logs = [{ attempt: 1, at, text: 'opening the volume' }, { attempt: 2, at, text: 'line 1\n<b>line 2</b>\nwriting block 7' }];
  await stage.s3.put(stage.bucket, `tasks/${record.id[0]}/${record.id}.json`, JSON.stringify(record));
  for (const [name, open] of Object.entries(SOURCES)) {
    const page = await open(`tasks/${record.id}`);
    await shows(page, 'writing block 7', '.log-block');
    assert.equal(await page.locator('.log-block').first().innerText(), 'line 1\n<b>line 2</b>\nwriting block 7', 'the newest attempt comes first, as text');
    assert.deepEqual(await page.locator('details:has(.log-block) summary').evaluateAll((all) => all.map((one) => [one.textContent.slice(0, 9), one.parentElement.open])), [['Attempt 2', true], ['Attempt 1', false]]);
    await checkAccess(page, `logs on a ${name}`);
    await screenshot(page, `page-${name}-task-logs`, { fullPage: true });
    await closePage(page);
  }
});

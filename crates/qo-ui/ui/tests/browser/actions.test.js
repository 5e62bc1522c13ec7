// Actions on tasks in a bucket. The dashboard must write what the engine would, so some of them are done on a server, too.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';

import { checkAccess, closePage, noDialog, openDashboard, screenshot, shows, until, visit } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { useSources } from '../support/sources.js';

const stage = useSources('actions', { versioned: false });
const { SOURCES } = stage;

/** The next task of the sample data that matches and is not used by another test. */
const taken = new Set();
function take(choose) {
  const task = stage.tasks.find((one) => !taken.has(one.id) && choose(one));
  taken.add(task.id);
  return task;
}

async function openTask(id, more = {}) {
  const page = await openDashboard(stage, { go: `tasks/${id}`, ...more });
  await shows(page, id, '.id-line');
  return page;
}

const press = (page, name) => page.getByRole('button', { name, exact: true }).click();
const inDialog = (page, name) => page.locator('dialog footer').getByRole('button', { name }).click();
const indexOf = async (id) => (await Promise.all(['ready/', 'later/', 'leases/'].map((prefix) => stage.s3.keys(stage.bucket, prefix)))).flat().filter((key) => key.includes(id));

test('replay of a failed task', async () => {
  const task = take((one) => one.status === 'failed' && one.attempt === 3);
  const signalBefore = await stage.s3.get(stage.bucket, 'meta/signal.json').catch(() => '');
  const page = await openTask(task.id);
  await press(page, 'Replay');
  await shows(page, 'due', '.task-head .badge');
  const stored = await stage.stored(task.id);
  assert.equal(stored.status, 'pending');
  assert.deepEqual([stored.retry_count, stored.attempt, stored.revision], [0, task.attempt, task.revision + 1]);
  assert.equal(stored.completed_at, undefined);
  const event = stored.events.at(-1);
  assert.deepEqual([event.action, event.from, event.to, event.op_id, event.by], ['replayed', 'failed', 'pending', stored.op_id, 'dashboard']);
  await shows(page, 'by dashboard', '.timeline');
  const due = String(Date.parse(stored.available_at)).padStart(15, '0');
  assert.deepEqual(await indexOf(task.id), [`ready/${task.queue}/${task.task_type}/${task.priority}/${due}/${task.id}`]);
  assert.notEqual(await stage.s3.get(stage.bucket, 'meta/signal.json'), signalBefore, 'idle workers are notified');
  await closePage(page);
});

test('archive and unarchive', async () => {
  const task = take((one) => one.status === 'completed');
  const page = await openTask(task.id);
  await press(page, 'Archive');
  await shows(page, 'archived', '.task-head .badge');
  assert.equal((await stage.stored(task.id)).status, 'archived');
  await press(page, 'Unarchive');
  await shows(page, 'completed', '.task-head .badge');
  const stored = await stage.stored(task.id);
  assert.deepEqual([stored.status, stored.revision, stored.events.length], ['completed', task.revision + 2, task.events.length + 2]);
  assert.deepEqual(stored.output, task.output);
  await closePage(page);
});

test('cancel ends a pending task at once, after confirmation', async () => {
  const task = take((one) => one.status === 'pending' && one.task_type === 'send_digest');
  const page = await openTask(task.id);
  await press(page, 'Cancel');
  await shows(page, 'The task is cancelled at once', 'dialog');
  await checkAccess(page, 'a confirmation dialog');
  await screenshot(page, 'confirm');
  await inDialog(page, 'Go back');
  await noDialog(page);
  assert.equal((await stage.stored(task.id)).revision, task.revision, 'nothing happens without confirmation');
  await press(page, 'Cancel');
  await page.locator('dialog input').fill('no longer wanted');
  await inDialog(page, 'Cancel');
  await shows(page, 'cancelled', '.task-head .badge');
  const stored = await stage.stored(task.id);
  assert.deepEqual([stored.status, stored.last_error, stored.events.at(-1).error], ['cancelled', 'no longer wanted', 'no longer wanted']);
  await until('its index entry is deleted', async () => (await indexOf(task.id)).length === 0);
  await closePage(page);
});

test('cancel asks a running task to stop', async () => {
  const task = take((one) => one.status === 'running' && !one.cancel_requested);
  const page = await openTask(task.id);
  await press(page, 'Cancel');
  await shows(page, 'The worker sees the request at its next lease renewal', 'dialog');
  await inDialog(page, 'Cancel');
  await shows(page, 'cancel requested', '.task-head');
  const stored = await stage.stored(task.id);
  assert.deepEqual([stored.status, stored.cancel_requested, stored.lease_id], ['running', true, task.lease_id]);
  assert.equal((await indexOf(task.id)).length, 1, 'its lease entry stays');
  assert.equal(await page.getByRole('button', { name: 'Cancel', exact: true }).count(), 0, 'cancel is offered once');
  await closePage(page);
});

test('run now makes a scheduled task due', async () => {
  const task = take((one) => one.status === 'pending' && one.task_type === 'send_digest');
  const page = await openTask(task.id);
  await shows(page, 'scheduled', '.task-head .badge');
  await press(page, 'Run now');
  await shows(page, 'due', '.task-head .badge');
  const stored = await stage.stored(task.id);
  assert.ok(Date.parse(stored.available_at) < Date.parse(task.available_at));
  assert.equal(stored.events.at(-1).error, 'made due at once');
  await until('only the ready entry is left', async () => {
    const keys = await indexOf(task.id);
    return keys.length === 1 && keys[0].startsWith('ready/');
  });
  await closePage(page);
});

test('duplicate submits a new task with an edited input', async () => {
  const task = take((one) => one.status === 'completed' && one.task_type === 'send_email');
  const page = await openTask(task.id);
  await press(page, 'Duplicate…');
  await page.locator('dialog textarea').fill('{"not json"');
  await inDialog(page, 'Submit');
  await shows(page, 'The input is not valid JSON', 'dialog');
  await screenshot(page, 'duplicate');
  await checkAccess(page, 'duplicate');
  await page.locator('dialog textarea').fill('{"to": "copy@example.org", "n": 1.10}');
  await page.locator('dialog input[name=priority]').fill('2');
  await inDialog(page, 'Submit');
  await until('the new task is shown', async () => !(await page.evaluate(() => location.hash)).includes(task.id));
  await shows(page, 'copy@example.org', '.json');
  const id = (await page.evaluate(() => location.hash)).split('/').at(-1);
  const text = await stage.s3.get(stage.bucket, `tasks/${id[0]}/${id}.json`);
  assert.ok(text.includes('"input":{"to": "copy@example.org", "n": 1.10}'), 'the input is kept byte for byte');
  assert.equal(JSON.parse(text).priority, 2);
  assert.equal((await indexOf(id)).length, 1);
  await closePage(page);
});

test('of two concurrent users, one sees why the action was rejected', async () => {
  const task = take((one) => one.status === 'failed');
  const [ada, grace] = await Promise.all([openTask(task.id), openTask(task.id)]);
  await ada.locator('select[aria-label="Refresh interval"]').selectOption('0');
  await grace.locator('select[aria-label="Refresh interval"]').selectOption('0');
  await press(ada, 'Replay');
  await shows(ada, 'due', '.task-head .badge');
  await press(grace, 'Replay');
  await shows(grace, 'Cannot replay a task that is pending', '#toasts');
  await shows(grace, 'due', '.task-head .badge');
  await screenshot(grace, 'rejected');
  assert.equal((await stage.stored(task.id)).revision, task.revision + 1, 'it was replayed once');
  await closePage(ada);
  await closePage(grace);
});

test('a concurrent change is not overwritten', async () => {
  const task = take((one) => one.status === 'failed');
  const page = await openTask(task.id);
  let interfered = 0;
  await page.route(`**/tasks/**/${task.id}.json`, async (route) => {
    if (route.request().method() === 'PUT' && interfered === 0) {
      interfered += 1;
      const stored = await stage.stored(task.id);
      await stage.s3.put(stage.bucket, `tasks/${task.id[0]}/${task.id}.json`, JSON.stringify({ ...stored, revision: stored.revision + 1, zz_note: 'kept' }));
    }
    await route.continue();
  });
  await press(page, 'Archive');
  await shows(page, 'archived', '.task-head .badge');
  const stored = await stage.stored(task.id);
  assert.deepEqual([interfered, stored.status, stored.revision, stored.zz_note], [1, 'archived', task.revision + 2, 'kept']);
  await closePage(page);
});

test('a lost response is resolved by reading back', async () => {
  const task = take((one) => one.status === 'failed');
  const page = await openTask(task.id);
  let lost = 0;
  await page.route(`**/tasks/**/${task.id}.json`, async (route) => {
    if (route.request().method() !== 'PUT' || lost > 0) return route.continue();
    lost += 1;
    await route.fetch();
    return route.abort('connectionreset');
  });
  await press(page, 'Replay');
  await shows(page, 'due', '.task-head .badge');
  assert.deepEqual([lost, (await stage.stored(task.id)).revision], [1, task.revision + 1], 'it was replayed once');
  await closePage(page);
});

for (const [kind, open] of Object.entries(SOURCES)) {
  test(`a bulk action on selected tasks shows a preview and a report on a ${kind}`, async () => {
    const page = await open('tasks?tab=completed');
    const rows = page.locator('.tasks-table tbody tr');
    await rows.nth(2).waitFor();
    const ids = [];
    for (const index of [0, 1, 2]) {
      await rows.nth(index).locator('input').check();
      ids.push(await rows.nth(index).locator('.id-cell').innerText());
      taken.add(ids.at(-1));
    }
    await shows(page, '3 tasks selected');
    await page.locator('.selection').getByRole('button', { name: 'Archive' }).click();
    await shows(page, '3 tasks match: 3 completed', 'dialog');
    assert.doesNotMatch(await page.locator('dialog').innerText(), /false|undefined|null/);
    await checkAccess(page, 'a preview');
    await screenshot(page, `bulk-${kind}`);
    await inDialog(page, 'Archive 3 tasks');
    await shows(page, 'Archived 3 tasks', 'dialog');
    await inDialog(page, 'Close');
    for (const id of ids) assert.equal((await stage.stored(id)).status, 'archived');
    await closePage(page);
  });
}

test('a bulk action applies to all matching tasks', async () => {
  const matching = stage.tasks.filter((task) => task.status === 'failed' && task.task_type === 'sync_crm' && !taken.has(task.id));
  const already = stage.tasks.filter((task) => task.status === 'failed' && task.task_type === 'sync_crm').length - matching.length;
  const page = await openDashboard(stage, { go: `tasks?tab=failed&q=${encodeURIComponent('type:sync_crm')}` });
  await page.locator('.tasks-table tbody tr').first().waitFor();
  await page.getByRole('button', { name: 'Replay all…' }).click();
  const expected = (await Promise.all(stage.tasks.filter((task) => task.task_type === 'sync_crm').map((task) => stage.stored(task.id)))).filter((task) => task.status === 'failed');
  assert.ok(expected.length > 0, `${already} were used by other tests`);
  await shows(page, `${expected.length} task`, 'dialog .preview');
  await inDialog(page, /^Replay \d+ tasks?$/);
  await shows(page, `Replayed ${expected.length} task`, 'dialog');
  await inDialog(page, 'Close');
  await shows(page, 'No task matches');
  for (const { id } of expected) assert.equal((await stage.stored(id)).status, 'pending');
  await closePage(page);
});

test('a queue is paused and resumed', async () => {
  const page = await openDashboard(stage, { go: 'queues' });
  const row = page.locator('tr').filter({ hasText: 'billing' });
  await row.getByRole('button', { name: 'Pause' }).click();
  await page.getByLabel('Reason (optional)').fill('the provider is down');
  await inDialog(page, 'Pause');
  await row.getByRole('button', { name: 'Resume' }).waitFor();
  const paused = JSON.parse(await stage.s3.get(stage.bucket, 'meta/queues.json'));
  assert.ok('billing' in paused.paused);
  assert.deepEqual(paused.queue_notes.billing, { by: 'dashboard', reason: 'the provider is down' });
  for (const text of ['by dashboard', 'the provider is down']) assert.ok((await row.textContent()).includes(text), text);
  await row.getByRole('button', { name: 'Resume' }).click();
  await row.getByRole('button', { name: 'Pause' }).waitFor();
  const record = JSON.parse(await stage.s3.get(stage.bucket, 'meta/queues.json'));
  assert.deepEqual(Object.keys(record.paused), ['reports']);
  assert.equal(record.recent_ops.length, 2);
  await closePage(page);
});

test('a type is paused and resumed', async () => {
  const page = await openDashboard(stage, { go: 'queues' });
  await page.getByRole('button', { name: 'Pause a type…' }).click();
  await page.getByLabel('Type', { exact: true }).fill('sync_crm');
  await page.getByLabel('Reason (optional)').fill('a bad release');
  await inDialog(page, 'Pause');
  const row = page.getByRole('region', { name: 'Paused types' }).locator('tr').filter({ hasText: 'sync_crm' });
  await row.getByRole('button', { name: 'Resume' }).waitFor();
  for (const text of ['by dashboard', 'a bad release']) assert.ok((await row.textContent()).includes(text), text);
  await screenshot(page, 'queues-paused-type');
  const paused = JSON.parse(await stage.s3.get(stage.bucket, 'meta/queues.json'));
  assert.deepEqual([Object.keys(paused.paused_types), paused.type_notes.sync_crm.reason], [['sync_crm'], 'a bad release']);
  await row.getByRole('button', { name: 'Resume' }).click();
  await page.getByRole('region', { name: 'Paused types' }).waitFor({ state: 'detached' });
  assert.equal(JSON.parse(await stage.s3.get(stage.bucket, 'meta/queues.json')).paused_types, undefined);
  await closePage(page);
});

test('a read-only session offers no actions', async () => {
  const task = take((one) => one.status === 'failed');
  const page = await openTask(task.id, { payload: { mode: 'read' } });
  await shows(page, 'Read-only');
  for (const name of ['Replay', 'Archive', 'Duplicate…']) assert.equal(await page.getByRole('button', { name, exact: true }).count(), 0, name);
  await screenshot(page, 'task-read-only');
  await visit(page, '#/tasks');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.equal(await page.locator('.selection, .tasks-table input').count(), 0);
  await visit(page, '#/queues');
  await shows(page, 'billing');
  assert.equal(await page.getByRole('button', { name: 'Pause' }).count(), 0);
  assert.ok(page.requests.every(({ method }) => method === 'GET'), 'nothing was written');
  await closePage(page);
});

for (const [kind, open] of Object.entries(SOURCES)) {
  test(`a waiting task is moved to another queue on a ${kind}`, async () => {
    const task = take((one) => one.status === 'pending' && one.ordering_key === undefined);
    const page = await open(`tasks/${task.id}`);
    await shows(page, task.id, '.id-line');
    await press(page, 'Move');
    await page.locator('dialog input[name=to]').fill('not/valid');
    await inDialog(page, 'Continue');
    await shows(page, 'A queue name has', 'dialog');
    await checkAccess(page, 'the queue to move to');
    await page.locator('dialog input[name=to]').fill('elsewhere');
    await inDialog(page, 'Continue');
    await shows(page, 'Moved', '.timeline');
    const stored = await stage.stored(task.id);
    assert.deepEqual([stored.status, stored.queue, Date.parse(stored.available_at)], ['pending', 'elsewhere', Date.parse(task.available_at) + 1]);
    const event = stored.events.at(-1);
    assert.deepEqual([event.action, event.error, event.by], ['redriven', `moved from queue ${task.queue} to elsewhere`, 'dashboard']);
    await until('only the entry of the other queue is left', async () => {
      const keys = await indexOf(task.id);
      return keys.length === 1 && keys[0].includes('/elsewhere/');
    });
    await closePage(page);
  });

  test(`failed tasks are moved to another queue on a ${kind}`, async () => {
    const page = await open('tasks?tab=failed');
    await page.locator('.tasks-table tbody tr').first().waitFor();
    const ids = (await page.locator('.id-cell').allInnerTexts()).slice(0, 2);
    for (const id of ids) {
      taken.add(id);
      await page.getByRole('checkbox', { name: `Select task ${id}` }).check();
    }
    await press(page, 'Move');
    await page.locator('dialog input[name=to]').fill('repaired');
    await inDialog(page, 'Continue');
    await shows(page, '2 tasks match', 'dialog');
    await inDialog(page, 'Move 2 tasks');
    await shows(page, 'Moved 2 tasks', 'dialog');
    await inDialog(page, 'Close');
    for (const stored of await Promise.all(ids.map((id) => stage.stored(id)))) assert.deepEqual([stored.status, stored.queue, stored.retry_count], ['pending', 'repaired', 0]);
    await closePage(page);
  });

  test(`a worker is asked to be quiet, and to stop, on a ${kind}`, async () => {
    const name = `worker-asked-on-a-${kind}`;
    const key = `workers/${name}.json`;
    const record = { worker_id: name, started_at: new Date().toISOString(), last_heartbeat: new Date().toISOString(), slots: 2, unknown: { kept: true } };
    await stage.s3.putMany(stage.bucket, [{ key, body: JSON.stringify(record) }]);
    const page = await open('workers');
    const row = page.locator('tr').filter({ hasText: name });
    const stored = async () => JSON.parse(await stage.s3.get(stage.bucket, key));
    await row.getByRole('button', { name: 'Quiet' }).click();
    await inDialog(page, 'Quiet the worker');
    await row.getByText('quiet', { exact: true }).waitFor();
    const { request, unknown } = await stored();
    assert.deepEqual([request.action, request.by, unknown], ['quiet', 'dashboard', { kept: true }]);
    await row.getByRole('button', { name: 'Stop' }).click();
    await shows(page, 'finishes those that it runs, and exits', 'dialog');
    await inDialog(page, 'Stop the worker');
    await row.getByText('stopping').waitFor();
    assert.equal((await stored()).request.action, 'stop');
    await row.getByRole('button', { name: 'Resume' }).click();
    await row.getByRole('button', { name: 'Quiet' }).waitFor();
    assert.equal((await stored()).request, undefined);
    await checkAccess(page, 'workers with actions');
    await closePage(page);
  });
}

// Last, because the worker runs all other tasks that are due, too.
test('a real worker runs a task replayed here', async () => {
  const task = take((one) => one.status === 'failed' && one.queue !== 'reports');
  const worker = spawn(await programs.echoWorker(), [`s3://${stage.bucket}`], {
    env: { PATH: process.env.PATH, S3_ENDPOINT: stage.s3.endpoint, S3_REGION: 'us-east-1', AWS_ACCESS_KEY_ID: stage.s3.accessKey, AWS_SECRET_ACCESS_KEY: stage.s3.secretKey, AWS_ALLOW_HTTP: 'true' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const done = new Promise((resolve) => worker.stdout.on('data', (data) => { if (data.toString().includes(task.id)) resolve(); }));
    const page = await openTask(task.id);
    await page.locator('select[aria-label="Refresh interval"]').selectOption('5');
    await press(page, 'Replay');
    await done;
    await shows(page, 'completed', '.task-head .badge');
    await shows(page, 'echo', '.timeline');
    const stored = await stage.stored(task.id);
    assert.deepEqual([stored.status, stored.attempt, JSON.stringify(stored.output)], ['completed', task.attempt + 1, JSON.stringify(task.input)]);
    await closePage(page);
  } finally {
    worker.kill();
  }
});

// Errors and what the page shows.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { checkAccess, closePage, openDashboard, quiet, screenshot, shows, until, visit } from '../support/browser.js';
import { useSources } from '../support/sources.js';
import { serveFromOtherOrigin, uniqueName } from '../support/stage.js';

const stage = useSources('trouble', { versioned: false });
const { SOURCES } = stage;
let otherOrigin;
before(async () => { otherOrigin = await serveFromOtherOrigin(); });
after(() => otherOrigin?.stop());

/** Confirms the connection to another host than that of the page. */
const confirmHost = (page) => page.getByRole('button', { name: /^Connect to / }).click();

const ignoreCorsErrors = (page) => { page.errors = page.errors.filter((text) => !/CORS policy/.test(text)); };

test('without credentials the page shows the form with its own bucket', async () => {
  const context = await stage.browser.newContext({ viewport: { width: 1320, height: 860 } });
  const page = await context.newPage();
  await page.goto(`${stage.url}#/tasks?tab=failed`);
  await shows(page, 'Connect to a queue');
  assert.equal(await page.locator('input[name=bucket]').inputValue(), stage.bucket);
  assert.equal(await page.locator('input[name=endpoint]').inputValue(), stage.s3.endpoint);
  await checkAccess(page, 'connect');
  await screenshot(page, 'connect');
  await page.locator('input[name=accessKeyId]').fill(stage.s3.accessKey);
  await page.locator('input[name=secretAccessKey]').fill(stage.s3.secretKey);
  await page.getByRole('button', { name: 'Connect' }).click();
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.match(await page.evaluate(() => location.hash), /tab=failed/, 'it opens the page of the link');
  await context.close();
});

test('a reload asks for the credentials again and returns to the same page; nothing is stored', async () => {
  const page = await openDashboard(stage, { go: 'tasks?tab=failed&q=type:charge_card' });
  const ids = async () => (await page.locator('.id-cell').allInnerTexts()).sort();
  const expected = stage.tasks.filter((task) => task.status === 'failed' && task.task_type === 'charge_card').map(({ id }) => id).sort();
  const showsAll = () => until('the tasks are shown', async () => JSON.stringify(await ids()) === JSON.stringify(expected));
  assert.ok(expected.length > 0);
  await showsAll();
  const address = await page.evaluate(() => location.href);
  assert.ok(address.endsWith('#/tasks?tab=failed&q=type:charge_card'), address);
  // Something is kept, so the keys could be too.
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  const keptNow = () => page.evaluate(async () => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, history.state, await indexedDB.databases(), await caches.keys()]));
  const showsNoKeys = async () => {
    const kept = await keptNow();
    assert.match(kept, /refreshSeconds/);
    for (const key of [stage.s3.accessKey, stage.s3.secretKey]) assert.ok(!kept.includes(key), 'the keys are in memory only');
  };
  await showsNoKeys();
  await page.reload();
  await shows(page, 'The page was reloaded, so its credentials are gone', '.notice');
  assert.equal(await page.evaluate(() => location.href), address);
  assert.equal(await page.locator('.tasks-table').count(), 0);
  assert.equal(await page.locator('input[name=bucket]').inputValue(), stage.bucket);
  for (const name of ['accessKeyId', 'secretAccessKey']) assert.equal(await page.locator(`input[name=${name}]`).inputValue(), '', name);
  await showsNoKeys();
  await page.locator('input[name=accessKeyId]').fill(stage.s3.accessKey);
  await page.locator('input[name=secretAccessKey]').fill(stage.s3.secretKey);
  await page.getByRole('button', { name: 'Connect' }).click();
  await showsAll();
  assert.equal(await page.evaluate(() => location.href), address);
  await showsNoKeys();
  await closePage(page);
});

test('wrong credentials', async () => {
  const page = await openDashboard(stage, { payload: { secret_access_key: 'wrong' } });
  await shows(page, 'denied access', '.problem');
  await shows(page, 'Check the access key');
  await screenshot(page, 'denied');
  await checkAccess(page, 'denied');
  await closePage(page);
});

test('a bucket that does not exist', async () => {
  const page = await openDashboard(stage, { payload: { bucket: uniqueName('nowhere') } });
  await shows(page, 'does not exist', '.problem');
  await closePage(page);
});

test('without a CORS rule the page shows the command that sets one', async () => {
  // On this server a bucket without any rule allows all origins, so the test sets a rule for another one.
  const bucket = uniqueName('cors');
  await stage.s3.createBucket(bucket);
  await stage.s3.setCors(bucket, ['https://somebody.example']);
  const page = await openDashboard(stage, { url: otherOrigin.url, payload: { bucket } });
  await confirmHost(page);
  await shows(page, 'does not allow requests from this page', '.problem');
  await shows(page, `qo init --cors-origin ${new URL(otherOrigin.url).origin}`, '.command');
  await screenshot(page, 'cors');
  ignoreCorsErrors(page);
  await closePage(page);
});

test('with a CORS rule the page works from another origin, without preflights for reads', async () => {
  await stage.s3.setCors(stage.bucket, [new URL(otherOrigin.url).origin]);
  const task = stage.task({ status: 'failed' });
  const page = await openDashboard(stage, { url: otherOrigin.url, go: 'tasks' });
  await confirmHost(page);
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.equal(page.requests.filter(({ method }) => method === 'OPTIONS').length, 0);
  await visit(page, `#/tasks/${task.id}`);
  await page.getByRole('button', { name: 'Replay', exact: true }).click();
  await shows(page, 'due', '.task-head .badge');
  assert.equal((await stage.stored(task.id)).status, 'pending');
  ignoreCorsErrors(page);
  await closePage(page);
});

test('a task that is deleted while its page is open, and one that never existed', async () => {
  const task = stage.task({ status: 'cancelled' });
  const page = await openDashboard(stage, { go: `tasks/${task.id}` });
  await shows(page, task.id, '.id-line');
  await stage.s3.remove(stage.bucket, `tasks/${task.id[0]}/${task.id}.json`);
  await page.getByRole('button', { name: 'Refresh' }).click();
  await shows(page, 'This task no longer exists');
  await visit(page, '#/tasks/00000000-0000-4000-8000-000000000000');
  await shows(page, 'Task not found');
  await screenshot(page, 'task-not-found');
  await closePage(page);
});

test('an unreadable record is skipped in lists and reported on its page', async () => {
  const id = 'abadabad-0000-4000-8000-000000000000';
  await stage.s3.put(stage.bucket, `tasks/a/${id}.json`, '{"id": broken');
  const page = await openDashboard(stage, { go: `tasks/${id}` });
  await shows(page, 'The record is unreadable', '.problem');
  await visit(page, '#/tasks?shard=a');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  await closePage(page);
});

test('an empty bucket shows what to do', async () => {
  const bucket = uniqueName('empty');
  await stage.s3.createBucket(bucket);
  const page = await openDashboard(stage, { payload: { bucket } });
  await shows(page, 'No tasks yet');
  await shows(page, 'qo submit');
  await screenshot(page, 'empty');
  for (const [name, text] of [['workers', 'No workers'], ['queues', 'No queues yet'], ['tasks', 'No tasks yet']]) {
    await visit(page, `#/${name}`);
    await shows(page, text);
  }
  await closePage(page);
});

test('if the store does not respond, the page keeps its content and shows the error', async () => {
  const page = await openDashboard(stage, { go: 'workers' });
  await shows(page, 'worker-eu-1');
  await page.context().setOffline(true);
  await page.getByRole('button', { name: 'Refresh' }).click();
  await shows(page, 'No response from', '.problem');
  await shows(page, 'worker-eu-1');
  await screenshot(page, 'offline');
  await page.context().setOffline(false);
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.locator('.problem').waitFor({ state: 'detached' });
  await closePage(page);
});

test('an expired session leads back to the form', async () => {
  // The page gets an hour, because a busy machine takes its time to show it, and then the hour passes at once.
  const page = await openDashboard(stage, { payload: { expires: new Date(Date.now() + 3_600_000).toISOString() } });
  await shows(page, 'Throughput');
  // A response would set the page's clock right again.
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  await quiet(page);
  await page.evaluate(() => {
    const { now } = Date;
    Date.now = () => now() + 3_700_000;
  });
  await shows(page, 'The session has expired', '.problem');
  await shows(page, 'qo ui link', '.command');
  await closePage(page);
});

for (const [kind, link] of Object.entries({
  bucket: () => ({ to: stage.s3.endpoint, payload: {} }),
  server: () => ({ to: stage.server.url, payload: { url: stage.server.url, token: 'qo_of_somebody_else' } }),
})) {
  test(`a link to a ${kind} on another host asks first and sends nothing before`, async () => {
    const { to, payload } = link();
    const page = await openDashboard(stage, { url: otherOrigin.url, payload });
    await shows(page, 'Connect to another host?');
    await shows(page, new URL(to).host);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Do not connect');
    await checkAccess(page, `a link to a ${kind} on another host`);
    await screenshot(page, `confirm-host-${kind}`);
    assert.ok(page.requests.every(({ url }) => !url.startsWith(to)), 'nothing was sent to the other host');
    await page.keyboard.press('Enter');
    await shows(page, 'Connect to a queue');
    assert.ok(page.requests.every(({ url }) => !url.startsWith(to)));
    await closePage(page);
  });
}

for (const [kind, open] of Object.entries(SOURCES)) {
  test(`malformed addresses show a page on a ${kind}`, async () => {
    const page = await open('overview');
    await shows(page, 'Throughput');
    for (const hash of ['#/tasks/%', '#/tasks/%E0%A4%A', '#/tasks/..%2F..%2Fmeta']) {
      await visit(page, hash);
      await shows(page, 'Task not found');
    }
    await visit(page, '#/%%%?tab=%&q=%');
    await shows(page, 'Throughput');
    await visit(page, '#/tasks?tab=nothing&sort=constructor&dir=sideways&shard=zz&q=%E0%A4%A');
    await shows(page, 'is not a prefix of an id');
    await visit(page, '#/tasks?sort=toString');
    await page.locator('.tasks-table tbody tr').first().waitFor();
    await closePage(page);
  });
}

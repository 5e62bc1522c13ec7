// What goes wrong, and what the page says then.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { checkAccess, closePage, openDashboard, picture, shows, visit } from '../support/browser.js';
import { setUp } from '../support/setup.js';
import { serveElsewhere, uniqueName } from '../support/stage.js';

let stage;
let elsewhere;
before(async () => {
  stage = await setUp('trouble', { versioned: false });
  elsewhere = await serveElsewhere();
});
after(async () => {
  elsewhere?.stop();
  await stage?.close();
});

const forgive = (page) => { page.errors = page.errors.filter((text) => !/CORS policy/.test(text)); };

test('without credentials the page asks for them, and knows its own bucket', async () => {
  const context = await stage.browser.newContext({ viewport: { width: 1320, height: 860 } });
  const page = await context.newPage();
  await page.goto(`${stage.url}#/tasks?tab=failed`);
  await shows(page, 'Connect to a queue');
  assert.equal(await page.locator('input[name=bucket]').inputValue(), stage.bucket);
  assert.equal(await page.locator('input[name=endpoint]').inputValue(), stage.s3.endpoint);
  await checkAccess(page, 'connect');
  await picture(page, 'connect');
  await page.locator('input[name=accessKeyId]').fill(stage.s3.accessKey);
  await page.locator('input[name=secretAccessKey]').fill(stage.s3.secretKey);
  await page.getByRole('button', { name: 'Connect' }).click();
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.match(await page.evaluate(() => location.hash), /tab=failed/, 'it goes where the link led');
  await context.close();
});

test('wrong credentials', async () => {
  const page = await openDashboard(stage, { handed: { secret_access_key: 'wrong' } });
  await shows(page, 'refuses access', '.problem');
  await shows(page, 'Check the access key');
  await picture(page, 'denied');
  await checkAccess(page, 'denied');
  await closePage(page);
});

test('a bucket that is not there', async () => {
  const page = await openDashboard(stage, { handed: { bucket: uniqueName('nowhere') } });
  await shows(page, 'There is no bucket', '.problem');
  await closePage(page);
});

test('a bucket without a CORS rule: the page says so, with the command that sets one', async () => {
  // A bucket without any rule is open to all origins on this server, so that the rule of somebody else stands for none.
  const bucket = uniqueName('cors');
  await stage.s3.createBucket(bucket);
  await stage.s3.setCors(bucket, ['https://somebody.example']);
  const page = await openDashboard(stage, { url: elsewhere.url, handed: { bucket } });
  await shows(page, 'does not let this page call it', '.problem');
  await shows(page, `qo init --cors-origin ${new URL(elsewhere.url).origin}`, '.command');
  await picture(page, 'cors');
  forgive(page);
  await closePage(page);
});

test('with the rule, the page works from another origin, and a plain look asks no questions first', async () => {
  await stage.s3.setCors(stage.bucket, [new URL(elsewhere.url).origin]);
  const task = stage.task({ status: 'failed' });
  const page = await openDashboard(stage, { url: elsewhere.url, go: 'tasks' });
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.equal(page.requests.filter(({ method }) => method === 'OPTIONS').length, 0);
  await visit(page, `#/tasks/${task.id}`);
  await page.getByRole('button', { name: 'Replay', exact: true }).click();
  await shows(page, 'due', '.task-head .badge');
  assert.equal((await stage.stored(task.id)).status, 'pending');
  forgive(page);
  await closePage(page);
});

test('a task that vanishes while it is looked at, and one that never was', async () => {
  const task = stage.task({ status: 'cancelled' });
  const page = await openDashboard(stage, { go: `tasks/${task.id}` });
  await shows(page, task.id, '.id-line');
  await stage.s3.remove(stage.bucket, `tasks/${task.id[0]}/${task.id}.json`);
  await page.getByRole('button', { name: 'Refresh' }).click();
  await shows(page, 'This task is no longer there');
  await visit(page, '#/tasks/00000000-0000-4000-8000-000000000000');
  await shows(page, 'There is no such task');
  await picture(page, 'no-such-task');
  await closePage(page);
});

test('a record that cannot be read is passed over in lists, and named on its own page', async () => {
  const id = 'abadabad-0000-4000-8000-000000000000';
  await stage.s3.put(stage.bucket, `tasks/a/${id}.json`, '{"id": broken');
  const page = await openDashboard(stage, { go: `tasks/${id}` });
  await shows(page, 'The record cannot be read', '.problem');
  await visit(page, '#/tasks?shard=a');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  await closePage(page);
});

test('an empty bucket says what to do', async () => {
  const bucket = uniqueName('empty');
  await stage.s3.createBucket(bucket);
  const page = await openDashboard(stage, { handed: { bucket } });
  await shows(page, 'There are no tasks here yet');
  await shows(page, 'qo submit');
  await picture(page, 'empty');
  for (const [place, text] of [['workers', 'No worker has said'], ['queues', 'There are no queues yet'], ['tasks', 'There are no tasks here yet']]) {
    await visit(page, `#/${place}`);
    await shows(page, text);
  }
  await closePage(page);
});

test('a store that does not answer: what was there stays, with the reason above it', async () => {
  const page = await openDashboard(stage, { go: 'workers' });
  await shows(page, 'worker-eu-1');
  await page.context().setOffline(true);
  await page.getByRole('button', { name: 'Refresh' }).click();
  await shows(page, 'No answer from', '.problem');
  await shows(page, 'worker-eu-1');
  await picture(page, 'offline');
  await page.context().setOffline(false);
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.locator('.problem').waitFor({ state: 'detached' });
  await closePage(page);
});

test('a session that ends leads back to the form', async () => {
  const page = await openDashboard(stage, { handed: { expires: new Date(Date.now() + 4000).toISOString() } });
  await shows(page, 'Throughput');
  await shows(page, 'The session has ended', '.problem');
  await shows(page, 'qo ui link', '.command');
  await closePage(page);
});

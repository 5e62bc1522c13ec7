// The schedules page, on a bucket and on a server.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { checkAccess, closePage, openDashboard, screenshot, shows, until } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { serveQo } from '../support/serve.js';
import { setUp } from '../support/setup.js';

const run = promisify(execFile);
let stage;
let server;

function environment() {
  return { PATH: process.env.PATH, QO_STORE: `s3://${stage.bucket}`, S3_ENDPOINT: stage.s3.endpoint, S3_REGION: 'us-east-1', AWS_ACCESS_KEY_ID: stage.s3.accessKey, AWS_SECRET_ACCESS_KEY: stage.s3.secretKey };
}

async function qo(...words) {
  const program = await programs.qo();
  return (await run(program, words, { env: environment() })).stdout;
}

/** The schedule as the command shows it. */
const shown = async (name) => JSON.parse(await qo('schedule', 'show', name, '--json'));

before(async () => {
  stage = await setUp('schedules', { versioned: false });
  await qo('schedule', 'add', 'nightly', '--cron', '30 2 * * *', '--time-zone', 'Europe/Berlin', '--type', 'report', '--input', '{"n": 1.0}');
  await qo('schedule', 'add', 'yearly', '--cron', '0 0 1 1 *', '--type', 'report', '--overlap', 'skip');
  server = await serveQo({ store: `s3://${stage.bucket}`, env: environment(), args: ['--no-monitor'] });
});
after(async () => {
  server?.stop();
  await stage?.close();
});

const SOURCES = {
  bucket: () => openDashboard(stage, { go: 'schedules' }),
  server: () => openDashboard({ ...stage, url: `${server.url}/ui/#/schedules` }, { plain: true }),
};
const row = (page, name) => page.locator('.schedules-table tbody tr').filter({ hasText: name });

for (const [kind, open] of Object.entries(SOURCES)) {
  test(`schedules are listed, paused, resumed and triggered on a ${kind}`, async () => {
    const page = await open();
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
    const task = JSON.parse(await qo('status', last.task, '--json'));
    assert.deepEqual([task.task_type, task.status, task.tags], ['report', 'pending', ['schedule:yearly']]);
    await closePage(page);
  });
}

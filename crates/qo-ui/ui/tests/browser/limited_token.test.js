// A token that is limited to one queue: the pages show what it may see, and say what it may not.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { checkAccess, closePage, openDashboard, screenshot, shows, visit } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { serveQo } from '../support/serve.js';
import { setUp } from '../support/setup.js';

const run = promisify(execFile);
let stage;
let server;
let token;

before(async () => {
  stage = await setUp('limited', { versioned: false, objects: [] });
  const env = { PATH: process.env.PATH, QO_STORE: `s3://${stage.bucket}`, S3_ENDPOINT: stage.s3.endpoint, S3_REGION: 'us-east-1', AWS_ACCESS_KEY_ID: stage.s3.accessKey, AWS_SECRET_ACCESS_KEY: stage.s3.secretKey };
  const program = await programs.qo();
  const qo = async (...words) => (await run(program, words, { env })).stdout.trim();
  for (const [queue, many] of [['mail', 3], ['secret', 5]]) {
    for (let made = 0; made < many; made += 1) await qo('submit', '--type', `${queue}-work`, '--queue', queue, '--input', '1');
  }
  await qo('limit', 'set', 'secret-limit', '--queue', 'secret', '--concurrent', '1');
  await qo('schedule', 'add', 'secret-schedule', '--cron', '0 0 1 1 *', '--type', 'secret-work', '--queue', 'secret');
  token = await qo('token', 'create', '--name', 'mail', '--scope', 'read', '--queue', 'mail');
  server = await serveQo({ store: env.QO_STORE, env, args: ['--no-monitor'] });
});
after(async () => {
  server?.stop();
  await stage?.close();
});

test('a read token for one queue sees the tasks of that queue only, and what else it may not see', async () => {
  const page = await openDashboard({ ...stage, url: `${server.url}/ui/#/overview` }, { plain: true });
  await page.locator('input[name=token]').fill(token);
  await page.getByRole('button', { name: 'Connect' }).click();
  await shows(page, '3 tasks in total');
  const workers = page.locator('.panel').filter({ has: page.getByRole('heading', { name: 'Workers' }) });
  assert.match(await workers.innerText(), /Workers are not visible to this token/);
  const clean = async (name) => {
    assert.equal(await page.locator('.problem').count(), 0, name);
    assert.ok(!(await page.locator('#app').innerText()).includes('secret'), `${name} shows nothing of the other queue`);
    await checkAccess(page, `${name} with a limited token`);
    await screenshot(page, `limited-token-${name}`);
  };
  await clean('overview');
  await visit(page, '#/tasks');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.equal(await page.locator('.tasks-table tbody tr').count(), 3);
  await clean('tasks');
  await visit(page, '#/queues');
  await shows(page, 'not visible to this token', '#main');
  assert.deepEqual(await page.locator('.queues-table tbody th').allInnerTexts(), ['mail']);
  assert.ok(!(await page.locator('.queues-table').innerText()).includes('no worker'), 'whether there are workers is not known');
  await clean('queues');
  for (const name of ['schedules', 'workers']) {
    await visit(page, `#/${name}`);
    await shows(page, 'not visible to this token', '#main');
    await clean(name);
  }
  await visit(page, '#/errors');
  await shows(page, 'Errors', 'h1');
  await clean('errors');
  await closePage(page);
});

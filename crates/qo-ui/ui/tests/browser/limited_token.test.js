// Tokens that are limited to one queue and to two: the pages show what such a token may see, and say what it may not.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { checkAccess, closePage, openDashboard, screenshot, shows, until, visit } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { serveQo } from '../support/serve.js';
import { useSources } from '../support/sources.js';

/** How many tasks there are in each queue. */
const TASKS = { mail: 3, secret: 5, sms: 2 };
const TOKENS = { 'one queue': ['mail'], 'two queues': ['mail', 'sms'] };
const tokens = {};
const sum = (queues) => queues.reduce((total, queue) => total + TASKS[queue], 0);
const limits = (queues) => queues.flatMap((queue) => ['--queue', queue]);

/** Tasks in three queues, and the tokens. */
async function prepare({ qo }) {
  for (const [queue, many] of Object.entries(TASKS)) {
    for (let made = 0; made < many; made += 1) await qo('submit', '--type', `${queue}-work`, '--queue', queue, '--input', '1');
  }
  await qo('limit', 'set', 'secret-limit', '--queue', 'secret', '--concurrent', '1');
  await qo('schedule', 'add', 'secret-schedule', '--cron', '0 0 1 1 *', '--type', 'secret-work', '--queue', 'secret');
  for (const [name, queues] of Object.entries(TOKENS)) tokens[name] = await qo('token', 'create', '--name', name, '--scope', 'read', ...limits(queues));
}
const stage = useSources('limited', { versioned: false, objects: [], prepare });

async function enter(page, token) {
  await page.locator('input[name=token]').fill(token);
  await page.getByRole('button', { name: 'Connect' }).click();
}

for (const [limit, queues] of Object.entries(TOKENS)) {
  test(`a read token for ${limit} sees the tasks of these only, and what else it may not see`, async () => {
    const page = await stage.SOURCES.server('overview');
    await enter(page, tokens[limit]);
    await shows(page, `${sum(queues)} tasks in total`);
    const workers = page.locator('.panel').filter({ has: page.getByRole('heading', { name: 'Workers' }) });
    assert.match(await workers.innerText(), /Workers are not visible to this token/);
    const clean = async (name) => {
      assert.equal(await page.locator('.problem').count(), 0, name);
      assert.ok(!(await page.locator('#app').innerText()).includes('secret'), `${name} shows nothing of the other queue`);
      await checkAccess(page, `${name} with a token for ${limit}`);
      await screenshot(page, `limited-to-${limit.replace(' ', '-')}-${name}`);
    };
    await clean('overview');
    await visit(page, '#/tasks');
    await page.locator('.tasks-table tbody tr').first().waitFor();
    assert.equal(await page.locator('.tasks-table tbody tr').count(), sum(queues));
    await clean('tasks');
    await visit(page, '#/queues');
    await shows(page, 'not visible to this token', '#main');
    assert.deepEqual(await page.locator('.queues-table tbody th').allInnerTexts(), queues);
    assert.ok(!(await page.locator('.queues-table').innerText()).includes('no worker'), 'whether there are workers is not known');
    await clean('queues');
    for (const name of ['schedules', 'workers']) {
      await visit(page, `#/${name}`);
      await shows(page, 'not visible to this token', '#main');
      await clean(name);
    }
    await visit(page, '#/errors');
    await shows(page, 'No failed tasks', '#main');
    await clean('errors');
    await closePage(page);
  });
}

test('a search of a token for two queues finds nothing in others', async () => {
  const page = await stage.SOURCES.server('tasks?q=queue%3Amail%2Csecret');
  await enter(page, tokens['two queues']);
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.deepEqual(await page.locator('.queue-cell').allInnerTexts(), Array(TASKS.mail).fill('mail'));
  await visit(page, '#/tasks?q=queue%3As*');
  await until('the other search', async () => JSON.stringify(await page.locator('.queue-cell').allInnerTexts()) === JSON.stringify(Array(TASKS.sms).fill('sms')));
  await closePage(page);
});

test('a token for two queues of a broker has the charts of these queues', async () => {
  const server = await serveQo({ store: 'memory:?engine=slate' });
  try {
    for (const [queue, many] of Object.entries(TASKS)) {
      await server.submit(Array.from({ length: many }, () => ({ queue, task_type: `${queue}-work`, max_retries: 0 })));
      const worked = await server.work(many, (_, index) => (index === 0 ? { fail: { error: 'no', kind: 'permanent' } } : { complete: {} }), { queues: [queue] });
      assert.equal(worked, many);
    }
    const words = ['--store', server.url, 'token', 'create', '--name', 'two', '--scope', 'read', ...limits(TOKENS['two queues'])];
    const { stdout } = await promisify(execFile)(await programs.qo(), words, { env: { PATH: process.env.PATH, HOME: '/nonexistent' } });
    await until('the server asks for a token', async () => (await fetch(`${server.url}/v1/stats`)).status === 401);
    const page = await openDashboard({ ...stage, url: `${server.url}/ui/#/overview` }, { plain: true });
    await enter(page, stdout.trim());
    await shows(page, 'of 5 finished tasks');
    const queue = page.getByLabel('Queue', { exact: true });
    assert.deepEqual(await queue.locator('option').allInnerTexts(), ['All queues', 'mail', 'sms']);
    assert.deepEqual(await page.getByLabel('Type', { exact: true }).locator('option').allInnerTexts(), ['All types', 'mail-work', 'sms-work']);
    assert.ok(!(await page.locator('#app').innerText()).includes('secret'));
    await queue.selectOption('mail');
    await shows(page, 'of 3 finished tasks, queue mail');
    assert.equal(await page.locator('.problem').count(), 0);
    await checkAccess(page, 'charts with a limited token');
    await screenshot(page, 'limited-charts');
    await closePage(page);
  } finally {
    await server.stop();
  }
});

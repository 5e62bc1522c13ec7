// A token that is limited to one queue: the pages show what it may see, and say what it may not.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkAccess, closePage, screenshot, shows, visit } from '../support/browser.js';
import { useSources } from '../support/sources.js';

let token;

/** Tasks in two queues, and a token for one of them. */
async function prepare({ qo }) {
  for (const [queue, many] of [['mail', 3], ['secret', 5]]) {
    for (let made = 0; made < many; made += 1) await qo('submit', '--type', `${queue}-work`, '--queue', queue, '--input', '1');
  }
  await qo('limit', 'set', 'secret-limit', '--queue', 'secret', '--concurrent', '1');
  await qo('schedule', 'add', 'secret-schedule', '--cron', '0 0 1 1 *', '--type', 'secret-work', '--queue', 'secret');
  token = await qo('token', 'create', '--name', 'mail', '--scope', 'read', '--queue', 'mail');
}
const { SOURCES } = useSources('limited', { versioned: false, objects: [], prepare });

test('a read token for one queue sees the tasks of that queue only, and what else it may not see', async () => {
  const page = await SOURCES.server('overview');
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

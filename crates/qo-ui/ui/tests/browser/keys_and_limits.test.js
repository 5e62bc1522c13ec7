// Ordering keys, groups and their weights, limit keys and pauses, on a bucket and on a server: what the pages show of them, and why a task waits.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkAccess, closePage, screenshot, shows, visit } from '../support/browser.js';
import { useSources } from '../support/sources.js';

const stage = useSources('keys', { versioned: false, objects: [] });
const { SOURCES } = stage;
const qo = (...words) => stage.qo(...words);
const submit = (...words) => qo('submit', '--input', '1', ...words);
/** The value next to a label among the details of a task. */
const fact = (page, label) => page.locator('#main dt', { hasText: new RegExp(`^${label}$`) }).locator('xpath=following-sibling::dd[1]').innerText();

for (const [kind, open] of Object.entries(SOURCES)) {
  test(`a task shows its ordering key and the task that it waits behind, on a ${kind}`, async () => {
    const type = `sync-${kind}`;
    const ordered = (...words) => submit('--type', type, '--ordering-key', `account-${kind}`, ...words);
    const first = await ordered('--on-failure', 'stop', '--retries', '0');
    const second = await ordered();
    const third = await ordered();
    const page = await open(`tasks/${third}`);
    await shows(page, `${first.slice(0, 8)} and 1 other`, '#main');
    assert.equal(await fact(page, 'Ordering key'), `account-${kind}`);
    assert.equal(await fact(page, 'Waits behind'), `${first.slice(0, 8)} and 1 other`);
    await checkAccess(page, `a task behind another one on a ${kind}`);
    await screenshot(page, `ordering-${kind}`);
    await page.getByRole('link', { name: first.slice(0, 8) }).click();
    await shows(page, `account-${kind} (stops on failure)`, '#main');
    assert.equal(await page.getByText('Waits behind').count(), 0, 'the head of the line waits for nothing');
    // The head fails for good, and the key stops.
    await qo('worker', '--exec', `${type}=false`, '--max-tasks', '1');
    await visit(page, `#/tasks/${second}`);
    await shows(page, 'which failed and stops the key: replay or cancel it', '#main');
    await visit(page, `#/tasks/${first}`);
    await shows(page, 'the tasks with the same ordering key: replay or cancel this task', '#main');
    if (kind === 'server') {
      await page.getByRole('button', { name: 'Cancel', exact: true }).click();
      await page.locator('dialog footer').getByRole('button', { name: /^Cancel/ }).click();
      await shows(page, 'cancelled', '.task-head');
    } else {
      // The page cannot change a line, so it must not pretend to.
      await qo('cancel', first);
    }
    await visit(page, `#/tasks/${third}`);
    await shows(page, second.slice(0, 8), '#main');
    assert.equal(await fact(page, 'Waits behind'), second.slice(0, 8), 'the line has moved on');
    await closePage(page);
  });

  test(`a task shows its limit key and the limit that it waits for, on a ${kind}`, async () => {
    const name = `stripe-${kind}`;
    await qo('limit', 'set', name, '--key', name, '--concurrent', '3', '--starts', '1/1h');
    const type = `charge-${kind}`;
    const ids = [await submit('--type', type, '--limit-key', name), await submit('--type', type, '--limit-key', name)];
    await qo('worker', '--exec', `${type}=cat`, '--exit-when-idle', '1s');
    const statuses = await Promise.all(ids.map(async (id) => JSON.parse(await qo('status', id, '--json')).status));
    const waiting = ids[statuses.indexOf('pending')];
    assert.deepEqual([...statuses].sort(), ['completed', 'pending'], 'the limit lets one of them start');
    const page = await open(`tasks/${waiting}`);
    await shows(page, `limit ${name}: 1 of 1 started, the next at `, '#main');
    assert.equal(await fact(page, 'Limit key'), name);
    assert.equal((await fact(page, 'Waits for')).replace(/\d{4}-[\dT:.-]+Z$/, 'TIME'), `limit ${name}: 1 of 1 started, the next at TIME`);
    await checkAccess(page, `a task that waits for a limit on a ${kind}`);
    await screenshot(page, `limited-${kind}`);
    await visit(page, '#/queues');
    const row = page.locator('tr').filter({ has: page.locator('th', { hasText: new RegExp(`^${name}$`) }) });
    await row.waitFor();
    assert.deepEqual(await row.locator('td').allInnerTexts(), [`key ${name}`, '3', '1 in 1 h', '0 of 3 running, 1 of 1 started']);
    await closePage(page);
  });

  test(`groups and their weights are shown on a ${kind}`, async () => {
    const queue = `imports-${kind}`;
    await qo('queue', 'set', queue, '--weight', 'acme=3', '--weight', 'globex=2', '--max-waiting', '5000');
    const id = await submit('--type', 'import', '--queue', queue, '--group', 'acme');
    const page = await open(`tasks/${id}`);
    await shows(page, 'acme', '#main');
    assert.equal(await fact(page, 'Group'), 'acme');
    await visit(page, '#/queues');
    await shows(page, 'at most 5,000 waiting, turns: acme 3, globex 2', '#main');
    await checkAccess(page, `weights of groups on a ${kind}`);
    await screenshot(page, `weights-${kind}`);
    // The form has a group where the source can rank the task.
    await visit(page, `#/tasks/${id}`);
    await page.getByRole('button', { name: 'Duplicate…' }).click();
    if (kind === 'server') {
      assert.equal(await page.getByLabel('Group').inputValue(), 'acme');
      await page.getByLabel('Group').fill('globex');
      await page.locator('dialog footer').getByRole('button', { name: 'Submit' }).click();
      await page.waitForFunction((before) => /tasks\/[0-9a-f-]{36}/.test(location.hash) && !location.hash.includes(before), id);
      await shows(page, 'globex', '#main');
      assert.equal(await fact(page, 'Group'), 'globex');
    } else {
      await shows(page, 'The group acme is not kept', 'dialog');
      await page.keyboard.press('Escape');
    }
    await closePage(page);
  });

  test(`a task says that its queue or its type is paused, on a ${kind}`, async () => {
    const [queue, type] = [`paused-${kind}`, `fragile-${kind}`];
    const ids = [await submit('--type', 'work', '--queue', queue), await submit('--type', type)];
    await qo('pause', queue, '--reason', 'the relay is down');
    await qo('pause', '--type', type);
    const page = await open(`tasks/${ids[0]}`);
    await shows(page, 'its queue to be resumed, paused by ada@laptop: the relay is down', '#main');
    await screenshot(page, `paused-${kind}`);
    await visit(page, `#/tasks/${ids[1]}`);
    await shows(page, 'its type to be resumed, paused by ada@laptop', '#main');
    await closePage(page);
  });
}

// A task that a later version of qo wrote, in a bucket: the pages name it, and leave it as it is.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';

import { checkAccess, closePage, openDashboard, screenshot, shows, visit } from '../support/browser.js';
import { setUp } from '../support/setup.js';

let stage;
const TIME = new Date(Date.now() - 60_000).toISOString();
const record = (more) => {
  const id = randomUUID();
  return { id, task_type: 'report', shard: id[0], queue: 'default', status: 'failed', last_error: 'no', available_at: TIME, created_at: TIME, updated_at: TIME, completed_at: TIME, input: 1, events: [], ...more };
};
const later = record({ min_reader: 99, status: 'failed' });
const plain = record({});

before(async () => {
  stage = await setUp('later', { versioned: false, objects: [later, plain].map((task) => ({ key: `tasks/${task.id[0]}/${task.id}.json`, body: JSON.stringify(task) })) });
});
after(() => stage?.close());

test('a task of a later version is named in the list, explained on its page, and offers no action', async () => {
  const page = await openDashboard(stage, { go: 'tasks' });
  await shows(page, plain.id.slice(0, 8), '.tasks-table');
  assert.equal(await page.locator('.tasks-table tbody tr').count(), 1);
  await shows(page, '1 task cannot be read', '#main');
  await checkAccess(page, 'a list with an unreadable task');
  await screenshot(page, 'later-record');
  // A list of nothing else does not claim that there is no task.
  await visit(page, `#/tasks?q=${later.id.slice(0, 7)}`);
  await shows(page, 'No readable task on this page', '#main');
  await shows(page, '1 task cannot be read', '#main');
  assert.equal(await page.getByText('No task matches').count(), 0);
  await page.getByRole('link', { name: later.id.slice(0, 8) }).click();
  await shows(page, 'The record needs a newer version of qo: it is for reader 99', '.problem');
  await shows(page, 'qo ui deploy', '.problem');
  for (const name of ['Replay', 'Archive', 'Duplicate…']) assert.equal(await page.getByRole('button', { name, exact: true }).count(), 0, name);
  assert.equal(await stage.s3.get(stage.bucket, `tasks/${later.id[0]}/${later.id}.json`), JSON.stringify(later));
  await closePage(page);
});

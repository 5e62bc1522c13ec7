// The page of a task, as far as it needs no browser.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SourceError } from '../../js/source.js';
import { TaskView } from '../../js/views/task.js';

const ID = '550e8400-e29b-41d4-a716-446655440000';

function viewOf(waitsFor) {
  const source = { get: async () => ({ id: ID, status: 'pending', revision: 1 }), waitsFor };
  return new TaskView({ app: { source }, path: ['tasks', ID], params: new URLSearchParams() });
}

for (const error of [new SyntaxError('damaged'), new SourceError('denied', 'no LIST'), new SourceError('not_found', 'no such route'), new SourceError('unavailable', 'later')]) {
  test(`a task is shown although it is unknown what it waits for: ${error.message}`, async (t) => {
    t.mock.method(console, 'warn', () => undefined);
    let isBroken = false;
    const view = viewOf(async () => {
      if (isBroken) throw error;
      return { reason: 'limit' };
    });
    await view.load();
    assert.deepEqual([view.task.id, view.gone, view.waitsFor], [ID, undefined, { reason: 'limit' }]);
    isBroken = true;
    await view.load();
    assert.deepEqual([view.task.id, view.gone, view.waitsFor], [ID, undefined, undefined]);
  });
}

test('a session that expires while the reason is read leads back to the form', async () => {
  const expired = new SourceError('expired', 'the session has expired');
  await assert.rejects(viewOf(async () => { throw expired; }).load(), expired);
});

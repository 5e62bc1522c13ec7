// The dashboard writes what the core would, to the byte.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { pendingKey, staleKeys } from '../../js/record/keys.js';
import { setPaused } from '../../js/record/queues.js';
import { TaskRecord } from '../../js/record/record.js';
import { apply, possibleActions, Rejected, submit } from '../../js/record/transitions.js';

const vectors = (name) => JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), 'utf8'));

test('every transition is the one of the core', () => {
  let accepted = 0;
  const { op, tasks, cases, ...texts } = vectors('transitions');
  for (const { task, action, reason, now, outcome } of cases) {
    const label = `${action} of ${task} at ${now}`;
    const record = TaskRecord.read(tasks[task]);
    const at = Date.parse(now);
    const change = () => apply(record, { kind: action, reason: texts[reason] }, op, at);
    assert.equal(possibleActions(record.view(), at)[action], outcome.rejected === undefined, label);
    if (outcome.rejected !== undefined) {
      assert.throws(change, (error) => error instanceof Rejected && error.message === outcome.rejected, label);
      continue;
    }
    accepted += 1;
    const after = change();
    assert.equal(after.write(), outcome.after, label);
    assert.equal(pendingKey(after.view(), at) ?? null, outcome.put, label);
    assert.deepEqual(staleKeys(record.view(), after.view(), at), outcome.stale, label);
    assert.equal(TaskRecord.read(after.write()).write(), outcome.after, 'what was written reads back as it is');
    assert.ok(after.carries(op) && !record.carries(op), label);
  }
  assert.ok(accepted > 30, `${accepted} accepted`);
});

test('a new task is the one of the core', () => {
  for (const { name, id, op, now, request, record, put } of vectors('submits')) {
    const at = Date.parse(now);
    const made = submit(request, id, op, at);
    assert.equal(made.write(), record, name);
    assert.equal(pendingKey(made.view(), at), put, name);
  }
});

test('paused queues are written as the engine does', () => {
  for (const { before, queue, paused, op, now, after } of vectors('pauses')) {
    assert.equal(setPaused(before ?? undefined, queue, paused, op, Date.parse(now)), after);
  }
});

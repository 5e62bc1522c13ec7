// What is used of a limit.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { limitApplies, limitRecordKey, limitUsage, limitWait } from '../../js/record/limit_usage.js';
import { usedText } from '../../js/views/queues.js';

const now = Date.parse('2026-11-17T05:20:00.000Z');
const limit = { name: 'stripe', limit_key: 'stripe', concurrent: 5, starts: { max: 100, window_ms: 60_000 } };

test('slots and starts are counted from the record', () => {
  const text = JSON.stringify({
    limit: 'stripe',
    holders: [{ task: 'a', lease: 'b', revision: 1, until: '2026-11-17T05:21:00.000Z' }],
    starts: [['2026-11-17T05:18:59.999Z', 7], ['2026-11-17T05:19:00.000Z', 40], ['2026-11-17T05:19:00.001Z', 2], ['2026-11-17T05:20:00.500Z', 3]],
    later: 1,
  });
  assert.deepEqual(limitUsage(limit, text, now), { running: 1, started: 5 });
  assert.deepEqual(limitUsage({ queue: 'q', concurrent: 5 }, text, now), { running: 1 });
  assert.deepEqual(limitUsage(limit, undefined, now), { running: 0, started: 0 });
  assert.equal(limitRecordKey('stripe'), 'limits/stripe.json');
});

test('the use of a limit is one line', () => {
  assert.equal(usedText({ ...limit, usage: { running: 1, started: 12 } }), '1 of 5 running, 12 of 100 started');
  assert.equal(usedText({ queue: 'q', concurrent: 5, usage: { running: 5 } }), '5 of 5 running');
  assert.equal(usedText(limit), undefined, 'an older server, or a page that may not read it');
});

test('a task waits for a limit that has no room', () => {
  const holders = Array.from({ length: 5 }, (_, n) => ({ task: `${n}` }));
  assert.deepEqual(limitWait(limit, JSON.stringify({ holders }), now), { reason: 'limit', limit: 'stripe', bound: 'concurrent', used: 5, max: 5 });
  assert.equal(limitWait(limit, JSON.stringify({ holders: holders.slice(1) }), now), undefined);
  assert.equal(limitWait(limit, undefined, now), undefined, 'nobody has used it');
  // The first step no longer counts, and the next one alone makes no room, because the limit was higher before.
  const starts = [['2026-11-17T05:18:59.000Z', 9], ['2026-11-17T05:19:10.000Z', 1], ['2026-11-17T05:19:20.000Z', 2]];
  const lowered = { name: 'mail', task_type: 'mail', starts: { max: 2, window_ms: 60_000 } };
  assert.deepEqual(limitWait(lowered, JSON.stringify({ starts }), now), { reason: 'limit', limit: 'mail', bound: 'starts', used: 3, max: 2, until: '2026-11-17T05:20:20.000Z' });
});

test('a limit applies to tasks that match all that it names', () => {
  const task = { queue: 'default', task_type: 'charge', limit_key: 'stripe' };
  assert.ok(limitApplies(limit, task));
  assert.ok(limitApplies({ queue: 'default', task_type: 'charge' }, task));
  assert.ok(!limitApplies({ queue: 'default', task_type: 'refund' }, task));
  assert.ok(!limitApplies(limit, { queue: 'default', task_type: 'charge' }));
});

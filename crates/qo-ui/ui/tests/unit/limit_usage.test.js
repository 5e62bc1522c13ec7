// What is used of a limit.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { limitRecordKey, limitUsage } from '../../js/record/limit_usage.js';
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

// Settings of queues: what a submit on a bucket takes from them, and how the page shows them.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { completed, queueOfSettings, queueSettingsKey, readQueueSettings } from '../../js/record/queue_settings.js';
import { apply, submit } from '../../js/record/transitions.js';

const OP = '550e8400-e29b-41d4-a716-446655440000';
const record = (body) => `{"revision":1,"op_id":"${OP}","updated_at":"2026-11-17T12:00:00.000Z","body":${body}}`;
const REQUEST = { task_type: 'send', queue: 'mail', priority: 5, delay_ms: 0, tags: [], input: 'null' };

test('settings are read from their record', () => {
  assert.deepEqual(readQueueSettings(record('{"max_retries":0,"later":1}')), { max_retries: 0, later: 1 });
  assert.deepEqual(readQueueSettings(record('null')), {}, 'they were removed');
  assert.equal(queueSettingsKey('mail.v2'), 'meta/settings/queues/mail.v2.json');
  assert.equal(queueOfSettings(queueSettingsKey('mail.v2')), 'mail.v2');
});

test('a submit takes from them what it does not say itself', () => {
  const settings = { max_retries: 0, timeout_seconds: 60, max_wait_ms: 900 };
  assert.deepEqual(completed(REQUEST, {}), { ...REQUEST, timeout_seconds: 300, max_retries: 3, max_wait_ms: undefined });
  const task = submit(completed(REQUEST, settings), OP, OP, 0).view();
  assert.deepEqual([task.max_retries, task.timeout_seconds, task.max_wait_ms], [0, 60, 900]);
  const own = submit(completed({ ...REQUEST, max_retries: 7, timeout_seconds: 8 }, settings), OP, OP, 0).view();
  assert.deepEqual([own.max_retries, own.timeout_seconds], [7, 8]);
});

test('a replayed task may wait for ever', () => {
  const record = submit(completed(REQUEST, { max_wait_ms: 900 }), OP, OP, 0);
  record.set('status', 'failed');
  const replayed = apply(record, { kind: 'replay' }, OP, 1000);
  assert.equal(replayed.view().max_wait_ms, undefined);
});

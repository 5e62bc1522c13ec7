// Records of schedules: the dashboard changes only what it must, and keeps every other byte.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { carriesOp, readSchedule, recordTrigger, requestOf, scheduleKey, scheduleName, setSchedulePaused } from '../../js/record/schedules.js';
import { submit } from '../../js/record/transitions.js';
import { keysOf, ruleOf } from '../../js/views/schedules.js';

const FIRST = '550e8400-e29b-41d4-a716-446655440000';
const SECOND = '650e8400-e29b-41d4-a716-446655440000';
const TASK = '750e8400-e29b-41d4-a716-446655440000';
const NOW = Date.parse('2026-11-17T12:00:10.500Z');
const TASK_TEXT = '{"task_type":"report","input":{"n": 1.0, "big":123456789012345678901},"queue":"eu","tags":["a"],"retry_policy":{"multiplier":3.0}}';

function record({ spec = '"every_ms":60000,"overlap":"skip","catch_up_ms":3600000', body = '', task = TASK_TEXT } = {}) {
  return `{"revision":3,"op_id":"${FIRST}","updated_at":"2026-11-17T12:00:00.000Z","body":{"spec":{${spec},"task":${task}},"generation":"${SECOND}","created_at":"2026-11-17T11:00:00.000Z","through":"2026-11-17T12:00:00.000Z","next":"2026-11-17T12:01:00.000Z"${body},"fired":7,"skipped":1,"missed":0,"later":1.0},"newer":[1.0]}`;
}

test('a schedule is read with its times', () => {
  const schedule = readSchedule('nightly', record({ body: `,"recent":[{"tick":"2026-11-17T12:00:00.000Z","task":"${TASK}","at":"2026-11-17T12:00:00.100Z"}]` }));
  assert.equal(schedule.next, Date.parse('2026-11-17T12:01:00Z'));
  assert.deepEqual([schedule.fired, schedule.last.task, schedule.last.tick], [7, TASK, Date.parse('2026-11-17T12:00:00Z')]);
  assert.equal(readSchedule('gone', `{"revision":4,"op_id":"${FIRST}","updated_at":"2026-11-17T12:00:00.000Z","body":null}`), undefined);
  assert.equal(scheduleName(scheduleKey('nightly')), 'nightly');
});

test('a pause and a resume change what the engine would change', () => {
  const before = record();
  assert.equal(setSchedulePaused(before, false, SECOND, NOW), undefined, 'it is not paused');
  const paused = setSchedulePaused(before, true, SECOND, NOW);
  assert.ok(carriesOp(paused, SECOND) && carriesOp(paused, FIRST));
  const read = JSON.parse(paused);
  assert.deepEqual([read.revision, read.op_id, read.recent_ops, read.updated_at], [4, SECOND, [FIRST], '2026-11-17T12:00:10.500Z']);
  assert.equal(read.body.paused_at, '2026-11-17T12:00:10.500Z');
  for (const part of [TASK_TEXT, '"later":1.0', '"newer":[1.0]']) assert.ok(paused.includes(part), part);
  const resumed = JSON.parse(setSchedulePaused(paused, false, TASK, NOW + 120_000)).body;
  assert.equal(resumed.paused_at, undefined);
  assert.equal(resumed.through, '2026-11-17T12:02:10.500Z', 'the ticks of the pause are left out');
  assert.equal(resumed.next, '2026-11-17T12:03:00.000Z');
  const cron = setSchedulePaused(record({ spec: '"cron":"0 * * * *","overlap":"allow","catch_up_ms":3600000' }), true, SECOND, NOW);
  assert.equal(JSON.parse(setSchedulePaused(cron, false, TASK, NOW + 1)).body.next, undefined, 'only the engine reads cron lines');
});

test('a triggered run is recorded, and its task has the input byte for byte', () => {
  const request = requestOf('nightly', record());
  assert.equal(request.input, '{"n": 1.0, "big":123456789012345678901}');
  assert.deepEqual([request.task_type, request.queue, request.priority, request.tags], ['report', 'eu', 5, ['a', 'schedule:nightly']]);
  assert.equal(request.retry_policy, '{"multiplier":3.0}');
  const body = JSON.parse(recordTrigger(record(), TASK, SECOND, NOW)).body;
  assert.deepEqual(body.recent, [{ tick: '2026-11-17T12:00:10.500Z', kind: 'trigger', task: TASK, at: '2026-11-17T12:00:10.500Z' }]);
  assert.deepEqual([body.fired, body.open], [8, [TASK]]);
});

test('a triggered run keeps the limit key and the expiry of its schedule', () => {
  const request = requestOf('nightly', record({ task: '{"task_type":"report","limit_key":"stripe","expires_in_ms":60000}' }));
  const task = submit({ ...request, timeout_seconds: 300, max_retries: 3 }, TASK, SECOND, NOW).view();
  assert.deepEqual([task.limit_key, task.min_reader, task.expires_at], ['stripe', 3, NOW + 60_000]);
  assert.equal(requestOf('nightly', record()).limit_key, undefined);
});

test('a page cannot trigger a schedule whose tasks have an ordering key, because it cannot change the line', () => {
  assert.throws(() => requestOf('nightly', record({ task: '{"task_type":"report","ordering_key":"account-17"}', body: ',"min_reader":2' })),
    (error) => error.kind === 'bad_request' && error.message.includes('ordering key') && error.command === 'qo schedule trigger nightly');
});

test('a page leaves schedules of later versions alone', () => {
  assert.throws(() => requestOf('nightly', record({ body: ',"min_reader":3' })), /newer version/);
  assert.equal(requestOf('nightly', record({ body: ',"min_reader":2' })).task_type, 'report');
});

test('the rule of a schedule is shown', () => {
  assert.equal(ruleOf({ cron: '30 2 * * *', time_zone: 'Europe/Berlin' }), '30 2 * * * (Europe/Berlin)');
  assert.equal(ruleOf({ at: ['2027-01-01T00:00:00Z'] }), 'once');
  assert.equal(ruleOf({ at: ['2027-01-01T00:00:00Z', '2027-01-02T00:00:00Z'] }), '2 times');
});

test('the keys and the group of a schedule are shown', () => {
  assert.deepEqual(keysOf({ task_type: 'report' }), []);
  assert.deepEqual(keysOf({ ordering_key: 'account-17', limit_key: 'stripe', fairness_group: 'acme' }), ['ordering key account-17', 'limit key stripe', 'group acme']);
  assert.deepEqual(keysOf({ ordering_key: 'account-17', ordering_on_failure: 'stop' }), ['ordering key account-17 (stops on failure)']);
});

test('a page cannot trigger a schedule whose tasks have a group, because it cannot rank them', () => {
  assert.throws(() => requestOf('nightly', record({ task: '{"task_type":"report","fairness_group":"acme"}' })),
    (error) => error.kind === 'bad_request' && error.command === 'qo schedule trigger nightly');
});

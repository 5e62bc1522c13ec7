// Units below the pages.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { activityOf, countedActivity, percentiles, together } from '../../js/activity.js';
import { errorPattern, groupFailures } from '../../js/failures.js';
import * as format from '../../js/format.js';
import { canonical, elements, fields, floatText, isJson } from '../../js/json/scan.js';
import { countsOf, queuesOf, ServerOverview } from '../../js/http/overview.js';
import { isTaskId, keyFromTime, newTaskId, readEntry, readLease, taskIdOf, timeOfId } from '../../js/record/keys.js';
import { READER, TaskRecord, Unreadable } from '../../js/record/record.js';
import { payloadKey, shownError, shownValue } from '../../js/record/sealed.js';
import { cutText } from '../../js/record/transitions.js';
import { readRoute } from '../../js/router.js';
import { combine, describe, matches, parseSearch } from '../../js/search.js';
import { StoreClock } from '../../js/s3/clock.js';
import { readError, readList, readVersions } from '../../js/s3/xml.js';
import { mapConcurrently } from '../../js/source.js';
import { Throttle } from '../../js/throttle.js';
import { foreignHost } from '../../js/views/confirm_link.js';
import { difference } from '../../js/views/versions.js';
import { guessConnection } from '../../js/views/connect.js';
import { problemOf, whatFollows } from '../../js/views/submit.js';
import { actionOf, isFault } from '../../js/widgets/timeline.js';

test('JSON is split into its parts byte for byte', () => {
  const text = ' {"a" : 1.10 , "b\\"{":[1, {"c":"]"}] ,"e":{}, "d":"x\\\\"} ';
  assert.deepEqual(fields(text), [['a', '1.10'], ['b"{', '[1, {"c":"]"}]'], ['e', '{}'], ['d', '"x\\\\"']]);
  assert.deepEqual(elements('[ 1 ,"," , [2,3] ,null]'), ['1', '","', '[2,3]', 'null']);
  assert.deepEqual([elements('[]'), fields('{ }')], [[], []]);
  assert.equal(canonical('{ "b":1, "a": [2.50, 1e2, "ä\\u0041"] }'), '{"a":[2.5,100.0,"äA"],"b":1}');
  assert.deepEqual(['2', '0.25', '1e3'].map(floatText), ['2.0', '0.25', '1000.0']);
  assert.ok(isJson('null') && !isJson('{') && !isJson(''));
});

test('inconsistent records are rejected', () => {
  const record = { id: '550e8400-e29b-41d4-a716-446655440000', task_type: 't', shard: '5', status: 'pending', available_at: '2027-01-15T08:00:00.000Z', created_at: '2027-01-15T08:00:00.000Z', updated_at: '2027-01-15T08:00:00.000Z' };
  assert.equal(TaskRecord.read(JSON.stringify(record)).view().queue, 'default');
  for (const wrong of [{ shard: '6' }, { status: 'done' }, { priority: 10 }, { lease_id: 'x' }, { status: 'running' }, { available_at: 'soon' }, { id: 'x' }, { input: 1, input_ref: { size: 1, sha256: 'x' } }, { events: 3 }]) {
    assert.throws(() => TaskRecord.read(JSON.stringify({ ...record, ...wrong })), Unreadable, JSON.stringify(wrong));
  }
  for (const text of ['', '[]', '{', '3', '{"id":"a","id":"b"}']) assert.throws(() => TaskRecord.read(text), Unreadable, text);
});

test('a record of a later version is unreadable, whatever else it contains', () => {
  const record = { id: '550e8400-e29b-41d4-a716-446655440000', task_type: 't', shard: '5', status: 'pending', available_at: '2027-01-15T08:00:00.000Z', created_at: '2027-01-15T08:00:00.000Z', updated_at: '2027-01-15T08:00:00.000Z' };
  const withReader = (reader, more = {}) => `${JSON.stringify({ ...record, ...more }).slice(0, -1)},"min_reader":${reader}}`;
  for (const reader of ['0', '1', String(READER)]) assert.equal(TaskRecord.read(withReader(reader)).view().task_type, 't', reader);
  const isNewer = (error) => error instanceof Unreadable && /needs a newer version of qo/.test(error.message) && /qo ui deploy/.test(error.command);
  for (const reader of [String(READER + 1), '99999999999999999999', '-1', '4.0', '"4"', '[4]', 'null', 'true']) {
    assert.throws(() => TaskRecord.read(withReader(reader)), isNewer, reader);
    assert.throws(() => TaskRecord.read(withReader(reader, { status: 'resting' })), isNewer, reader);
  }
});

test('texts are truncated at character boundaries', () => {
  assert.equal(cutText('short', 5), 'short');
  assert.equal(cutText('longer', 5), 'lo…');
  for (let max = 3; max < 40; max += 1) {
    const cut = cutText('äöü€😀'.repeat(20), max);
    assert.ok(Buffer.byteLength(cut) <= max && cut.endsWith('…') && !cut.includes('\ufffd'), cut);
  }
});

test('keys are parsed', () => {
  const id = '550e8400-e29b-41d4-a716-446655440000';
  assert.equal(taskIdOf(`tasks/5/${id}.json`), id);
  assert.equal(taskIdOf('tasks/5/x.json'), undefined);
  assert.deepEqual(readEntry(`ready/default/send_email/5/001763238840123/${id}`), { id, queue: 'default', type: 'send_email', priority: 5, availableAt: 1_763_238_840_123 });
  assert.deepEqual(readEntry(`later/001763238840123/${id}/q/t.x/0`), { id, queue: 'q', type: 't.x', priority: 0, availableAt: 1_763_238_840_123 });
  assert.deepEqual(readLease(`leases/5/0029387314/${id}/2`), { minute: 29_387_314, id, attempt: 2 });
  assert.equal(readEntry('ready/x'), undefined);
});

test('searches are parsed and invalid parts are reported', () => {
  assert.deepEqual(parseSearch('type:resize tag:"two words" status:failed,due 55AB').query, { statuses: ['failed', 'due'], type: 'resize', tag: 'two words', id: '55ab' });
  assert.deepEqual(parseSearch('').query, { statuses: [] });
  for (const [text, named] of [['colour:red', 'colour'], ['hello', 'hello'], ['status:done', 'done'], ['shard:10', 'shard'], ['type:', 'type'],
    ['-text:x', 'exclude'], ['-oops', 'oops'], ['type:*', 'star'], ['type:a*b', 'star'], ['type:a,', 'empty'], ['since:soon', 'time'], ['since:1h until:2h', 'before'], ['-type:a -type:b', 'twice'], ['type:a type:b', 'twice'], ['55 66', 'twice'], ['status:failed status:due', 'twice'], ['tag:"a', 'quotation'], ['shard:a id:55', 'shard a']]) {
    const { problems } = parseSearch(text);
    assert.ok(problems.length === 1 && problems[0].includes(named), `${text}: ${problems}`);
  }
  assert.deepEqual(combine('failed', 'a', { statuses: [] }).statuses, ['failed']);
  assert.deepEqual(combine('failed', 'a', { statuses: ['due'] }).statuses, ['due'], 'the search overrides the tab');
  const task = { id: '55ab', shard: '5', status: 'pending', available_at: 5000, task_type: 't', queue: 'q', tags: ['x'] };
  assert.ok(matches({ statuses: ['due'], tag: 'x' }, task, 10_000) && !matches({ statuses: ['due'] }, task, 0) && matches({ statuses: ['scheduled'] }, task, 0));
});

test('responses of S3 are parsed', () => {
  const list = readList('<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a&amp;b</Key><LastModified>2026-11-16T00:18:04Z</LastModified><ETag>&#34;x&#34;</ETag><Size>3</Size></Contents><CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes></ListBucketResult>');
  assert.deepEqual(list.entries, [{ key: 'a&b', etag: '"x"', size: 3, modified: Date.parse('2026-11-16T00:18:04Z') }]);
  assert.deepEqual([list.truncated, list.folders], [true, ['p/']]);
  const { versions } = readVersions('<R><Version><Key>k</Key><VersionId>1</VersionId><IsLatest>true</IsLatest><LastModified>2026-11-16T00:18:04Z</LastModified></Version><DeleteMarker><Key>k</Key><VersionId>2</VersionId></DeleteMarker></R>');
  assert.deepEqual(versions.map(({ version, latest, deleted }) => [version, latest, deleted]), [['1', true, false], ['2', false, true]]);
  assert.deepEqual(readError('<Error><Code>SlowDown</Code><Message>a &lt;b&gt;</Message></Error>'), { code: 'SlowDown', message: 'a <b>' });
  assert.deepEqual(readError('no xml'), { code: '', message: '' });
});

test('the store\'s clock is estimated from whole seconds', () => {
  for (const offset of [-90_000, 0, 90_000]) {
    const clock = new StoreClock();
    const start = Date.now();
    for (let request = 0; request < 200; request += 1) {
      const sent = start + request * 137;
      clock.observe(sent, sent + 30, Math.floor((sent + 10 + offset) / 1000) * 1000);
    }
    assert.ok(Math.abs(clock.now() - Date.now() - offset) <= 60, String(clock.now() - Date.now()));
  }
});

test('numbers and times are formatted', () => {
  const cases = [[340, '340 ms'], [1000, '1 s'], [1500, '1.5 s'], [12_000, '12 s'], [200_000, '3 min 20 s'], [7_500_000, '2 h 5 min'], [360_000_000, '4 d 4 h']];
  for (const [millis, text] of cases) assert.equal(format.duration(millis), text);
  assert.deepEqual([format.relative(5000, 0), format.relative(0, 5000), format.relative(0, 7_200_000), format.relative(0, 100)], ['in 5 s', '5 s ago', '2 h ago', 'now']);
  assert.deepEqual([format.count({ value: 1234, how: 'estimate' }), format.count({ value: 3000, how: 'at least' }), format.count({ value: 123_456, how: 'exact' })], ['~1,200', '3,000+', '123.5K']);
  assert.deepEqual([format.dollars(0), format.dollars(0.00018), format.dollars(1.5)], ['$0', '$0.00018', '$1.50']);
});

test('activity is computed from tasks', () => {
  const now = 10_000_000;
  const task = (status, ago, more = {}) => ({ status, completed_at: now - ago, started_at: now - ago - 100, available_at: now - ago - 150, created_at: now - ago - 200, updated_at: now - ago, task_type: 't', queue: 'q', events: [], ...more });
  const activity = activityOf([task('completed', 1000), task('completed', 2000), task('failed', 3000)], { now, share: 1 });
  assert.deepEqual([activity.ended, activity.latency.count, activity.latency.run.p50, activity.types[0].failed], [3, 2, 100, 1]);
  assert.ok(Math.abs(activity.failureShare - 1 / 3) < 1e-9);
  assert.equal(activity.bars.reduce((sum, bar) => sum + bar.completed + bar.failed, 0), 3);
  // How an archived task ended is known from its events, which the lists of a server omit.
  const archived = (events) => ({ ...task('archived', 1000), events });
  const partly = activityOf([archived([{ from: 'completed', to: 'archived' }]), archived([]), task('failed', 1000)], { now, share: 1 });
  assert.deepEqual([partly.ended, partly.failureShare], [2, 0.5]);
  const sampled = activityOf([task('completed', 1000)], { now, share: 0.5, from: now - 400_000, basis: {} });
  assert.equal(sampled.bars.at(-1).completed, 2, 'a sample of half the tasks is scaled up');
  assert.equal(percentiles([]), undefined);
});

test('differences are listed by path', () => {
  assert.deepEqual(difference('{"a":1,"b":{"c":[1,2]},"e":0}', '{"a":1,"b":{"c":[1,3,{"d":4}]},"f":null}'), [
    { path: 'b.c[1]', before: '2', after: '3' },
    { path: 'b.c[2]', before: undefined, after: '{"d":4}' },
    { path: 'e', before: '0', after: undefined },
    { path: 'f', before: undefined, after: 'null' },
  ]);
});

test('the connection is guessed from the page URL', () => {
  assert.deepEqual(guessConnection(new URL('http://127.0.0.1:9000/b/p/q/ui/index.html')), { endpoint: 'http://127.0.0.1:9000', bucket: 'b', prefix: 'p/q', region: 'us-east-1' });
  assert.deepEqual(guessConnection(new URL('https://b.s3.eu-central-1.amazonaws.com/ui/index.html')), { endpoint: 'https://s3.eu-central-1.amazonaws.com', bucket: 'b', region: 'eu-central-1', prefix: '', virtualHost: true });
  assert.deepEqual(guessConnection(new URL('http://localhost:1/elsewhere.html')), {});
});

test('work runs with limited concurrency and results are in order', async () => {
  let running = 0;
  let most = 0;
  const results = await mapConcurrently([30, 10, 20, 5], 2, async (millis) => {
    running += 1;
    most = Math.max(most, running);
    await new Promise((done) => setTimeout(done, millis));
    running -= 1;
    return millis;
  });
  assert.deepEqual([results, most], [[30, 10, 20, 5], 2]);
});

test('the action of an event comes from the record', () => {
  for (const action of ['submitted', 'claimed', 'released', 'snoozed', 'completed', 'failed', 'lease_expired', 'expired', 'cancel_requested', 'cancelled', 'run_now', 'replayed', 'redriven', 'archived', 'unarchived']) {
    assert.equal(actionOf({ action, from: 'running', to: 'pending', error: 'any text' }), action);
  }
  const ended = (action) => ({ action, from: 'running', to: 'pending', error: 'why' });
  assert.ok(isFault(ended('failed')) && isFault(ended('lease_expired')) && !isFault(ended('released')) && !isFault(ended('snoozed')));
});

test('the action of an event without the field is inferred', () => {
  for (const [from, to, error, action] of [
    [undefined, 'pending', undefined, 'submitted'],
    ['pending', 'running', undefined, 'claimed'],
    ['running', 'running', 'stop', 'cancel_requested'],
    ['running', 'pending', 'released by its worker', 'released'],
    ['running', 'pending', 'snoozed', 'snoozed'],
    ['running', 'pending', 'boom', 'failed'],
    ['running', 'completed', undefined, 'completed'],
    ['running', 'failed', 'boom', 'failed'],
    ['pending', 'cancelled', 'cancelled', 'cancelled'],
    ['pending', 'pending', 'made due at once', 'run_now'],
    ['failed', 'pending', undefined, 'replayed'],
    ['failed', 'archived', undefined, 'archived'],
    ['archived', 'failed', undefined, 'unarchived'],
  ]) {
    assert.equal(actionOf({ from, to, error }), action);
    assert.equal(actionOf({ from, to, error, action: 'of a later version' }), action);
  }
});

test('a query is restated in words', () => {
  const words = (tab, text) => describe(combine(tab, '', parseSearch(text).query));
  assert.equal(words('all', ''), 'all tasks of every status');
  assert.equal(words('failed', ''), 'failed tasks');
  assert.equal(words('failed', 'type:resize queue:bulk tag:"two words"'), 'failed tasks of type resize in queue bulk with tag two words');
  assert.equal(words('failed', 'status:due,running'), 'due or running tasks', 'the search overrides the tab');
  assert.equal(words('all', 'dead'), 'tasks of every status with an id that starts with dead');
});

test('a throttle runs once per pause, however many notifications come', () => {
  let now = 0;
  const planned = [];
  const clock = { now: () => now, set: (run, ms) => planned.push({ run, at: now + ms }), clear() {} };
  const runs = [];
  const throttle = new Throttle(() => runs.push(now), 1000, clock);
  for (; now < 10_000; now += 2) {
    while (planned[0]?.at <= now) planned.shift().run();
    throttle.notify();
  }
  assert.ok(runs.length >= 10 && runs.length <= 11, `${runs.length} runs`);
  assert.ok(runs.slice(1).every((at, index) => at - runs[index] <= 1002), 'it is never postponed');
  throttle.done(4000);
  planned.length = 0;
  throttle.notify();
  now += 1;
  throttle.notify();
  assert.ok(planned.length <= 1, 'one run is planned');
});

test('a text is searched in errors and inputs', () => {
  const { query, problems } = parseSearch('text:"No Route" type:mail');
  assert.deepEqual([query.text, query.type, problems], ['No Route', 'mail', []]);
  assert.match(describe(query), /with "No Route" in the error or input/);
  const task = { task_type: 'mail', status: 'failed', tags: [], id: 'a' };
  assert.ok(matches(query, { ...task, last_error: 'no route to host' }, 0));
  assert.ok(matches(query, { ...task, input: '{"text":"NO ROUTE"}' }, 0));
  assert.ok(!matches(query, { ...task, last_error: 'no' }, 0));
  assert.equal(parseSearch(`text:${'x'.repeat(300)}`).problems.length, 1);
});

test('error patterns are those of the command', () => {
  const vectors = JSON.parse(readFileSync(new URL('../vectors/errors.json', import.meta.url), 'utf8'));
  for (const [error, pattern] of vectors) assert.equal(errorPattern(error), pattern, JSON.stringify(error));
});

test('what a server has counted becomes bars, rates and latencies', () => {
  const now = Date.parse('2026-11-17T05:30:20Z');
  const time = (millis) => new Date(millis).toISOString();
  const from = Date.parse('2026-11-17T04:31:00Z');
  const latency = { count: 90, mean_ms: 5, p50_ms: 4, p95_ms: 9, p99_ms: 12, max_ms: 12 };
  const point = (at, completed, failed) => ({ at: time(at), submitted: 0, completed, failed, cancelled: 0, retried: 0 });
  const report = {
    period: 'hour', step_seconds: 60, from: time(from), to: time(now), since: time(now - 10 * 60_000), covers: 'queue', total: latency, run: latency,
    types: [{ queue: 'q', task_type: 't', submitted: 0, completed: 80, failed: 20, cancelled: 0, retried: 0 }],
    points: [point(from + 50 * 60_000, 30, 20), point(from + 59 * 60_000, 50, 0)],
  };
  const activity = countedActivity(report);
  assert.equal(activity.bars.length, 30, 'two minutes in each bar');
  assert.deepEqual([activity.bars[25].failed, activity.bars[29].completed, activity.bars[0].completed], [20, 50, 0]);
  assert.equal(activity.ended, 100);
  assert.equal(activity.rate, 10, 'over the ten minutes that were counted');
  assert.equal(activity.failureShare, 0.2);
  assert.deepEqual(activity.latency.total, { p50: 4, p95: 9, p99: 12, max: 12 });
  assert.equal(activity.latency.wait, undefined);
  assert.equal(activity.queueRates.get('q'), 10);
  assert.equal(activity.since, now - 10 * 60_000);
  assert.equal(countedActivity({ ...report, since: time(from - 1) }).since, undefined);
});

test('failures of the same cause form a group', () => {
  for (const [a, b] of [
    ['card 1234 declined', 'card 99 declined'],
    ['task 550e8400-e29b-41d4-a716-446655440000 not found', 'task 650e8400-e29b-41d4-a716-446655440001 not found'],
    ['lease ended at 2026-11-17T02:00:00.123Z', 'lease ended at 2027-01-01T00:00:00Z'],
    ['digest 9f86d081884c7d65 differs', 'digest 0123456789abcdef differs'],
    ['first line\n  at a.rs:3', 'first line\n  at b.rs:7'],
  ]) assert.equal(errorPattern(a), errorPattern(b));
  assert.notEqual(errorPattern('connection refused'), errorPattern('connection reset'));
  const task = (error, at, type = 't') => ({ last_error: error, updated_at: at, task_type: type });
  const groups = groupFailures([task('n 1', 5), task('n 2', 3, 'u'), task('other', 4), task(undefined, 1)]);
  assert.deepEqual(groups.map(({ pattern, tasks, first, last, example }) => [pattern, tasks.length, first, last, example]), [
    ['n ‹n›', 2, 3, 5, 'n 1'], ['other', 1, 4, 4, 'other'], ['no error text', 1, 1, 1, ''],
  ]);
  assert.deepEqual(groups[0].types, [['t', 1], ['u', 1]]);
});

test('the counts of a server are exact, and bounds are marked', () => {
  const stats = {
    partial: false,
    queues: {
      a: { statuses: { pending: 5000, running: 2, failed: 3 }, oldest_due: '2026-11-17T02:00:00.000Z', types_by_status: { t: { pending: 4000 }, u: { pending: 1000, failed: 3 } } },
      b: { statuses: { pending: 7 }, oldest_due: null },
      c: { statuses: { pending: 1 }, oldest_due: '2026-11-17T02:00:00.000Z' },
    },
  };
  const { counts, total } = countsOf(stats);
  assert.deepEqual([counts.pending, counts.failed, total.value], [{ value: 5008, how: 'exact' }, { value: 3, how: 'exact' }, 5013]);
  const listed = { tasks: [{ queue: 'a', task_type: 't', available_at: 0 }, { queue: 'c', task_type: 't', available_at: 0 }], next: 'x' };
  const queues = queuesOf(stats, listed, 1000);
  assert.deepEqual(queues.get('a').due, { value: 1, how: 'at least' });
  assert.deepEqual([...queues.get('a').types], [['t', 4000], ['u', 1000]]);
  assert.deepEqual([queues.get('b').due, queues.get('b').scheduled], [{ value: 0, how: 'exact' }, { value: 7, how: 'exact' }], 'nothing is due, so all are scheduled');
  assert.deepEqual(queues.get('c').due, { value: 1, how: 'exact' }, 'all of its tasks are listed');
  assert.equal(countsOf({ ...stats, partial: true }).counts.failed.how, 'at least');
});

test('recent figures cover the longest span that is listed completely', async () => {
  const now = 100_000_000;
  // One task a second: an hour has 3,600, a quarter of an hour 900.
  const all = Array.from({ length: 20_000 }, (_, index) => ({ created_at: now - index * 1000, completed_at: now - index * 1000, started_at: now, available_at: now, updated_at: now, status: index % 50 === 0 ? 'failed' : 'completed', task_type: 't', queue: 'q', events: [] }));
  const asked = [];
  const list = async (query, { limit }) => {
    if (query.since === undefined) return { tasks: [] };
    asked.push(now - query.since);
    const found = all.filter((task) => task.created_at > query.since);
    return { tasks: found.slice(0, limit), next: found.length > limit ? 'more' : undefined };
  };
  const { activity } = await new ServerOverview(list).take({ partial: false, queues: {} }, [], now);
  assert.deepEqual(asked, [3_600_000, 900_000]);
  assert.equal(Math.round(activity.rate), 60, 'per minute, not 1,000 in an hour');
  assert.equal(activity.failureShare, 0.02);
  assert.equal(activity.how, 'estimate');
});

test('charts name the queue and the type that their figures are of', async () => {
  const report = (finished) => ({
    from: '2026-11-17T11:00:00Z', to: '2026-11-17T12:00:00Z', since: '2026-11-17T10:00:00Z', step_seconds: 60, period: 'hour', types: [],
    points: [{ at: '2026-11-17T11:30:00Z', completed: finished, failed: 0, cancelled: 0 }],
  });
  const overview = new ServerOverview(async () => ({ tasks: [] }));
  const take = async (options) => (await overview.take({ queues: {} }, [], Date.parse('2026-11-17T12:00:00Z'), options)).activity;
  const ofQueue = await take({ counted: report(5), chosen: { report: report(2), queue: 'mail' } });
  assert.deepEqual([ofQueue.ended, ofQueue.chosen], [2, { queue: 'mail', type: undefined }]);
  // The report of the queue did not arrive, so the figures are those of all.
  const ofAll = await take({ counted: report(5) });
  assert.deepEqual([ofAll.ended, ofAll.chosen], [5, undefined]);
});

test('malformed addresses are read as they are', () => {
  assert.deepEqual(readRoute('#/tasks/%').path, ['tasks', '%']);
  assert.deepEqual(readRoute('#/tasks/%E0%A4%A?q=%').path, ['tasks', '%E0%A4%A']);
  assert.deepEqual(readRoute('').path, []);
});

test('a connection to another host is recognised', () => {
  const page = (host) => ({ host });
  const server = (url) => ({ kind: 'http', url });
  assert.equal(foreignHost(server('https://qo.example'), page('qo.example')), undefined);
  assert.equal(foreignHost(server('https://evil.example'), page('qo.example')), 'evil.example');
  assert.equal(foreignHost(server('https://qo.example:444'), page('qo.example')), 'qo.example:444');
  assert.equal(foreignHost(server('https://qo.example@evil.example'), page('qo.example')), 'evil.example');
  const bucket = { kind: 's3', endpoint: 'https://s3.eu-central-1.amazonaws.com', bucket: 'b' };
  assert.equal(foreignHost(bucket, page('b.s3.eu-central-1.amazonaws.com')), undefined);
  assert.equal(foreignHost(bucket, page('c.s3.eu-central-1.amazonaws.com')), 's3.eu-central-1.amazonaws.com');
});

test('the time in a generated id is read', () => {
  const time = Date.UTC(2026, 10, 17);
  const key = keyFromTime('a', time);
  const id = `${key.slice('tasks/a/'.length)}-8abc-8def-0123456789ab`;
  assert.equal(timeOfId(id), time);
  assert.ok(`tasks/a/${id}.json` > key && keyFromTime('a', time + 1) > `tasks/a/${id}.json`);
  assert.equal(timeOfId('550e8400-e29b-41d4-a716-446655440000'), undefined);
});

test('a new id contains the time, and no other part of it repeats', () => {
  const time = Date.UTC(2026, 10, 18, 12, 34, 56, 789);
  const ids = Array.from({ length: 100 }, () => newTaskId(time + 0.5));
  for (const id of ids) {
    assert.ok(isTaskId(id), id);
    assert.match(id, /^.{8}-.{4}-8.{3}-[89ab]/);
    assert.equal(timeOfId(id), time);
  }
  assert.equal(new Set(ids).size, ids.length);
  assert.ok(new Set(ids.map((id) => id[0])).size > 1);
});

test('the values of a submit form are checked', () => {
  const values = (more) => ({ input: '{}', tags: '', ...more });
  assert.equal(problemOf(values({ tags: 'a, b' })), undefined);
  assert.match(problemOf(values({ input: '{' })), /not valid JSON/);
  assert.match(problemOf(values({ input: '['.repeat(129) + ']'.repeat(129) })), /nested/);
  assert.equal(problemOf(values({ input: JSON.stringify('['.repeat(200)) })), undefined, 'brackets in a string do not nest');
  assert.match(problemOf(values({ tags: Array.from({ length: 17 }, (_, index) => `t${index}`).join() })), /at most 16 tags/);
  assert.match(problemOf(values({ tags: 'ä'.repeat(33) })), /at most 64 bytes/);
});

test('an edited retry cancels a task that stops its line, and archives others', () => {
  const server = { takesOrdering: true };
  const bucket = {};
  const failed = { status: 'failed' };
  const ordered = { ...failed, ordering_key: 'k' };
  const stopping = { ...ordered, ordering_on_failure: 'stop' };
  assert.deepEqual([failed, ordered, stopping].map((task) => whatFollows(server, task).kind), ['archive', 'archive', 'cancel']);
  assert.equal(whatFollows(bucket, failed).kind, 'archive');
  // A page on a bucket may not change tasks of a line.
  assert.deepEqual([ordered, stopping].map((task) => whatFollows(bucket, task)), [undefined, undefined]);
});

test('encrypted payloads and errors show the name of their key', () => {
  const sealed = '{"qo_encrypted":1,"key":"2026-11","salt":"AAAA","data":"c2VjcmV0"}';
  assert.equal(payloadKey(sealed), '2026-11');
  for (const text of ['{"key":"2026-11"}', '{"qo_encrypted":1}', '{"qo_encrypted":1,"key":7}', '"qo_encrypted"', '', undefined]) assert.equal(payloadKey(text), undefined, text);
  const error = 'qo-encrypted:1:2026-11:AAAA:c2VjcmV0';
  assert.equal(shownError(error), 'encrypted with key 2026-11');
  assert.deepEqual([shownError('plain: 1'), shownError(undefined)], ['plain: 1', undefined]);
  assert.deepEqual([sealed, JSON.stringify(error), '"x"', '7'].map(shownValue), ['encrypted with key 2026-11', 'encrypted with key 2026-11', '"x"', '7']);
  assert.equal(shownValue(`{"attempt":1,"error":"${error}","logs":["${error}"]}`), '{"attempt":1,"error":"encrypted with key 2026-11","logs":["encrypted with key 2026-11"]}', 'also within an event');
  assert.equal(errorPattern(error), 'encrypted with key 2026-11');
  const [group] = groupFailures([{ task_type: 't', updated_at: 1, last_error: error }, { task_type: 't', updated_at: 2, last_error: error.replace('AAAA', 'BBBB') }]);
  assert.deepEqual([group.tasks.length, group.example], [2, 'encrypted with key 2026-11']);
  const changes = difference('{"a":1}', `{"a":1,"output":${sealed}}`);
  assert.deepEqual(changes.map(({ path, after }) => [path, shownValue(after)]), [['output', 'encrypted with key 2026-11']]);
  assert.match(problemOf({ input: sealed, tags: '' }), /encrypted/);
});

test('percentiles of several steps are weighted by what was measured', () => {
  const step = (count, ms) => ({ count, p50_ms: ms, p95_ms: 2 * ms, p99_ms: 3 * ms, max_ms: 4 * ms });
  assert.equal(together(undefined, undefined), undefined);
  const one = together(undefined, step(1, 10));
  assert.deepEqual(one, { count: 1, p50: 10, p95: 20, p99: 30, max: 40 });
  assert.deepEqual(together(one, step(3, 30)), { count: 4, p50: 25, p95: 50, p99: 75, max: 120 });
  assert.equal(together(one, undefined), one);
});

test('searches know alternatives, prefixes, exclusions and times', () => {
  const now = Date.parse('2026-11-18T12:00:00Z');
  const task = (more) => ({ id: '55ab', shard: '5', status: 'failed', available_at: 0, created_at: now - 60_000, task_type: 'mail_send', queue: 'bulk', tags: ['eu', 'vip'], worker_id: 'w-1', ...more });
  const finds = (text, more = {}) => {
    const { query, problems } = parseSearch(text, now);
    assert.deepEqual(problems, [], text);
    return matches(query, task(more), now);
  };
  for (const text of ['type:mail_send', 'type:mail*', 'type:other,mail_send', 'type:other,mail*', '-type:other', '-type:other*', 'tag:us,eu', '-tag:us', 'worker:w-*', 'queue:bulk,mail -queue:mail',
    'status:failed -type:resize*', '-status:completed,cancelled', 'since:2m', 'until:30s', 'since:2026-11-18 until:2026-11-19', 'since:2026-11-18T11:58:00Z']) {
    assert.ok(finds(text), text);
  }
  for (const text of ['type:mail', 'type:other,resize', 'type:send*', '-type:mail_send', '-type:mail*', '-type:other,mail_send', '-tag:vip', 'worker:x*', '-status:failed', 'since:30s', 'until:2m', 'until:2026-11-18']) {
    assert.ok(!finds(text), text);
  }
  assert.ok(!finds('worker:w*', { worker_id: undefined }) && finds('-worker:w*', { worker_id: undefined }), 'a task that nobody has run');
  assert.ok(finds('tag:"a,b*"', { tags: ['a,b*'] }), 'a quoted tag is meant literally');
  // One plain name is a condition that sources know.
  assert.deepEqual(parseSearch('type:a queue:b').query, { statuses: [], type: 'a', queue: 'b' });
  const words = describe(parseSearch('type:a,b* -queue:c -status:failed since:1h', now).query);
  assert.equal(words, 'tasks of every status of type a or b… not in queue c not failed submitted since 2026-11-18T11:00:00.000Z');
});

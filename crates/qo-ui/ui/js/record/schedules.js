// The record of a schedule, as the engine writes it (`crates/qo-core/src/document.rs` and `schedule/record.rs`). The parts that are not
// changed are kept byte for byte.

import { fields } from '../json/scan.js';
import { SourceError } from '../source.js';
import { timeText } from './schema.js';

export const SCHEDULES_PREFIX = 'meta/settings/schedules/';
const RECENT_OPS_MAX = 16;
const RECENT_RUNS_MAX = 10;
const OPEN_MAX = 16;
/** The schedules that this page can submit a task of (`SCHEDULE_READER` in `crates/qo-core/src/schedule/record.rs`). */
const SCHEDULE_READER = 2;

export const scheduleKey = (name) => `${SCHEDULES_PREFIX}${name}.json`;
export const scheduleName = (key) => key.slice(SCHEDULES_PREFIX.length, -'.json'.length);

/** The times of a schedule in milliseconds. */
export function timesOf({ next, paused_at, last }) {
  const time = (text) => (text ? Date.parse(text) : undefined);
  return { next: paused_at ? undefined : time(next), paused_at: time(paused_at), last: last && { ...last, tick: time(last.tick) } };
}

/** The schedule of a record; undefined if it was removed. */
export function readSchedule(name, text) {
  const { body } = JSON.parse(text);
  if (!body) return undefined;
  const schedule = { name, fired: 0, skipped: 0, missed: 0, ...body, last: body.recent?.at(-1) };
  return { ...schedule, ...timesOf(schedule) };
}

/** Whether the record contains a write. */
export function carriesOp(text, op) {
  const { op_id, recent_ops = [] } = JSON.parse(text);
  return op_id === op || recent_ops.includes(op);
}

/** The record after a schedule is paused or resumed; undefined if it is so already. The ticks of a pause are left out. */
export function setSchedulePaused(text, paused, op, now) {
  return changed(text, op, now, (body) => {
    if (body.has('paused_at') === paused) return false;
    if (paused) {
      body.set('paused_at', JSON.stringify(timeText(now)));
      body.delete('buffered');
      return true;
    }
    body.delete('paused_at');
    if (Date.parse(JSON.parse(body.get('through'))) < now) {
      body.set('through', JSON.stringify(timeText(now)));
      const next = nextTick(JSON.parse(body.get('spec')), now);
      if (next === undefined) body.delete('next');
      else body.set('next', JSON.stringify(timeText(next)));
    }
    return true;
  });
}

/** The record after a task was submitted by hand. */
export function recordTrigger(text, task, op, now) {
  return changed(text, op, now, (body) => {
    const run = { tick: timeText(now), kind: 'trigger', task, at: timeText(now) };
    const recent = [...JSON.parse(body.get('recent') ?? '[]'), run];
    body.set('recent', JSON.stringify(recent.slice(-RECENT_RUNS_MAX)));
    body.set('fired', String(JSON.parse(body.get('fired') ?? '0') + 1));
    if ((JSON.parse(body.get('spec')).overlap ?? 'allow') !== 'allow') {
      const open = [...JSON.parse(body.get('open') ?? '[]'), task];
      body.set('open', JSON.stringify(open.slice(-OPEN_MAX)));
    }
    return true;
  });
}

/** The task of a schedule as a request to submit it. Its input is kept byte for byte. */
export function requestOf(name, text) {
  const spec = new Map(fields(bodyOf(text).get('spec')));
  const task = new Map(fields(spec.get('task')));
  const value = (field) => (task.has(field) ? JSON.parse(task.get(field)) : undefined);
  const refused = refusal(name, bodyOf(text), value);
  if (refused) throw new SourceError('bad_request', refused, { hint: 'Use the command:', command: `qo schedule trigger ${name}` });
  const own = `schedule:${name}`;
  const tags = [...(value('tags') ?? []), ...(own.length <= 64 ? [own] : [])];
  const kept = ['task_type', 'queue', 'priority', 'timeout_seconds', 'max_retries', 'expires_in_ms', 'limit_key'];
  const { queue = 'default', priority = 5, ...settings } = Object.fromEntries(kept.map((field) => [field, value(field)]));
  return { ...settings, queue, priority, tags, delay_ms: 0, retry_policy: task.get('retry_policy'), input: task.get('input') ?? 'null' };
}

/** Why a page of a bucket cannot submit the task of a schedule; undefined if it can. */
function refusal(name, body, value) {
  if (JSON.parse(body.get('min_reader') ?? '0') > SCHEDULE_READER) return `schedule ${name} needs a newer version of this page; this one would leave out some settings of its tasks`;
  if (value('fairness_group') != null) return `the tasks of schedule ${name} have a group, and the dashboard cannot rank them in a bucket`;
  if (value('ordering_key') != null) return `the tasks of schedule ${name} have an ordering key, and the dashboard cannot add tasks to a line in a bucket`;
  return undefined;
}

/** The next tick of an interval or a list; undefined for a cron line, whose next tick the next process writes that fires it. */
function nextTick({ every_ms, at, start, end }, now) {
  const first = start ? Date.parse(start) : 0;
  const from = Math.max(now, first - 1);
  let next;
  if (every_ms) next = first + (Math.floor((from - first) / every_ms) + 1) * every_ms;
  else if (at) next = at.map((text) => Date.parse(text)).filter((time) => time > from).sort((a, b) => a - b)[0];
  return next === undefined || (end && next > Date.parse(end)) ? undefined : next;
}

const bodyOf = (text) => new Map(fields(new Map(fields(text)).get('body')));
const write = (map) => `{${[...map].map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;

function changed(text, op, now, change) {
  const record = new Map(fields(text));
  const body = bodyOf(text);
  if (!change(body)) return undefined;
  const recent = [...JSON.parse(record.get('recent_ops') ?? '[]'), JSON.parse(record.get('op_id'))];
  record.set('revision', String(JSON.parse(record.get('revision')) + 1));
  record.set('op_id', JSON.stringify(op));
  record.set('recent_ops', JSON.stringify(recent.slice(-RECENT_OPS_MAX)));
  record.set('updated_at', JSON.stringify(timeText(now)));
  record.set('body', write(body));
  return write(record);
}

// The transitions that the dashboard applies itself, as pure functions. They write exactly what the core would, byte for byte.
//
// They mirror `crates/qo-core/src/transition/operator.rs` and `submit.rs`; the vectors in `../../tests/vectors` verify them. The order of
// an event's members is defined by `EVENT` in `schema.js`.

import { elements } from '../json/scan.js';
import { TaskRecord } from './record.js';
import { RETRY_POLICY_DEFAULT, timeText } from './schema.js';

const ERROR_MAX_BYTES = 4 * 1024;
const EVENT_ERROR_MAX_BYTES = 512;
const EVENTS_MAX = 64;
export const INLINE_PAYLOAD_MAX_BYTES = 64 * 1024;
const TIME_MAX = 253_402_300_799_999;
const ENDS = ['completed', 'failed', 'cancelled'];
const MADE_DUE = 'made due at once';
/** The reader of tasks with a limit key. */
const LIMIT_READER = 3;
/** The reader of tasks with a key that were moved to another queue. */
const MOVED_READER = 3;

/** The transition is not allowed. Nothing has changed. */
export class Rejected extends Error {
  constructor(message) {
    super(message);
    this.name = 'Rejected';
  }
}

/** Whether each action is allowed, so that pages offer only those. */
export function possibleActions(task, now) {
  const ended = ENDS.includes(task.status);
  const stops = stopsLine(task);
  return {
    replay: ended,
    archive: ended && !stops,
    unarchive: task.status === 'archived',
    cancel: task.status === 'pending' || (task.status === 'running' && !task.cancel_requested) || stops,
    run_now: task.status === 'pending' && task.available_at > now && !isExpired(task, now),
    redrive: (task.status === 'failed' || (task.status === 'pending' && !isExpired(task, now))) && task.ordering_key === undefined,
    purge: (ended && !stops) || task.status === 'archived',
  };
}

/** Whether a failed task keeps the tasks with the same ordering key from running. */
export function stopsLine(task) {
  return task.status === 'failed' && task.ordering_key !== undefined && task.ordering_on_failure === 'stop';
}

/** The end of the time in which a pending task can be claimed. */
function pendingUntil({ expires_at: expiresAt, max_wait_ms: maxWait, available_at: availableAt }) {
  const ends = [expiresAt, maxWait === undefined ? undefined : availableAt + maxWait].filter((end) => end !== undefined);
  return ends.length > 0 ? Math.min(...ends) : undefined;
}

const isExpired = (task, now) => pendingUntil(task) <= now;

function requireUnexpired(record, now) {
  const until = pendingUntil({ expires_at: record.time('expires_at'), max_wait_ms: record.get('max_wait_ms') ?? undefined, available_at: record.time('available_at') });
  if (until <= now) throw new Rejected(`the task expired at ${timeText(until)}`);
}

/**
 * Applies an action to a record.
 * @param {TaskRecord} before
 * @param {{kind: string, reason?: string | null, to?: string, by?: string}} action
 * @param {string} op the operation id
 * @param {number} now milliseconds, on the store's clock
 */
export function apply(before, action, op, now) {
  const record = before.copy();
  const from = record.get('status');
  const note = CHANGES[action.kind](record, from, now, action);
  record.setRaw('revision', String(BigInt(record.raw('revision') ?? '0') + 1n));
  record.set('op_id', op);
  // A clock that lags must not make the history go backwards.
  const updatedAt = Math.max(record.time('updated_at'), now);
  record.set('updated_at', timeText(updatedAt));
  addEvent(record, {
    at: timeText(updatedAt),
    action: note.action,
    from,
    to: record.get('status'),
    attempt: record.get('attempt') ?? 0,
    worker: note.worker,
    error: note.error === undefined ? undefined : cutText(note.error, EVENT_ERROR_MAX_BYTES),
    op_id: op,
    by: action.by,
  });
  return record;
}

const CHANGES = {
  run_now(record, from, now) {
    if (from !== 'pending') throw wrongStatus('run now', from);
    requireUnexpired(record, now);
    const availableAt = record.time('available_at');
    if (availableAt <= now) throw new Rejected(`the task has been due since ${timeText(availableAt)}`);
    record.set('available_at', timeText(now));
    return { action: 'run_now', error: MADE_DUE };
  },

  cancel(record, from, now, { reason }) {
    const error = cutText(reason ?? 'cancelled', ERROR_MAX_BYTES);
    if (from === 'pending') {
      record.set('last_error', error);
      record.set('status', 'cancelled');
      record.set('completed_at', timeText(now));
      for (const name of ['cancel_requested', 'lease_id', 'lease_expires_at']) record.set(name, undefined);
      return { action: 'cancelled', error };
    }
    if (from !== 'running') throw wrongStatus('cancel', from);
    // Only the worker can stop a running task. It learns of the request at its next lease renewal.
    if (record.get('cancel_requested')) throw new Rejected('a cancel was already requested');
    record.set('cancel_requested', true);
    record.set('last_error', error);
    return { action: 'cancel_requested', worker: record.get('worker_id') ?? undefined, error };
  },

  replay(record, from, now) {
    if (!ENDS.includes(from)) throw wrongStatus('replay', from);
    startOver(record, now);
    return { action: 'replayed' };
  },

  redrive(record, from, now, { to }) {
    if (from !== 'pending' && from !== 'failed') throw wrongStatus('redrive', from);
    if (record.get('ordering_key') != null) throw new Rejected('cannot redrive a task with an ordering key: its line belongs to its queue');
    const queue = record.get('queue') ?? 'default';
    if (queue === to) throw new Rejected(`the task is already in the queue ${to}`);
    if (from === 'pending') requireUnexpired(record, now);
    if (from === 'failed') startOver(record, now);
    else setDue(record, record.time('available_at'));
    record.set('queue', to);
    if (record.get('idempotency_key') != null && record.get('idempotency_scope') !== 'global') {
      const home = record.get('idempotency_queue') ?? queue;
      record.set('idempotency_queue', home === to ? undefined : home);
      record.set('min_reader', Math.max(record.get('min_reader') ?? 0, MOVED_READER));
    }
    return { action: 'redriven', error: `moved from queue ${queue} to ${to}` };
  },

  archive(record, from) {
    if (!ENDS.includes(from)) throw wrongStatus('archive', from);
    record.set('status', 'archived');
    return { action: 'archived' };
  },

  unarchive(record, from) {
    if (from !== 'archived') throw wrongStatus('unarchive', from);
    const archived = (record.get('events') ?? []).findLast((event) => event.to === 'archived');
    record.set('status', ENDS.includes(archived?.from) ? archived.from : 'failed');
    return { action: 'unarchived' };
  },
};

function startOver(record, now) {
  record.set('status', 'pending');
  setDue(record, now);
  record.set('retry_count', 0);
  const cleared = ['completed_at', 'started_at', 'worker_id', 'progress', 'expires_at', 'max_wait_ms', 'output', 'output_ref'];
  for (const name of cleared) record.set(name, undefined);
}

/** Each due time is later than the one before, because index entries contain it. */
function setDue(record, at) {
  const dueAt = Math.min(Math.max(at, record.time('available_at') + 1), TIME_MAX);
  record.set('available_at', timeText(dueAt));
}

/** The record of a new task. `input` and `retry_policy` of the request are JSON texts. */
export function submit(request, id, op, now) {
  const record = new TaskRecord(new Map());
  record.set('id', id);
  record.set('task_type', request.task_type);
  record.set('shard', id[0]);
  record.set('queue', request.queue);
  record.set('priority', request.priority);
  record.set('status', 'pending');
  record.set('revision', 1);
  record.set('op_id', op);
  record.set('available_at', timeText(Math.min(now + request.delay_ms, TIME_MAX)));
  if (request.input_ref) record.set('input_ref', request.input_ref);
  else record.setRaw('input', request.input.trim());
  if (request.expires_in_ms != null) record.set('expires_at', timeText(Math.min(now + request.expires_in_ms, TIME_MAX)));
  record.set('max_wait_ms', request.max_wait_ms);
  record.set('timeout_seconds', request.timeout_seconds);
  record.set('max_retries', request.max_retries);
  record.setRaw('retry_policy', request.retry_policy ?? RETRY_POLICY_DEFAULT);
  record.set('created_at', timeText(now));
  record.set('updated_at', timeText(now));
  record.set('tags', request.tags);
  if (request.limit_key != null) {
    record.set('limit_key', request.limit_key);
    record.set('min_reader', LIMIT_READER);
  }
  addEvent(record, { at: timeText(now), action: 'submitted', to: 'pending', attempt: 0, op_id: op });
  return record;
}

/** Truncates a text to at most `maxBytes` bytes at a character boundary, and marks it with an ellipsis. */
export function cutText(text, maxBytes) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= maxBytes) return text;
  let end = maxBytes - 3;
  // Bytes of the form 10xxxxxx continue a character.
  while ((bytes[end] & 0xc0) === 0x80) end -= 1;
  return `${new TextDecoder().decode(bytes.subarray(0, end))}…`;
}

function addEvent(record, event) {
  const events = elements(record.raw('events') ?? '[]');
  const excess = Math.max(events.length + 1 - EVENTS_MAX, 0);
  events.splice(0, excess);
  events.push(JSON.stringify(event));
  record.setRaw('events', `[${events.join(',')}]`);
  if (excess > 0) {
    record.setRaw('events_dropped', String(BigInt(record.raw('events_dropped') ?? '0') + BigInt(excess)));
  }
}

function wrongStatus(action, status) {
  return new Rejected(`cannot ${action} a task that is ${status}`);
}

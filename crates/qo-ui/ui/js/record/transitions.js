// The changes that the dashboard makes by itself, as pure functions: what the core would write, to the byte.
//
// They mirror `crates/qo-core/src/transition/operator.rs` and `submit.rs`; the vectors in `../../tests/vectors` hold them to it.

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

/** The rules refuse a change, and nothing has changed. */
export class Rejected extends Error {
  constructor(message) {
    super(message);
    this.name = 'Rejected';
  }
}

/** What each action needs a task to be, so that a page offers only what can be done. */
export function possibleActions(task, now) {
  const ended = ENDS.includes(task.status);
  return {
    replay: ended,
    archive: ended,
    unarchive: task.status === 'archived',
    cancel: task.status === 'pending' || (task.status === 'running' && !task.cancel_requested),
    run_now: task.status === 'pending' && task.available_at > now && !(task.expires_at <= now),
  };
}

/**
 * The record after an action.
 * @param {TaskRecord} before
 * @param {{kind: string, reason?: string | null}} action
 * @param {string} op the operation's id
 * @param {number} now milliseconds, in the store's time
 */
export function apply(before, action, op, now) {
  const record = before.copy();
  const from = record.get('status');
  const note = CHANGES[action.kind](record, from, now, action);
  record.setRaw('revision', String(BigInt(record.raw('revision') ?? '0') + 1n));
  record.set('op_id', op);
  // A clock that is behind must not make the history run backwards.
  const updatedAt = Math.max(record.time('updated_at'), now);
  record.set('updated_at', timeText(updatedAt));
  addEvent(record, {
    at: timeText(updatedAt),
    from,
    to: record.get('status'),
    attempt: record.get('attempt') ?? 0,
    worker: note.worker,
    error: note.error === undefined ? undefined : cutText(note.error, EVENT_ERROR_MAX_BYTES),
    op_id: op,
  });
  return record;
}

const CHANGES = {
  run_now(record, from, now) {
    if (from !== 'pending') throw wrongStatus('run now', from);
    const expiresAt = record.time('expires_at');
    if (expiresAt !== undefined && expiresAt <= now) throw new Rejected(`the task expired at ${timeText(expiresAt)}`);
    const availableAt = record.time('available_at');
    if (availableAt <= now) throw new Rejected(`the task is due since ${timeText(availableAt)}`);
    record.set('available_at', timeText(now));
    return { error: MADE_DUE };
  },

  cancel(record, from, now, { reason }) {
    const error = cutText(reason ?? 'cancelled', ERROR_MAX_BYTES);
    if (from === 'pending') {
      record.set('last_error', error);
      record.set('status', 'cancelled');
      record.set('completed_at', timeText(now));
      for (const name of ['cancel_requested', 'lease_id', 'lease_expires_at']) record.set(name, undefined);
      return { error };
    }
    if (from !== 'running') throw wrongStatus('cancel', from);
    // Only the worker can stop what it runs; it learns of the request with its next renewal.
    if (record.get('cancel_requested')) throw new Rejected('a cancel was already requested');
    record.set('cancel_requested', true);
    record.set('last_error', error);
    return { worker: record.get('worker_id') ?? undefined, error };
  },

  replay(record, from, now) {
    if (!ENDS.includes(from)) throw wrongStatus('replay', from);
    record.set('status', 'pending');
    // A due time is used once, because index entries are named by it.
    const dueAt = Math.min(Math.max(now, record.time('available_at') + 1), TIME_MAX);
    record.set('available_at', timeText(dueAt));
    record.set('retry_count', 0);
    const gone = ['completed_at', 'started_at', 'worker_id', 'progress', 'expires_at', 'output', 'output_ref'];
    for (const name of gone) record.set(name, undefined);
    return {};
  },

  archive(record, from) {
    if (!ENDS.includes(from)) throw wrongStatus('archive', from);
    record.set('status', 'archived');
    return {};
  },

  unarchive(record, from) {
    if (from !== 'archived') throw wrongStatus('unarchive', from);
    const archived = (record.get('events') ?? []).findLast((event) => event.to === 'archived');
    record.set('status', ENDS.includes(archived?.from) ? archived.from : 'failed');
    return {};
  },
};

/** The record of a new task. The request names everything; `input` and `retry_policy` are JSON texts. */
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
  record.set('timeout_seconds', request.timeout_seconds);
  record.set('max_retries', request.max_retries);
  record.setRaw('retry_policy', request.retry_policy ?? RETRY_POLICY_DEFAULT);
  record.set('created_at', timeText(now));
  record.set('updated_at', timeText(now));
  record.set('tags', request.tags);
  addEvent(record, { at: timeText(now), to: 'pending', attempt: 0, op_id: op });
  return record;
}

/** Cuts a text at so many bytes or before, between two characters, and says that it was cut. */
export function cutText(text, maxBytes) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= maxBytes) return text;
  let end = maxBytes - 3;
  // A byte of the form 10xxxxxx continues a character.
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

// The stored form of a task, as the core writes it: which fields there are, in which order, and when one is left out.
//
// This mirrors `crates/qo-core/src/task/mod.rs`. The test vectors that the core generates hold it to that.

import { canonical, elements, fields, floatText, sortedByBytes } from '../json/scan.js';

const text = (raw) => JSON.stringify(JSON.parse(raw));
const plain = (raw) => raw.trim();
const time = (raw) => JSON.stringify(timeText(JSON.parse(raw)));
const listOf = (write) => (raw) => `[${elements(raw).map(write).join(',')}]`;
const recordOf = (known) => (raw) => writeFields(known, new Map(fields(raw)));

/** A field that is always there; `otherwise` where the record lacks it. */
const always = (name, write, otherwise) => ({ name, write, otherwise, leftOut: () => false });
/** A field that is left out where there is no value. */
const optional = (name, write) => ({ name, write, leftOut: (raw) => raw === undefined || raw.trim() === 'null' });
/** A field that is left out where it has its usual value. */
const unusual = (name, write, usual) => ({ name, write, leftOut: (raw) => raw === undefined || write(raw) === usual });
/** A payload: `null` is one, and every byte counts. */
const payload = (name) => ({ name, write: (raw) => raw, leftOut: (raw) => raw === undefined });

const EVENT = [
  always('at', time),
  optional('from', text),
  always('to', text),
  always('attempt', plain, '0'),
  optional('worker', text),
  optional('error', text),
  optional('op_id', text),
];
const RETRY_POLICY = [
  always('initial_interval_ms', plain),
  always('max_interval_ms', plain),
  always('multiplier', floatText),
  always('jitter_percent', floatText),
];
const PROGRESS = [always('percent', floatText), optional('message', text), always('at', time)];
const PAYLOAD_REF = [always('size', plain), always('sha256', text)];

export const RETRY_POLICY_DEFAULT =
  '{"initial_interval_ms":1000,"max_interval_ms":60000,"multiplier":2.0,"jitter_percent":0.25}';

/** The fields of a task, in the order in which they are stored. */
export const TASK = [
  always('id', text),
  always('task_type', text),
  always('shard', text),
  always('queue', text, '"default"'),
  always('priority', plain, '5'),
  always('status', text),
  always('revision', plain, '0'),
  optional('op_id', text),
  unusual('sequence', plain, '0'),
  always('available_at', time),
  optional('expires_at', time),
  optional('started_at', time),
  optional('lease_expires_at', time),
  payload('input'),
  optional('input_ref', recordOf(PAYLOAD_REF)),
  payload('output'),
  optional('output_ref', recordOf(PAYLOAD_REF)),
  always('timeout_seconds', plain, '300'),
  always('max_retries', plain, '3'),
  always('retry_count', plain, '0'),
  always('retry_policy', recordOf(RETRY_POLICY), RETRY_POLICY_DEFAULT),
  always('created_at', time),
  always('updated_at', time),
  optional('completed_at', time),
  optional('worker_id', text),
  optional('lease_id', text),
  always('attempt', plain, '0'),
  optional('last_error', text),
  optional('idempotency_key', text),
  unusual('idempotency_scope', text, '"queue"'),
  optional('idempotency_until', time),
  unusual('tags', listOf(text), '[]'),
  optional('traceparent', text),
  optional('progress', recordOf(PROGRESS)),
  unusual('cancel_requested', plain, 'false'),
  always('events', listOf(recordOf(EVENT)), '[]'),
  unusual('events_dropped', plain, '0'),
];

/** Writes a record: the known fields in their order, then those of later versions, sorted. */
export function writeFields(known, values) {
  const parts = [];
  for (const { name, write, otherwise, leftOut } of known) {
    const raw = values.get(name) ?? otherwise;
    if (leftOut(raw)) continue;
    if (raw === undefined) throw new TypeError(`the field ${name} is missing`);
    parts.push(`"${name}":${write(raw)}`);
  }
  const names = new Set(known.map((field) => field.name));
  const unknown = [...values].filter(([name]) => !names.has(name));
  for (const [name, raw] of sortedByBytes(unknown)) {
    parts.push(`${JSON.stringify(name)}:${canonical(raw)}`);
  }
  return `{${parts.join(',')}}`;
}

/** Milliseconds since 1970 of an RFC 3339 time. */
export function timeMillis(text) {
  const millis = Date.parse(text);
  if (!Number.isFinite(millis)) throw new TypeError(`${text} is not a time`);
  return millis;
}

/** A time as the core writes it, from milliseconds or from any RFC 3339 text. */
export function timeText(time) {
  return new Date(typeof time === 'string' ? timeMillis(time) : time).toISOString();
}

// A task's record: its stored text, and the view that pages show.
//
// The text is split into fields and reassembled from the same texts, so that a rewrite changes only the intended fields: payloads keep
// every byte, and unknown fields survive.

import { fields, isJson } from '../json/scan.js';
import { TASK, timeMillis, writeFields } from './schema.js';

/** The reader that this page is, as `READER` in `crates/qo-core/src/task/codec.rs`. A record whose `min_reader` is higher must not be used. */
export const READER = 4;
export const RECORD_MAX_BYTES = 1024 * 1024;
export const STATUSES = ['pending', 'running', 'completed', 'failed', 'cancelled', 'archived'];
const TIMES = [
  'available_at', 'expires_at', 'started_at', 'lease_expires_at', 'created_at', 'updated_at', 'completed_at', 'fairness_rank',
  'idempotency_until',
];
const REQUIRED = ['id', 'task_type', 'shard', 'status', 'available_at', 'created_at', 'updated_at'];
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** The error for an unreadable record. */
export class Unreadable extends Error {
  constructor(detail) {
    super(`the record is unreadable: ${detail}`);
    this.name = 'Unreadable';
  }
}

/** The error for a record of a later version. It is intact, but this page may misread it, and must not change it. */
export class Newer extends Unreadable {
  hint = 'Update the dashboard with a newer version of qo:';
  command = 'qo ui deploy';

  constructor(minReader) {
    super('');
    this.message = `the record needs a newer version of qo: it is for reader ${minReader}, this page is reader ${READER}`;
  }
}

export class TaskRecord {
  /** @param {Map<string, string>} values the texts of the fields, by name */
  constructor(values) {
    this.values = values;
  }

  /** Reads a stored record. Rejects states that no sequence of transitions leads to. */
  static read(text) {
    if (text.length > RECORD_MAX_BYTES) throw new Unreadable(`it has ${text.length} characters`);
    if (!isJson(text)) throw new Unreadable('not JSON');
    let pairs;
    try {
      pairs = fields(text);
    } catch {
      throw new Unreadable('not an object');
    }
    const values = new Map(pairs);
    if (values.size !== pairs.length) throw new Unreadable('duplicate field');
    const minReader = values.get('min_reader')?.trim() ?? '0';
    // A form that this version does not know is not sufficient either.
    if (!/^\d+$/.test(minReader) || Number(minReader) > READER) throw new Newer(minReader);
    const missing = REQUIRED.find((name) => !values.has(name));
    if (missing) throw new Unreadable(`missing field ${missing}`);
    const record = new TaskRecord(values);
    const problem = inconsistency(record.view());
    if (problem) throw new Unreadable(problem);
    return record;
  }

  /** The text to store. */
  write() {
    return writeFields(TASK, this.values);
  }

  copy() {
    return new TaskRecord(new Map(this.values));
  }

  /** The text of a field. */
  raw(name) {
    return this.values.get(name);
  }

  /** The value of a field. */
  get(name) {
    const raw = this.values.get(name);
    return raw === undefined ? undefined : JSON.parse(raw);
  }

  /** A time in milliseconds. */
  time(name) {
    const text = this.get(name);
    return text === undefined || text === null ? undefined : timeMillis(text);
  }

  setRaw(name, raw) {
    this.values.set(name, raw);
  }

  set(name, value) {
    if (value === undefined || value === null) this.values.delete(name);
    else this.values.set(name, JSON.stringify(value));
  }

  /** Whether the operation wrote this record or an earlier state of it. */
  carries(op) {
    return this.get('op_id') === op || (this.get('events') ?? []).some((event) => event.op_id === op);
  }

  /** The view for pages: times in milliseconds, payloads as text. */
  view() {
    const view = {
      queue: 'default', priority: 5, revision: 0, timeout_seconds: 300, max_retries: 3, retry_count: 0, attempt: 0,
      tags: [], events: [], events_dropped: 0, cancel_requested: false,
    };
    try {
      for (const [name, raw] of this.values) {
        if (name === 'input' || name === 'output') view[name] = raw;
        else if (raw.trim() !== 'null') view[name] = JSON.parse(raw);
      }
      for (const name of TIMES) {
        if (view[name] !== undefined) view[name] = timeMillis(view[name]);
      }
      view.events = view.events.map((event) => ({ ...event, at: timeMillis(event.at) }));
      if (view.progress) view.progress.at = timeMillis(view.progress.at);
    } catch (error) {
      throw new Unreadable(error.message);
    }
    return view;
  }
}

function inconsistency(task) {
  const running = task.status === 'running';
  if (typeof task.id !== 'string' || !UUID.test(task.id)) return 'its id is not a UUID';
  if (!STATUSES.includes(task.status)) return `its status is ${JSON.stringify(task.status)}`;
  if (typeof task.task_type !== 'string' || typeof task.queue !== 'string') return 'its type or queue is not a string';
  if (task.shard !== task.id[0]) return 'its shard is not the first digit of its id';
  if (!(task.priority >= 0 && task.priority <= 9)) return 'its priority is not 0 to 9';
  if (running !== (task.lease_id !== undefined)) return 'a task has a lease id exactly while it is running';
  if (running !== (task.lease_expires_at !== undefined)) return 'a task has a lease deadline exactly while it is running';
  if (running && task.attempt === 0) return 'it is running but has no attempt';
  if (task.input !== undefined && task.input_ref) return 'it has both an inline and an external input';
  if (task.output !== undefined && task.output_ref) return 'it has both an inline and an external output';
  if (!Array.isArray(task.events) || !Array.isArray(task.tags)) return 'its events or tags are not a list';
  return undefined;
}

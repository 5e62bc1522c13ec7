// The keys of a task's objects in a bucket. This mirrors `crates/qo-core/src/keys.rs` and `crates/qo-direct/src/index.rs`.

/** The line of an ordering key, by the hash of the queue and the key. */
export const lineKey = (sha256) => `order/${sha256}.json`;
export const SIGNAL_KEY = 'meta/signal.json';
export const QUEUES_KEY = 'meta/queues.json';
export const SHARDS = [...'0123456789abcdef'];

const pad = (number, width) => String(number).padStart(width, '0');
const UUID = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}';
const NAME = '[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}';
const NAME_ONLY = new RegExp(`^${NAME}$`);
const TASK_KEY = new RegExp(`^tasks/[0-9a-f]/(${UUID})\\.json$`);
const READY_KEY = new RegExp(`^ready/(${NAME})/(${NAME})/([0-9])/(\\d{15})/(${UUID})(?:/${NAME})?(?:/\\.(\\d{15}))?$`);
const LATER_KEY = new RegExp(`^later/(\\d{15})/(${UUID})/(${NAME})/(${NAME})/([0-9])(?:/${NAME})?(?:/\\.\\d{15})?$`);
const LEASE_KEY = new RegExp(`^leases/[0-9a-f]/(\\d{10})/(${UUID})/(\\d+)$`);
const TIME_IN_ID_MIN = Date.UTC(2020, 0);
const TIME_IN_ID_MAX = Date.UTC(2200, 0);
const FULL_ID = new RegExp(`^${UUID}$`);

export const isTaskId = (text) => FULL_ID.test(text);
export const taskKey = (id) => `tasks/${id[0]}/${id}.json`;
export const inputKey = (id, sha256) => `data/${id[0]}/${id}/input-${sha256}.json`;
export const outputKey = (id, attempt) => `data/${id[0]}/${id}/output-${attempt}.json`;

/**
 * The creation time in an id that qo generated; undefined for other ids. It mirrors `TaskId::from_time`: the first digit is the shard, the
 * eleven digits after it are milliseconds, and the version of the UUID is 8.
 */
export function timeOfId(id) {
  if (id[14] !== '8') return undefined;
  const millis = Number.parseInt(id.slice(1, 8) + id.slice(9, 13), 16);
  return millis > TIME_IN_ID_MIN && millis < TIME_IN_ID_MAX ? millis : undefined;
}

/**
 * An id for a task that is submitted now, so that lists show it as the newest. Browsers offer `crypto.randomUUID` only to pages over HTTPS and on
 * localhost; this works everywhere.
 */
export function newTaskId(now) {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const random = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  const digits = random[0] + Math.floor(now).toString(16).padStart(11, '0');
  const variant = '89ab'[bytes[8] & 3];
  return `${digits.slice(0, 8)}-${digits.slice(8)}-8${random.slice(13, 16)}-${variant}${random.slice(17, 20)}-${random.slice(20)}`;
}

/** A key before those of all tasks of the shard whose ids were generated from this time on. */
export function keyFromTime(shard, time) {
  const digits = shard + Math.max(Math.floor(time), 0).toString(16).padStart(11, '0');
  return `tasks/${shard}/${digits.slice(0, 8)}-${digits.slice(8)}`;
}

export function taskIdOf(key) {
  return TASK_KEY.exec(key)?.[1];
}

/** Parses a key of the ready or the later index; undefined for other keys. */
export function readEntry(key) {
  const ready = READY_KEY.exec(key);
  if (ready) {
    const [, queue, type, priority, at, id, due] = ready;
    return { id, queue, type, priority: Number(priority), availableAt: Number(due ?? at) };
  }
  const later = LATER_KEY.exec(key);
  if (!later) return undefined;
  const [, at, id, queue, type, priority] = later;
  return { id, queue, type, priority: Number(priority), availableAt: Number(at) };
}

export function readLease(key) {
  const found = LEASE_KEY.exec(key);
  return found ? { minute: Number(found[1]), id: found[2], attempt: Number(found[3]) } : undefined;
}

// A task with a group may have a rank, which then orders it instead of its due time.
const timePart = (task, time) => (task.fairness_rank === undefined ? '' : `/.${pad(time, 15)}`);
const limitPart = (task) => (task.limit_key === undefined ? '' : `/${task.limit_key}`);

function readyKey(task) {
  return `ready/${task.queue}/${task.task_type}/${task.priority}/${pad(task.fairness_rank ?? task.available_at, 15)}/${task.id}${limitPart(task)}${timePart(task, task.available_at)}`;
}

function laterKey(task) {
  return `later/${pad(task.available_at, 15)}/${task.id}/${task.queue}/${task.task_type}/${task.priority}${limitPart(task)}${timePart(task, task.fairness_rank)}`;
}

function leaseKey(task) {
  if (task.status !== 'running') return undefined;
  const minute = Math.floor(task.lease_expires_at / 60_000);
  return `leases/${task.shard}/${pad(minute, 10)}/${task.id}/${task.attempt}`;
}

/** The index entry of a pending task. */
export function pendingKey(task, now) {
  if (task.status !== 'pending') return undefined;
  return task.available_at <= now ? readyKey(task) : laterKey(task);
}

/** The index entries of a task that are stale after a change. */
export function staleKeys(before, after, now) {
  const kept = leaseKey(after);
  return allKeys(before, now).filter((key) => key !== kept);
}

function allKeys(task, now) {
  if (task.status === 'running') return [leaseKey(task)];
  if (task.status !== 'pending') return [];
  return task.available_at <= now ? [readyKey(task)] : [readyKey(task), laterKey(task)];
}

/** Whether a text is a valid name of a queue, a type or a worker. */
export function isName(text) {
  return NAME_ONLY.test(text);
}

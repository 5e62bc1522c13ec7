// One change of one task, in the order of the engine's own steps (`crates/qo-direct/src/change.rs`): the task is
// swapped under its ETag, then its new index entry is written, then the signal, then the old entries are deleted. A tab that
// is closed after any step leaves what the monitor or the sweeper finds.
//
// A lost answer is settled by reading the record back and looking for the operation's id in it.

import { pendingKey, SIGNAL_KEY, staleKeys, taskKey } from '../record/keys.js';
import { TaskRecord } from '../record/record.js';
import { SourceError } from '../source.js';

const TRIES_MAX = 8;

/** Reads a task: its record and the ETag that names this state of it. */
export async function readTask(client, id) {
  let object;
  try {
    object = await client.get(taskKey(id));
  } catch (error) {
    if (error.kind === 'not_found') throw new SourceError('not_found', `there is no task ${id}`);
    throw error;
  }
  const record = TaskRecord.read(object.text);
  if (record.get('id') !== id) throw new SourceError('unreadable', `under the key of ${id} is another task`);
  return { record, etag: object.etag };
}

/**
 * Changes a task, however often others change it meanwhile, until it is done or the rules refuse it.
 * @param {(record: TaskRecord, op: string, now: number) => TaskRecord} change
 */
export async function changeTask(client, id, change) {
  const op = crypto.randomUUID();
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const { record, etag } = await readTask(client, id);
    const now = client.clock.now();
    if (record.carries(op)) {
      await publish(client, record.view(), now);
      return record;
    }
    const changed = change(record, op, now);
    try {
      await client.put(taskKey(id), changed.write(), { ifMatch: etag });
    } catch (error) {
      if (!isUnsettled(error) && error.kind !== 'not_found') throw error;
      // Somebody was first, or the answer was lost: the next read tells.
      await new Promise((done) => setTimeout(done, Math.random() * 50 * tries));
      continue;
    }
    await publish(client, changed.view(), now);
    await sweep(client, staleKeys(record.view(), changed.view(), now));
    return changed;
  }
  throw new SourceError('in_doubt', `it is not known whether task ${id} was changed: the store does not answer`, {
    hint: 'Look at the task again in a moment.',
  });
}

/** Creates a task. The id is new, so that what is found under it after a lost answer is ours. */
export async function createTask(client, record, op) {
  const view = record.view();
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    try {
      await client.put(taskKey(view.id), record.write(), { ifNoneMatch: '*' });
    } catch (error) {
      if (!isUnsettled(error)) throw error;
      const found = await readTask(client, view.id).catch((failure) => {
        if (failure.kind === 'not_found') return undefined;
        throw failure;
      });
      if (!found) continue;
      if (!found.record.carries(op)) throw new SourceError('exists', `there is a task ${view.id} already`);
    }
    await publish(client, view, client.clock.now());
    return record;
  }
  throw new SourceError('in_doubt', 'it is not known whether the task was made: the store does not answer');
}

/** Tells idle workers that there may be new work. */
export async function signal(client) {
  await client.putAnyway(SIGNAL_KEY, JSON.stringify({ op_id: crypto.randomUUID() }));
}

/** The answers after which only a read tells what happened. */
export function isUnsettled(error) {
  return ['conflict', 'in_doubt', 'unavailable', 'throttled', 'network'].includes(error.kind);
}

/** Makes a pending task found. The task is durable already, so that a failure here only delays it. */
async function publish(client, task, now) {
  const key = pendingKey(task, now);
  if (!key) return;
  try {
    await client.putAnyway(key, '');
    await signal(client);
  } catch (error) {
    console.warn('the task is stored, but its index entry is not; it will be found later', error);
  }
}

/** Deletes entries that are no longer true. One that stays is found by the monitor. */
async function sweep(client, keys) {
  try {
    await Promise.all(keys.map((key) => client.remove(key)));
  } catch (error) {
    console.warn('a stale index entry stays for the monitor', error);
  }
}

// A change of one task, in the same order as the engine (`crates/qo-direct/src/change.rs`): replace the task under its ETag, write its
// new index entry, write the signal, delete the old entries. If the tab is closed after any step, the monitor or the sweeper repairs
// the rest.
//
// If a response is lost, the record is read back and checked for the operation id.

import { pendingKey, SIGNAL_KEY, staleKeys, taskKey } from '../record/keys.js';
import { TaskRecord } from '../record/record.js';
import { SourceError } from '../source.js';

const TRIES_MAX = 8;

/** Reads a task: its record and ETag. */
export async function readTask(client, id) {
  let object;
  try {
    object = await client.get(taskKey(id));
  } catch (error) {
    if (error.kind === 'not_found') throw new SourceError('not_found', `task ${id} does not exist`);
    throw error;
  }
  const record = TaskRecord.read(object.text);
  if (record.get('id') !== id) throw new SourceError('unreadable', `the object of task ${id} contains another task`);
  return { record, etag: object.etag };
}

/**
 * Changes a task, retrying after concurrent changes, until it succeeds or the transition is rejected.
 * @param {string} kind the action, for the command that can do what a page cannot
 * @param {(record: TaskRecord, op: string, now: number) => TaskRecord} change
 */
export async function changeTask(client, id, kind, change) {
  const op = crypto.randomUUID();
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const { record, etag } = await readTask(client, id);
    const now = client.clock.now();
    if (record.carries(op)) {
      await publish(client, record.view(), now);
      return record;
    }
    if (record.get('ordering_key') !== undefined) {
      // Its line would have to be changed too, as `crates/qo-direct/src/ordering.rs` does.
      throw new SourceError('bad_request', 'this task has an ordering key, and the dashboard cannot change such tasks in a bucket', {
        hint: 'Use the command:',
        command: `qo ${kind.replaceAll('_', '-')} ${id}`,
      });
    }
    const changed = change(record, op, now);
    try {
      await client.put(taskKey(id), changed.write(), { ifMatch: etag });
    } catch (error) {
      if (!isInDoubt(error) && error.kind !== 'not_found') throw error;
      // Another change came first, or the response was lost: the next read shows which.
      await new Promise((done) => setTimeout(done, Math.random() * 50 * tries));
      continue;
    }
    await publish(client, changed.view(), now);
    await sweep(client, staleKeys(record.view(), changed.view(), now));
    return changed;
  }
  throw new SourceError('in_doubt', `it is unknown whether task ${id} was changed: the store does not respond`, {
    hint: 'Reload the task in a moment.',
  });
}

/** Creates a task. Its id is new, so a task found under it after a lost response is ours. */
export async function createTask(client, record, op) {
  const view = record.view();
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    try {
      await client.put(taskKey(view.id), record.write(), { ifNoneMatch: '*' });
    } catch (error) {
      if (!isInDoubt(error)) throw error;
      const found = await readTask(client, view.id).catch((failure) => {
        if (failure.kind === 'not_found') return undefined;
        throw failure;
      });
      if (!found) continue;
      if (!found.record.carries(op)) throw new SourceError('exists', `task ${view.id} already exists`);
    }
    await publish(client, view, client.clock.now());
    return record;
  }
  throw new SourceError('in_doubt', 'it is unknown whether the task was created: the store does not respond');
}

/** Notifies idle workers of new work. */
export async function signal(client) {
  await client.putUnconditionally(SIGNAL_KEY, JSON.stringify({ op_id: crypto.randomUUID() }));
}

/** Errors after which only a read shows whether the write succeeded. */
export function isInDoubt(error) {
  return ['conflict', 'in_doubt', 'unavailable', 'throttled', 'network'].includes(error.kind);
}

/** Writes the index entry of a pending task. The task is already durable, so a failure here only delays it. */
async function publish(client, task, now) {
  const key = pendingKey(task, now);
  if (!key) return;
  try {
    await client.putUnconditionally(key, '');
    await signal(client);
  } catch (error) {
    console.warn('the task is stored, but its index entry is not; the sweeper will add it', error);
  }
}

/** Deletes stale entries. The monitor removes those that are left. */
async function sweep(client, keys) {
  try {
    await Promise.all(keys.map((key) => client.remove(key)));
  } catch (error) {
    console.warn('a stale index entry is left for the monitor', error);
  }
}

// Tasks that this visit has read, by the ETag that they had: a list names each object's ETag, so that what has not changed is
// not read again.

import { taskIdOf, taskKey } from '../record/keys.js';
import { TaskRecord } from '../record/record.js';
import { eachAtOnce } from '../source.js';

const ENTRIES_MAX = 20_000;
const AT_ONCE = 24;

export class TaskCache {
  #entries = new Map();

  constructor(client) {
    this.client = client;
  }

  /** What is known of a task, however old. */
  peek(id) {
    return this.#entries.get(id)?.task;
  }

  put(id, record, etag) {
    const task = record.view();
    this.#entries.delete(id);
    this.#entries.set(id, { task, record, etag });
    if (this.#entries.size > ENTRIES_MAX) this.#entries.delete(this.#entries.keys().next().value);
    return task;
  }

  forget(id) {
    this.#entries.delete(id);
  }

  /** Reads a task again, unless it is still the same. Gives nothing where there is none. */
  async read(id) {
    const known = this.#entries.get(id);
    try {
      const object = await this.client.get(taskKey(id), { etag: known?.etag });
      return object ? this.put(id, TaskRecord.read(object.text), object.etag) : known.task;
    } catch (error) {
      if (error.kind !== 'not_found') throw error;
      this.forget(id);
      return undefined;
    }
  }

  /** The record of a task that was read. */
  record(id) {
    return this.#entries.get(id)?.record;
  }

  /**
   * The tasks of listed objects, in their order; those that have gone or cannot be read are left out.
   * @param {{key: string, etag: string}[]} entries
   */
  async ofEntries(entries) {
    const tasks = await eachAtOnce(entries, AT_ONCE, async ({ key, etag }) => {
      const id = taskIdOf(key);
      if (!id) return undefined;
      const known = this.#entries.get(id);
      return known && known.etag === etag ? known.task : this.#fetch(id);
    });
    return tasks.filter(Boolean);
  }

  /** The tasks of these ids, read again where they are known. */
  async ofIds(ids) {
    const tasks = await eachAtOnce(ids, AT_ONCE, (id) => this.read(id).catch(leaveOut));
    return tasks.filter(Boolean);
  }

  async #fetch(id) {
    try {
      const object = await this.client.get(taskKey(id));
      return this.put(id, TaskRecord.read(object.text), object.etag);
    } catch (error) {
      return leaveOut(error);
    }
  }
}

function leaveOut(error) {
  if (error.kind === 'not_found') return undefined;
  if (error.name !== 'Unreadable') throw error;
  console.warn('left out:', error.message);
  return undefined;
}

// A cache of tasks with their ETags. Lists contain the ETag of each object, so unchanged tasks are not read again.

import { taskIdOf, taskKey } from '../record/keys.js';
import { TaskRecord } from '../record/record.js';
import { mapConcurrently } from '../source.js';

const ENTRIES_MAX = 20_000;
const CONCURRENCY = 24;

export class TaskCache {
  #entries = new Map();
  /** The ids of tasks whose records could not be read the last time. */
  #unreadable = new Set();

  constructor(client) {
    this.client = client;
  }

  /** The cached task, however old. */
  peek(id) {
    return this.#entries.get(id)?.task;
  }

  put(id, record, etag) {
    const task = record.view();
    this.#unreadable.delete(id);
    this.#entries.delete(id);
    this.#entries.set(id, { task, record, etag });
    if (this.#entries.size > ENTRIES_MAX) this.#entries.delete(this.#entries.keys().next().value);
    return task;
  }

  forget(id) {
    this.#unreadable.delete(id);
    this.#entries.delete(id);
  }

  isUnreadable(id) {
    return this.#unreadable.has(id);
  }

  /** Reads a task unless it is unchanged. Returns undefined if it does not exist. */
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

  /** The cached record of a task. */
  record(id) {
    return this.#entries.get(id)?.record;
  }

  /**
   * The tasks of listed objects, in order, without missing and unreadable ones.
   * @param {{key: string, etag: string}[]} entries
   */
  async ofEntries(entries) {
    const tasks = await mapConcurrently(entries, CONCURRENCY, async ({ key, etag }) => {
      const id = taskIdOf(key);
      if (!id) return undefined;
      const known = this.#entries.get(id);
      return known && known.etag === etag ? known.task : this.#fetch(id);
    });
    return tasks.filter(Boolean);
  }

  /** The tasks with these ids, revalidated. */
  async ofIds(ids) {
    const tasks = await mapConcurrently(ids, CONCURRENCY, (id) => this.read(id).catch((error) => this.#skip(id, error)));
    return tasks.filter(Boolean);
  }

  async #fetch(id) {
    try {
      const object = await this.client.get(taskKey(id));
      return this.put(id, TaskRecord.read(object.text), object.etag);
    } catch (error) {
      return this.#skip(id, error);
    }
  }

  #skip(id, error) {
    if (error.kind === 'not_found') {
      this.forget(id);
      return undefined;
    }
    if (error.name !== 'Unreadable') throw error;
    console.warn('skipped:', error.message);
    this.#unreadable.add(id);
    return undefined;
  }
}

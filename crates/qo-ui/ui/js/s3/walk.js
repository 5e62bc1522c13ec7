// Finding tasks in a bucket, page by page.
//
// | query | method | cost of a page of 50 |
// | --- | --- | --- |
// | one id | its key | 1 GET |
// | due, scheduled, running | their index | 1 LIST, 50 GETs |
// | anything, a shard, the prefix of an id | list of tasks, most recently changed first | 1 LIST, 50 GETs |
// | a status without an index, a type, a tag, a worker | the same list, reading each task | 1 LIST, up to 400 GETs; then the user can continue |
//
// A list returns up to a thousand keys, ordered by id. Within such a page, tasks are sorted by their last change, which the list
// contains. A global order by last change would require reading all of them.

import { isTaskId, readEntry, readLease, SHARDS, taskIdOf } from '../record/keys.js';
import { matches } from '../search.js';
import { PAGE_MAX } from './client.js';

const EXAMINED_MAX = 400;
const BATCH = 50;

export class Walk {
  /** The last list of tasks, so that paging does not list again. */
  #window;

  constructor(client, cache) {
    this.client = client;
    this.cache = cache;
  }

  /** @returns {Promise<{tasks: object[], next?: object, examined: number, order: string, total?: number}>} */
  async page(query, cursor, limit = 50) {
    if (query.id && isTaskId(query.id)) {
      const task = await this.cache.read(query.id);
      const found = task && matches(query, task, this.client.clock.now()) ? [task] : [];
      return { tasks: found, examined: 1, order: 'id', total: found.length };
    }
    if (query.id === '' || query.id === undefined) {
      const index = indexOf(query);
      if (index) return this.#indexPage(index, query, cursor, limit);
    }
    return this.#taskPage(query, cursor, limit);
  }

  async #indexPage({ prefix, idOf, order }, query, cursor, limit) {
    const list = await this.client.list(prefix, { after: cursor?.after, max: PAGE_MAX });
    const tasks = [];
    const unreadable = [];
    const seen = new Set();
    let examined = 0;
    let at = 0;
    while (at < list.entries.length && tasks.length < limit && examined < EXAMINED_MAX) {
      const batch = [];
      while (at < list.entries.length && batch.length < Math.min(BATCH, limit - tasks.length)) {
        const id = idOf(list.entries[at].key);
        at += 1;
        if (id && !seen.has(id)) batch.push(id);
        seen.add(id);
      }
      examined += batch.length;
      const found = await this.cache.ofIds(batch);
      unreadable.push(...batch.filter((id) => this.cache.isUnreadable(id)));
      tasks.push(...found.filter((task) => matches(query, task, this.client.clock.now())));
    }
    const isEnd = at >= list.entries.length && !list.truncated;
    const complete = !list.truncated && !cursor && examined === list.entries.length;
    return {
      tasks,
      unreadable,
      examined,
      order,
      next: isEnd ? undefined : { after: list.entries[at - 1].key },
      total: complete ? tasks.length : undefined,
    };
  }

  async #taskPage(query, cursor, limit) {
    const tasks = [];
    const unreadable = [];
    let examined = 0;
    let start = cursor?.start;
    let offset = cursor?.offset ?? 0;
    for (;;) {
      const window = await this.#list(query, start, cursor !== undefined);
      while (offset < window.entries.length) {
        const batch = window.entries.slice(offset, offset + Math.min(BATCH, limit - tasks.length));
        offset += batch.length;
        examined += batch.length;
        const found = await this.cache.ofEntries(batch);
        unreadable.push(...batch.map((entry) => taskIdOf(entry.key)).filter((id) => this.cache.isUnreadable(id)));
        tasks.push(...found.filter((task) => matches(query, task, this.client.clock.now())));
        if (tasks.length >= limit || examined >= EXAMINED_MAX) break;
      }
      const isOver = offset >= window.entries.length;
      const position = isOver ? window.next && { start: window.next, offset: 0 } : { start, offset };
      if (!position || tasks.length >= limit || examined >= EXAMINED_MAX) {
        const whole = !window.next && !start;
        return {
          tasks,
          unreadable,
          examined,
          next: position,
          order: whole ? 'changed' : 'changed in part',
          listed: window.entries.length,
          total: whole && isOver && !cursor ? tasks.length : undefined,
          all: whole && isPlain(query) ? window.entries.length : undefined,
        };
      }
      ({ start, offset } = position);
    }
  }

  async #list(query, start, mayBeOld) {
    const prefix = taskPrefix(query);
    const name = `${prefix} ${start ?? ''}`;
    if (mayBeOld && this.#window?.name === name) return this.#window;
    const list = await this.client.list(prefix, { after: start, max: PAGE_MAX });
    const entries = list.entries.filter((entry) => taskIdOf(entry.key));
    const next = list.truncated ? list.entries.at(-1).key : undefined;
    if (query.sort !== 'id') entries.sort((a, b) => b.modified - a.modified || (a.key < b.key ? -1 : 1));
    this.#window = { name, entries, next };
    return this.#window;
  }
}

/** Whether a query can be answered without reading records. */
function isPlain(query) {
  return !query.statuses?.length && !query.type && !query.queue && !query.tag && !query.worker && !query.text && !query.any && !query.none && !query.alternatives && query.since === undefined && query.until === undefined;
}

function taskPrefix(query) {
  if (query.id) return `tasks/${query.id[0]}/${query.id}`;
  return query.shard && SHARDS.includes(query.shard) ? `tasks/${query.shard}/` : 'tasks/';
}

/** The index that contains all matching tasks, if there is one. */
function indexOf(query) {
  const [status, ...others] = query.statuses ?? [];
  if (others.length > 0) return undefined;
  if (status === 'due') {
    const within = query.queue && query.type ? `${query.queue}/${query.type}/` : query.queue ? `${query.queue}/` : '';
    return { prefix: `ready/${within}`, idOf: (key) => readEntry(key)?.id, order: 'urgency' };
  }
  if (status === 'scheduled') return { prefix: 'later/', idOf: (key) => readEntry(key)?.id, order: 'due' };
  if (status === 'running') {
    const within = query.shard ? `${query.shard}/` : '';
    return { prefix: `leases/${within}`, idOf: (key) => readLease(key)?.id, order: 'lease' };
  }
  return undefined;
}

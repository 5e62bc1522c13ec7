// A survey of a bucket with few requests.
//
// Due, scheduled and running tasks are counted from their indexes. Other statuses have no index: with few tasks all of them are read;
// with many, the share of each status is estimated from a sample of the listed tasks, spread evenly over each shard. Every number says
// how it was determined:
//   { value, how: 'exact' | 'estimate' | 'at least' }
//
// A shard with more than a thousand tasks is not listed completely. If its ids are random, the last listed id shows how many are left. Ids
// that qo generates begin with their creation time, so the list of such a shard has its oldest tasks; a second list has its newest.
//
// | data | requests, first time | afterwards |
// | --- | --- | --- |
// | list of each shard | 16 LIST; 16 more (at most 19) for the newest tasks of large buckets | the same, at most every 30 s |
// | indexes and workers | 4 LIST | the same |
// | most recently changed tasks | up to 200 GET | changed ones |
// | sample | up to 192 GET | changed ones |

import { keyFromTime, readEntry, readLease, SHARDS, taskIdOf, timeOfId } from '../record/keys.js';
import { STATUSES } from '../record/record.js';
import { mapConcurrently } from '../source.js';
import { activityOf } from '../activity.js';

const INDEX_PAGES_MAX = 3;
const NEWEST = 200;
const SAMPLE_PER_SHARD = 12;
const WHOLE_MAX = 300;
const RUNNING_READ_MAX = 200;
const LISTS_MAX_AGE_MS = 30_000;
/** The ages of the newest tasks to list, longest first. The longest whose list of the first shard is complete is used for all. */
const NEWEST_SPANS_MS = [86_400_000, 3_600_000, 300_000, 30_000];

export class Survey {
  #lists;
  #counted;

  constructor(client, cache) {
    this.client = client;
    this.cache = cache;
  }

  async take({ force = false } = {}) {
    const now = this.client.clock.now();
    const [shards, ready, later, leases] = await Promise.all([
      this.#shardLists(force),
      this.#index('ready/', readEntry),
      this.#index('later/', readEntry),
      this.#index('leases/', readLease),
    ]);
    const entries = shards.flatMap((shard) => shard.entries);
    const total = estimateTotal(shards);
    const isWhole = total.how === 'exact' && total.value <= WHOLE_MAX;
    const byChange = [...entries].sort((a, b) => b.modified - a.modified);
    const newestEntries = isWhole ? entries : byChange.slice(0, NEWEST);
    const newest = await this.cache.ofEntries(newestEntries);
    const sample = isWhole
      ? newest
      : await this.cache.ofEntries(shards.flatMap((shard) => spread(shard.entries, SAMPLE_PER_SHARD)));
    const running = await this.cache.ofIds(unique(leases.found.map((lease) => lease.id)).slice(0, RUNNING_READ_MAX));
    const counts = this.#counts({ isWhole, sample, total, ready, later, leases, running, now });
    const share = total.value > 0 ? Math.min(entries.length / total.value, 1) : 1;
    return {
      at: this.#lists.now,
      total,
      counts,
      ...pendingOf(ready, later, { running: running.filter((task) => task.status === 'running'), how: counts.running.how === 'exact' ? 'exact' : 'at least' }, now),
      activity: activityOf(newest, {
        now,
        // If not all tasks were read, the data is complete only since the oldest change that was read.
        from: newestEntries.length < entries.length ? newestEntries.at(-1).modified : undefined,
        share: total.how === 'at least' ? 1 : share,
        basis: isWhole ? undefined : { read: newest.length, total },
      }),
    };
  }

  /** Counts all tasks and remembers the result. */
  async countAll(walkAll) {
    const counts = Object.fromEntries([...STATUSES, 'due', 'scheduled'].map((status) => [status, 0]));
    let total = 0;
    for await (const task of walkAll) {
      total += 1;
      counts[task.status] += 1;
      if (task.status === 'pending') counts[task.available_at <= this.client.clock.now() ? 'due' : 'scheduled'] += 1;
    }
    this.#counted = { at: this.client.clock.now(), total, counts };
    return this.#counted;
  }

  async #shardLists(force) {
    const isFresh = this.#lists && !force && Date.now() - this.#lists.at < LISTS_MAX_AGE_MS;
    if (!isFresh) {
      const shards = await mapConcurrently(SHARDS, 16, async (shard) => {
        const list = await this.client.list(`tasks/${shard}/`);
        return { shard, truncated: list.truncated, entries: list.entries.filter((entry) => taskIdOf(entry.key)) };
      });
      await this.#addNewest(shards.filter(isCutByTime));
      this.#lists = { at: Date.now(), now: this.client.clock.now(), shards };
    }
    return this.#lists.shards;
  }

  /** Adds the newest tasks of shards whose list ends with an older one. */
  async #addNewest(shards) {
    if (shards.length === 0) return;
    const now = this.client.clock.now();
    const list = ({ shard }, span) => this.client.list(`tasks/${shard}/`, { after: keyFromTime(shard, now - span) });
    let span;
    for (span of NEWEST_SPANS_MS) {
      if (!(await list(shards[0], span)).truncated) break;
    }
    await mapConcurrently(shards, 16, async (shard) => {
      const known = new Set(shard.entries.map((entry) => entry.key));
      const { entries } = await list(shard, span);
      shard.entries.push(...entries.filter((entry) => taskIdOf(entry.key) && !known.has(entry.key)));
    });
  }

  async #index(prefix, read) {
    const found = [];
    let after;
    for (let page = 0; page < INDEX_PAGES_MAX; page += 1) {
      const list = await this.client.list(prefix, { after });
      for (const { key } of list.entries) {
        const entry = read(key);
        if (entry) found.push(entry);
      }
      if (!list.truncated) return { found, how: 'exact' };
      after = list.entries.at(-1).key;
    }
    return { found, how: 'at least' };
  }

  #counts({ isWhole, sample, total, ready, later, leases, running, now }) {
    const counts = {};
    const ofIndex = (index) => ({ value: unique(index.found.map((entry) => entry.id)).length, how: index.how });
    counts.due = ofIndex(ready);
    counts.scheduled = ofIndex(later);
    counts.running = ofIndex(leases);
    if (leases.how === 'exact' && counts.running.value <= RUNNING_READ_MAX) {
      // All of them were read, so stale entries do not count.
      counts.running.value = running.filter((task) => task.status === 'running').length;
    } else {
      // Entries that are left over from ended attempts count too.
      counts.running.how = 'estimate';
    }
    for (const status of ['completed', 'failed', 'cancelled', 'archived']) {
      const seen = sample.filter((task) => task.status === status).length;
      counts[status] = isWhole
        ? { value: seen, how: 'exact' }
        : { value: sample.length > 0 ? Math.round((seen / sample.length) * total.value) : 0, how: 'estimate' };
    }
    if (isWhole) {
      const pending = sample.filter((task) => task.status === 'pending');
      counts.due = { value: pending.filter((task) => task.available_at <= now).length, how: 'exact' };
      counts.scheduled = { value: pending.length - counts.due.value, how: 'exact' };
    } else if (this.#counted) {
      for (const [status, value] of Object.entries(this.#counted.counts)) {
        if (counts[status]?.how === 'estimate') counts[status] = { value, how: 'exact', at: this.#counted.at };
      }
    }
    return { ...counts, sampled: isWhole ? undefined : sample.length };
  }
}

/** Whether a list was cut short, and its ids are in the order of their creation. */
function isCutByTime({ truncated, entries }) {
  return truncated && entries.length > 0 && timeOfId(taskIdOf(entries.at(-1).key)) !== undefined;
}

/** Some entries at equal distances. */
function spread(entries, many) {
  if (entries.length <= many) return entries;
  return Array.from({ length: many }, (_, index) => entries[Math.floor(((index + 0.5) * entries.length) / many)]);
}

/** The number of tasks. Where ids are uniformly distributed, the last id of a truncated list shows how many are left. */
function estimateTotal(shards) {
  let value = 0;
  let how = 'exact';
  for (const list of shards) {
    const { shard, truncated, entries } = list;
    if (!truncated || entries.length === 0 || isCutByTime(list)) {
      value += entries.length;
      if (isCutByTime(list)) how = 'at least';
      continue;
    }
    if (how === 'exact') how = 'estimate';
    const start = Number.parseInt(shard, 16) * 2 ** 28;
    const reached = Number.parseInt(taskIdOf(entries.at(-1).key).slice(0, 8), 16) - start;
    value += Math.round(entries.length / Math.max(reached / 2 ** 28, 1e-6));
  }
  return { value, how };
}

/** The tasks of each queue that are pending or running, and the oldest due task. */
function pendingOf(ready, later, active, now) {
  const queues = new Map();
  const at = (name) => {
    const none = (how) => ({ value: 0, how });
    const queue = queues.get(name) ?? { due: none(ready.how), scheduled: none(later.how), running: none(active.how), types: new Map(), oldestDue: undefined };
    queues.set(name, queue);
    return queue;
  };
  const add = (entry, field) => {
    const queue = at(entry.queue);
    queue[field].value += 1;
    queue.types.set(entry.type, (queue.types.get(entry.type) ?? 0) + 1);
    if (entry.availableAt <= now) queue.oldestDue = Math.min(queue.oldestDue ?? Infinity, entry.availableAt);
  };
  for (const entry of ready.found) add(entry, 'due');
  for (const entry of later.found) add(entry, 'scheduled');
  for (const task of active.running) at(task.queue).running.value += 1;
  const how = ready.how === 'exact' && later.how === 'exact' ? 'exact' : 'at least';
  for (const queue of queues.values()) {
    queue.pending = { value: queue.due.value + queue.scheduled.value, how };
    queue.typesHow = how;
  }
  const oldest = ready.found.reduce((first, entry) => (first && first.availableAt <= entry.availableAt ? first : entry), undefined);
  return {
    queues,
    oldestDue: oldest && { at: oldest.availableAt, how: ready.how },
    pendingChecked: how === 'exact' ? undefined : ready.found.length + later.found.length,
  };
}

const unique = (items) => [...new Set(items)];

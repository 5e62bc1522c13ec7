// The overview of a server.
//
// | figure | where it comes from |
// | --- | --- |
// | tasks by status, and by queue and status | the server's counters, exact unless it says `partial` |
// | due and scheduled | the pending tasks, exact if one page lists them all; else at least the listed ones |
// | busiest types | the server's counters |
// | rate, failures, latency | counters that the server keeps, if all changes of the queue pass through it; else tasks submitted within a span that is short enough to be listed completely |
// | dead letters | the newest failed tasks of the list |

import { activityOf, countedActivity } from '../activity.js';

const PAGE = 1000;
const DEAD_LETTERS = 200;
/** The spans of recent tasks, longest first. */
const SPANS_MS = [3_600_000, 900_000, 300_000, 60_000, 10_000];
const WIDEN_AFTER_MS = 60_000;
const LISTS_SLOW_MS = 200;
const LISTS_MAX_AGE_MS = 5_000;
const STATUSES = ['pending', 'running', 'completed', 'failed', 'cancelled', 'archived'];
const PENDING_FIELDS = ['queue', 'task_type', 'status', 'available_at'];
const RECENT_FIELDS = ['queue', 'task_type', 'status', 'created_at', 'available_at', 'started_at', 'completed_at', 'updated_at'];
const FAILED_FIELDS = ['id', 'task_type', 'status', 'last_error', 'updated_at'];

export class ServerOverview {
  #list;
  #lists;
  #span = 0;
  /** When a longer span was last found to be too long. */
  #narrowedAt = -Infinity;

  /** @param {(query: object, options: object) => Promise<{tasks: object[], next?: string}>} list */
  constructor(list) {
    this.#list = list;
  }

  /**
   * @param counted what the server has counted, if it covers the queue
   * @param chosen the same for one queue or type, if the charts show only that, as `{ report, queue, type }`
   */
  async take(stats, workers, now, { force = false, counted, chosen } = {}) {
    const { pending, failed, recent } = await this.#takeLists(now, force, counted !== undefined);
    const { counts, total } = countsOf(stats);
    const queues = queuesOf(stats, pending, now);
    const sum = (name) => [...queues.values()].reduce((so, queue) => ({ value: so.value + queue[name].value, how: worse(so.how, queue[name].how) }), { value: 0, how: 'exact' });
    counts.due = sum('due');
    counts.scheduled = sum('scheduled');
    const whole = counted && countedActivity(counted);
    // The choices and the rates of queues are those of all tasks, whatever the charts show.
    const activity = whole ? { ...(chosen ? countedActivity(chosen.report) : whole), chosen: chosen && { queue: chosen.queue, type: chosen.type }, queueRates: whole.queueRates, pairs: whole.pairs } : activityOf(recent.tasks, { now, from: now - recent.span, share: 1 });
    if (!counted) {
      activity.how = recent.isWhole ? 'estimate' : 'at least';
      activity.aside = recent.isWhole
        ? 'Of the tasks that were submitted within this time.'
        : `Of ${recent.tasks.length} of the tasks that were submitted within this time; there were more.`;
    }
    Object.assign(activity, {
      types: typesOf(stats),
      typesNote: 'of all tasks',
      deadLetters: [...failed.tasks].sort((a, b) => b.updated_at - a.updated_at).slice(0, 8),
      deadLettersFrom: failed.next ? failed.tasks.length : undefined,
    });
    const oldest = Math.min(...[...queues.values()].map((queue) => queue.oldestDue ?? Infinity));
    return {
      at: now,
      total,
      counts,
      workers,
      activity,
      queues,
      pendingChecked: pending.next ? pending.tasks.length : undefined,
      pauses: pausesOf(stats),
      oldestDue: Number.isFinite(oldest) ? { at: oldest, how: 'exact' } : undefined,
    };
  }

  /** Reads the lists. If that takes long, the counters are still read every time, but the lists only every few seconds. */
  async #takeLists(now, force, isCounted) {
    const known = this.#lists;
    if (known && known.isCounted === isCounted && !force && known.tookMs > LISTS_SLOW_MS && performance.now() - known.at < LISTS_MAX_AGE_MS) return known;
    const started = performance.now();
    const [pending, failed, recent] = await Promise.all([
      this.#list({ statuses: ['pending'] }, { limit: PAGE, fields: PENDING_FIELDS }),
      this.#list({ statuses: ['failed'] }, { limit: DEAD_LETTERS, fields: FAILED_FIELDS }),
      isCounted ? undefined : this.#recent(now),
    ]);
    this.#lists = { pending, failed, recent, isCounted, at: performance.now(), tookMs: performance.now() - started };
    return this.#lists;
  }

  /** The tasks submitted within the longest span that one page lists completely. It is remembered for the next time. */
  async #recent(now) {
    for (;;) {
      const span = SPANS_MS[this.#span];
      const { tasks, next } = await this.#list({ statuses: [], since: now - span }, { limit: PAGE, fields: RECENT_FIELDS });
      if (next && this.#span < SPANS_MS.length - 1) {
        this.#span += 1;
        this.#narrowedAt = now;
        continue;
      }
      if (!next && this.#span > 0 && now - this.#narrowedAt > WIDEN_AFTER_MS && (tasks.length * SPANS_MS[this.#span - 1]) / span < PAGE * 0.8) this.#span -= 1;
      return { tasks, span, isWhole: !next };
    }
  }
}

/** The number of tasks by status. */
export function countsOf(stats) {
  const how = stats.partial ? 'at least' : 'exact';
  const counts = Object.fromEntries(STATUSES.map((status) => [status, { value: 0, how }]));
  const total = { value: 0, how };
  for (const queue of Object.values(stats.queues)) {
    for (const [status, many] of Object.entries(queue.statuses)) {
      counts[status] ??= { value: 0, how };
      counts[status].value += many;
      total.value += many;
    }
  }
  return { counts, total };
}

/** The counts of each queue. Without an overdue task, all pending tasks of a queue are scheduled; other splits need the list. */
export function queuesOf(stats, pending, now) {
  const listed = new Map();
  for (const task of pending.tasks) {
    const queue = listed.get(task.queue) ?? { due: 0, scheduled: 0, types: new Map() };
    queue[task.available_at <= now ? 'due' : 'scheduled'] += 1;
    queue.types.set(task.task_type, (queue.types.get(task.task_type) ?? 0) + 1);
    listed.set(task.queue, queue);
  }
  const whole = stats.partial ? 'at least' : 'exact';
  const queues = new Map();
  for (const [name, { statuses, oldest_due: oldest, types_by_status: byStatus }] of Object.entries(stats.queues)) {
    const known = listed.get(name) ?? { due: 0, scheduled: 0, types: new Map() };
    const waiting = statuses.pending ?? 0;
    const isListed = !pending.next || known.due + known.scheduled >= waiting;
    const isScheduled = !oldest && !stats.partial && !isListed;
    queues.set(name, {
      pending: { value: waiting, how: whole },
      due: isScheduled ? { value: 0, how: 'exact' } : { value: known.due, how: isListed ? whole : 'at least' },
      scheduled: isScheduled ? { value: waiting, how: 'exact' } : { value: known.scheduled, how: isListed ? whole : 'at least' },
      running: { value: statuses.running ?? 0, how: whole },
      types: byStatus ? new Map(Object.entries(byStatus).map(([type, of]) => [type, of.pending ?? 0]).filter(([, many]) => many > 0)) : known.types,
      typesHow: byStatus ? whole : isListed ? 'exact' : 'at least',
      oldestDue: oldest ? Date.parse(oldest) : undefined,
    });
  }
  return queues;
}

/** The task types with the most tasks. */
function typesOf(stats) {
  const types = new Map();
  for (const { types_by_status: byStatus = {} } of Object.values(stats.queues)) {
    for (const [name, statuses] of Object.entries(byStatus)) {
      const type = types.get(name) ?? { type: name, total: 0, failed: 0 };
      type.total += Object.values(statuses).reduce((sum, many) => sum + many, 0);
      type.failed += statuses.failed ?? 0;
      types.set(name, type);
    }
  }
  return [...types.values()].sort((a, b) => b.total - a.total).slice(0, 8);
}

function worse(a, b) {
  return a === 'exact' ? b : a;
}

/** What is paused. Older servers tell only which queues are. */
function pausesOf(stats) {
  const read = (pauses = {}) => Object.entries(pauses).map(([name, pause]) => [name, { ...pause, since: pause.since && Date.parse(pause.since) }]);
  const queues = Object.entries(stats.queues).filter(([, queue]) => queue.paused).map(([name]) => [name, {}]);
  return { queues: new Map([...queues, ...read(stats.pauses?.queues)]), types: new Map(read(stats.pauses?.types)) };
}

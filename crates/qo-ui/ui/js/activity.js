// Recent activity, computed from tasks: throughput, latency, task types and dead letters.

const BARS = 36;
const BARS_MAX = 48;
const SPANS_MS = [5, 15, 30, 60, 180, 360, 720, 1440, 2880, 10_080].map((minutes) => minutes * 60_000);
const ENDS = ['completed', 'failed', 'cancelled'];
export const PHASES = ['wait', 'run', 'total'];

/**
 * @param {object[]} tasks
 * @param {{now: number, from?: number, share: number, basis?: object}} options `from` is the time since which `tasks` is complete;
 *   `share` is the fraction of all tasks that `tasks` was selected from
 */
export function activityOf(tasks, { now, from, share, basis }) {
  const ended = tasks.filter((task) => ENDS.includes(endOf(task)) && task.completed_at !== undefined);
  const oldest = from ?? Math.min(...ended.map((task) => task.completed_at), now);
  const reach = now - oldest;
  // The longest span with complete data. If all tasks are known, the shortest span that contains them.
  const fitting = SPANS_MS.filter((span) => span <= reach).at(-1);
  const span = from === undefined ? (SPANS_MS.find((known) => known >= reach) ?? SPANS_MS.at(-1)) : (fitting ?? Math.max(reach, 1));
  const start = now - span;
  const width = span / BARS;
  const bars = Array.from({ length: BARS }, (_, index) => ({ at: start + index * width, completed: 0, failed: 0, cancelled: 0 }));
  const inSpan = ended.filter((task) => task.completed_at >= start);
  for (const task of inSpan) {
    const bar = bars[Math.min(Math.floor((task.completed_at - start) / width), BARS - 1)];
    bar[endOf(task)] += 1 / share;
  }
  const done = inSpan.filter((task) => endOf(task) === 'completed');
  return {
    start,
    span,
    width,
    bars,
    ended: inSpan.length,
    rate: (inSpan.length / share / span) * 60_000,
    failureShare: inSpan.length > 0 ? inSpan.filter((task) => endOf(task) === 'failed').length / inSpan.length : undefined,
    latency: {
      count: done.length,
      wait: percentiles(done.map((task) => task.started_at - task.available_at)),
      run: percentiles(done.map((task) => task.completed_at - task.started_at)),
      total: percentiles(done.map((task) => task.completed_at - task.created_at)),
    },
    types: typesOf(tasks.filter((task) => task.updated_at >= start)),
    deadLetters: tasks.filter((task) => task.status === 'failed').sort((a, b) => b.updated_at - a.updated_at).slice(0, 8),
    deadLettersFrom: basis?.read,
    queueRates: queueRates(inSpan, share, span),
    basis: share < 1 || basis ? basis : undefined,
    how: share < 1 || (basis?.total && basis.total.how !== 'exact') ? 'estimate' : 'exact',
  };
}

/**
 * The activity that a server has counted.
 * @param {object} report the response of `/v1/activity`
 */
export function countedActivity(report) {
  const [from, to, since] = [report.from, report.to, report.since].map(Date.parse);
  const step = report.step_seconds * 1000;
  // As many steps in a bar as needed for bars that can be told apart.
  const width = Math.ceil((to - from) / step / BARS_MAX) * step;
  const bars = [];
  for (let at = from; at <= to; at += width) bars.push({ at, completed: 0, failed: 0, cancelled: 0, latencies: {} });
  for (const point of report.points) {
    const bar = bars[Math.floor((Date.parse(point.at) - from) / width)];
    if (!bar) continue;
    for (const name of ENDS) bar[name] += point[name];
    for (const phase of PHASES) bar.latencies[phase] = together(bar.latencies[phase], point[phase]);
  }
  const sum = (name) => report.points.reduce((so, point) => so + point[name], 0);
  const ended = sum('completed') + sum('failed') + sum('cancelled');
  // A server that has just started has not seen the whole period.
  const counted = Math.max(to - Math.max(from, since), 60_000);
  const queueRates = new Map();
  for (const type of report.types) {
    const finished = type.completed + type.failed + type.cancelled;
    if (finished > 0) queueRates.set(type.queue, (queueRates.get(type.queue) ?? 0) + (finished / counted) * 60_000);
  }
  const latencyOf = (found) => found && { p50: found.p50_ms, p95: found.p95_ms, p99: found.p99_ms, max: found.max_ms };
  return {
    start: from,
    span: bars.length * width,
    width,
    bars,
    ended,
    rate: (ended / counted) * 60_000,
    failureShare: ended > 0 ? sum('failed') / ended : undefined,
    latency: { count: report.total?.count ?? 0, columns: ['p50', 'p95', 'p99'], of: 'finished task', wait: latencyOf(report.wait), run: latencyOf(report.run), total: latencyOf(report.total) },
    queueRates,
    how: 'exact',
    since: since > from ? since : undefined,
    resumedAt: report.resumed_at && Date.parse(report.resumed_at),
    period: report.period,
    pairs: report.types.map(({ queue, task_type: type }) => ({ queue, type })),
  };
}

/** The latencies of two steps. Percentiles of a whole do not follow from those of its parts, so they are weighted means: estimates of estimates. */
export function together(one, step) {
  if (!step) return one;
  const count = (one?.count ?? 0) + step.count;
  const mean = (name) => ((one?.[name] ?? 0) * (one?.count ?? 0) + step[`${name}_ms`] * step.count) / count;
  return { count, p50: mean('p50'), p95: mean('p95'), p99: mean('p99'), max: Math.max(one?.max ?? 0, step.max_ms) };
}

/** The final status of a task, even if it has been archived since. Lists of a server omit the events, and then it is not known. */
function endOf(task) {
  if (task.status !== 'archived') return task.status;
  return task.events.findLast((event) => event.to === 'archived')?.from;
}

export function percentiles(values) {
  const sorted = values.filter((value) => Number.isFinite(value) && value >= 0).sort((a, b) => a - b);
  if (sorted.length === 0) return undefined;
  const at = (share) => sorted[Math.min(Math.ceil(share * sorted.length) - 1, sorted.length - 1)];
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: sorted.at(-1) };
}

function typesOf(tasks) {
  const types = new Map();
  for (const task of tasks) {
    const type = types.get(task.task_type) ?? { type: task.task_type, total: 0, failed: 0 };
    type.total += 1;
    if (task.status === 'failed') type.failed += 1;
    types.set(task.task_type, type);
  }
  return [...types.values()].sort((a, b) => b.total - a.total).slice(0, 8);
}

function queueRates(tasks, share, span) {
  const rates = new Map();
  for (const task of tasks) rates.set(task.queue, (rates.get(task.queue) ?? 0) + 60_000 / share / span);
  return rates;
}

// What is used of a limit, and whether a task waits for it, from its record in the bucket, as `crates/qo-core/src/limit/window.rs` counts it.

/** The key of a limit's record. */
export const limitRecordKey = (name) => `limits/${name}.json`;

/** What is used of a limit at a time (milliseconds). `text` is its record; nobody has used the limit if there is none. */
export function limitUsage(limit, text, now) {
  const { holders = [], starts = [] } = text === undefined ? {} : JSON.parse(text);
  const usage = {};
  if (limit.concurrent !== undefined) usage.running = holders.length;
  if (limit.starts) {
    const counts = ([end]) => Date.parse(end) + limit.starts.window_ms > now;
    usage.started = starts.filter(counts).reduce((sum, [, count]) => sum + count, 0);
  }
  return usage;
}

/** Whether a limit applies to a task. */
export const limitApplies = (limit, task) => ['queue', 'task_type', 'limit_key'].every((field) => limit[field] === undefined || limit[field] === task[field]);

/** Why a limit keeps a task from starting; undefined if it has room. */
export function limitWait(limit, text, now) {
  const { running, started } = limitUsage(limit, text, now);
  if (running >= limit.concurrent) return { reason: 'limit', limit: limit.name, bound: 'concurrent', used: running, max: limit.concurrent };
  if (!(started >= limit.starts?.max)) return undefined;
  let left = started;
  for (const [end, count] of JSON.parse(text).starts) {
    const leaves = Date.parse(end) + limit.starts.window_ms;
    if (leaves > now) left -= count;
    if (left < limit.starts.max) return { reason: 'limit', limit: limit.name, bound: 'starts', used: started, max: limit.starts.max, until: new Date(leaves).toISOString() };
  }
  return undefined;
}

// What is used of a limit, from its record in the bucket, as `crates/qo-core/src/limit/window.rs` counts it.

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

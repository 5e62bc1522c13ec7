// The record of the paused queues, as the engine writes it (`crates/qo-direct/src/queues.rs`).

import { timeText } from './schema.js';
import { sortedByBytes } from '../json/scan.js';

const RECENT_OPS_MAX = 32;

/** The paused queues, with the time since when they are paused. */
export function readPaused(text) {
  return text === undefined ? {} : (JSON.parse(text).paused ?? {});
}

/** The record after a queue is paused or resumed. */
export function setPaused(text, queue, paused, op, now) {
  const record = text === undefined ? { revision: 0 } : JSON.parse(text);
  const queues = { ...(record.paused ?? {}) };
  if (paused) queues[queue] = timeText(now);
  else delete queues[queue];
  const recent = [...(record.recent_ops ?? [])];
  if (record.op_id) recent.push(record.op_id);
  return JSON.stringify({
    revision: record.revision + 1,
    op_id: op,
    recent_ops: recent.slice(-RECENT_OPS_MAX),
    paused: Object.fromEntries(sortedByBytes(Object.entries(queues))),
  });
}

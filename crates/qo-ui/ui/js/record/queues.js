// The record of the paused queues and types, as the engine writes it (`crates/qo-direct/src/paused_queues.rs`).

import { timeText } from './schema.js';
import { cutText } from './transitions.js';
import { sortedByBytes } from '../json/scan.js';

const RECENT_OPS_MAX = 32;
const REASON_MAX_BYTES = 512;

/** What is paused: `queues` and `types`, maps from names to `{ since, by, reason }`. */
export function readPauses(text) {
  const record = text === undefined ? {} : JSON.parse(text);
  const join = (paused = {}, notes = {}) => new Map(Object.entries(paused).map(([name, since]) => [name, { ...notes[name], since: Date.parse(since) }]));
  return { queues: join(record.paused, record.queue_notes), types: join(record.paused_types, record.type_notes) };
}

/** The pause that a task waits for, as a server says it; undefined if neither its queue nor its type is paused. */
export function waitsForPause({ queue, task_type }, { queues, types }) {
  const pause = queues.get(queue) ?? types.get(task_type);
  return pause && { reason: 'paused', ...(queues.has(queue) ? { queue } : { task_type }), by: pause.by, note: pause.reason };
}

/**
 * The record after a queue or a type is paused, or resumed if there is no note; undefined if it is so already.
 * @param {{ queue?: string, type?: string }} target
 * @param {{ by?: string, reason?: string }} [note]
 */
export function setPaused(text, target, note, op, now) {
  const { revision = 0, op_id: before, recent_ops: recent = [], paused = {}, paused_types: pausedTypes = {}, queue_notes: queueNotes = {}, type_notes: typeNotes = {}, ...later } = text === undefined ? {} : JSON.parse(text);
  const isQueue = target.queue !== undefined;
  const name = isQueue ? target.queue : target.type;
  const [times, notes] = isQueue ? [paused, queueNotes] : [pausedTypes, typeNotes];
  const isPaused = Object.hasOwn(times, name);
  if (!note) {
    if (!isPaused) return undefined;
    delete times[name];
    delete notes[name];
  } else {
    const reason = note.reason?.trim() ? cutText(note.reason.trim(), REASON_MAX_BYTES) : undefined;
    if (isPaused && (reason === undefined || notes[name]?.reason === reason)) return undefined;
    if (!isPaused) times[name] = timeText(now);
    delete notes[name];
    if (note.by || reason) notes[name] = { ...(note.by && { by: note.by }), ...(reason && { reason }) };
  }
  const sorted = (map) => Object.fromEntries(sortedByBytes(Object.entries(map)));
  const unlessEmpty = (field, map) => (Object.keys(map).length > 0 ? { [field]: sorted(map) } : {});
  return JSON.stringify({
    revision: revision + 1,
    op_id: op,
    recent_ops: [...recent, ...(before ? [before] : [])].slice(-RECENT_OPS_MAX),
    paused: sorted(paused),
    ...unlessEmpty('paused_types', pausedTypes),
    ...unlessEmpty('queue_notes', queueNotes),
    ...unlessEmpty('type_notes', typeNotes),
    ...later,
  });
}

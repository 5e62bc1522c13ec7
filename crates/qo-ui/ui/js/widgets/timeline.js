// The history of a task, by attempt: newest attempt first, its events in order.

import { h } from '../dom.js';
import { duration } from '../format.js';
import { shownError } from '../record/sealed.js';
import { badge, timeOf } from './basics.js';

export function timeline(task, source) {
  const groups = [];
  for (const event of task.events) {
    if (groups.length === 0 || actionOf(event) === 'claimed') groups.push({ attempt: event.attempt, events: [] });
    groups.at(-1).events.push(event);
  }
  if (groups.length === 0) return h('p', { class: 'faint' }, 'The record contains no history.');
  return h('ol', { class: 'timeline', reversed: true }, groups.reverse().map((group) => attempt(group, source)));
}

function attempt({ attempt: number, events }, source) {
  const first = events[0];
  const end = events.find((event) => event.from === 'running' && event.to !== 'running');
  const isAttempt = first.to === 'running';
  return h('li', { class: 'attempt', key: `${number} ${first.at}` },
    h('div', { class: 'attempt-head' },
      h('strong', {}, isAttempt ? `Attempt ${number}` : 'Before the first attempt'),
      first.worker && h('span', { class: 'mono' }, first.worker),
      isAttempt && h('span', { class: 'faint' }, end ? duration(end.at - first.at) : 'running')),
    h('ul', {}, events.map((event) => h('li', { class: `event ${event.to}`, key: event.op_id ?? String(event.at) },
      h('span', { class: `dot ${event.to}` }),
      h('span', { class: 'event-what' }, label(event)),
      h('span', { class: 'when' }, timeOf(event.at, source)),
      event.by && h('span', { class: 'event-by' }, `by ${event.by}`),
      event.error && h('span', { class: `event-error ${isFault(event) ? 'fault' : ''}` }, shownError(event.error))))));
}

const LABELS = {
  submitted: 'Submitted',
  claimed: 'Claimed',
  released: 'Released',
  snoozed: 'Snoozed',
  cancel_requested: 'Cancel requested',
  expired: 'Expired',
  run_now: 'Made due',
  amended: 'Changed by another submit',
  replayed: 'Replayed',
  redriven: 'Moved',
  archived: 'Archived',
};

/** The action of an event. Events without the field, or with an unknown action, are classified by their statuses. */
export function actionOf(event) {
  const { action, from, to, error } = event;
  if (Object.hasOwn(LABELS, action) || ['completed', 'failed', 'lease_expired', 'cancelled', 'unarchived'].includes(action)) return action;
  if (!from) return 'submitted';
  if (to === 'archived') return 'archived';
  if (from === 'archived') return 'unarchived';
  if (from === 'pending' && to === 'running') return 'claimed';
  if (from === 'pending' && to === 'pending') return 'run_now';
  if (from === 'running' && to === 'running') return 'cancel_requested';
  if (from === 'running' && to === 'pending') {
    if (error === 'released by its worker') return 'released';
    return error === 'snoozed' ? 'snoozed' : 'failed';
  }
  return to === 'pending' ? 'replayed' : to;
}

/** Whether the error of an event is shown as a fault. */
export function isFault(event) {
  return event.from === 'running' && event.to !== 'running' && !['released', 'snoozed'].includes(actionOf(event));
}

function label(event) {
  const action = actionOf(event);
  if (action === 'unarchived') return ['Restored as ', badge(event.to)];
  if (action === 'lease_expired') return event.to === 'pending' ? 'Lease expired' : ['Lease expired, ', badge(event.to)];
  if (action === 'failed' && event.to === 'pending') return 'Failed, to be retried';
  return LABELS[action] ?? [badge(event.to)];
}

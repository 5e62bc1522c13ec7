// What happened to a task, by attempt: newest attempt first, its events in their order.

import { h } from '../dom.js';
import { duration } from '../format.js';
import { badge, timeOf } from './basics.js';

export function timeline(task, source) {
  const groups = [];
  for (const event of task.events) {
    const isNew = groups.length === 0 || (event.to === 'running' && event.from === 'pending');
    if (isNew) groups.push({ attempt: event.attempt, events: [] });
    groups.at(-1).events.push(event);
  }
  if (groups.length === 0) return h('p', { class: 'faint' }, 'The record carries no history.');
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
      isAttempt && h('span', { class: 'faint' }, end ? duration(end.at - first.at) : 'under way')),
    h('ul', {}, events.map((event) => h('li', { class: `event ${event.to}`, key: event.op_id ?? String(event.at) },
      h('span', { class: `dot ${event.to}` }),
      h('span', { class: 'event-what' }, phrase(event)),
      h('span', { class: 'when' }, timeOf(event.at, source)),
      event.error && h('span', { class: `event-error ${isFault(event) ? 'fault' : ''}` }, event.error)))));
}

function isFault(event) {
  return event.from === 'running' && event.to !== 'running' && !['released by its worker', 'snoozed'].includes(event.error);
}

function phrase({ from, to }) {
  if (!from) return 'Submitted';
  if (from === 'pending' && to === 'running') return 'Claimed';
  if (from === 'running' && to === 'running') return 'Asked to stop';
  if (from === 'running' && to === 'pending') return 'Back to waiting';
  if (from === 'pending' && to === 'pending') return 'Made due';
  if (to === 'archived') return 'Archived';
  if (from === 'archived') return ['Brought back as ', badge(to)];
  if (to === 'pending') return 'Replayed';
  return [badge(to)];
}

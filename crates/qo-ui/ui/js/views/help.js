// The list of keyboard shortcuts.

import { h } from '../dom.js';
import { dialog } from '../widgets/dialog.js';

const KEYS = [
  ['/', 'Search tasks'],
  ['j', 'Next task'],
  ['k', 'Previous task'],
  ['Enter', 'Open task'],
  ['x', 'Select or deselect task'],
  ['u', 'Back to the task list'],
  ['r', 'Refresh'],
  ['g o', 'Overview'],
  ['g t', 'Tasks'],
  ['g e', 'Errors'],
  ['g q', 'Queues'],
  ['g c', 'Schedules'],
  ['g w', 'Workers'],
  ['g s', 'Settings'],
  ['?', 'Show shortcuts'],
  ['Esc', 'Leave field, close dialog'],
];

export function showHelp() {
  return dialog('Keyboard shortcuts', (close) => [
    h('dl', { class: 'keys' }, KEYS.map(([keys, what]) => [h('dt', {}, keys.split(' ').map((key) => [h('kbd', {}, key), ' '])), h('dd', {}, what)])),
    h('p', { class: 'hint' }, 'Search: ', h('code', {}, 'type:'), ' ', h('code', {}, 'queue:'), ' ', h('code', {}, 'tag:'), ' ', h('code', {}, 'worker:'), ' ', h('code', {}, 'status:'), ' ', h('code', {}, 'shard:'), ' ', h('code', {}, 'text:'), ' (in errors and inputs), ', h('code', {}, 'since:2h'), ' ', h('code', {}, 'until:2026-11-18'), ', or the prefix of an id. ', h('code', {}, 'type:a,b'), ' means one or the other, ', h('code', {}, 'type:mail*'), ' a prefix, and ', h('code', {}, '-type:a'), ' excludes.'),
    h('footer', {}, h('button', { type: 'button', class: 'primary', on: { click: () => close() } }, 'Close')),
  ]);
}

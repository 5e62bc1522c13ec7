// The keys.

import { h } from '../dom.js';
import { dialog } from '../widgets/dialog.js';

const KEYS = [
  ['/', 'Search tasks'],
  ['j', 'Next task of the list'],
  ['k', 'Task before'],
  ['Enter', 'Open the task'],
  ['x', 'Choose the task, or not'],
  ['u', 'Back to the list'],
  ['r', 'Refresh'],
  ['g o', 'Overview'],
  ['g t', 'Tasks'],
  ['g q', 'Queues'],
  ['g w', 'Workers'],
  ['g s', 'Settings'],
  ['?', 'These keys'],
  ['Esc', 'Leave a field, close a dialog'],
];

export function showHelp() {
  return dialog('Keys', (close) => [
    h('dl', { class: 'keys' }, KEYS.map(([keys, what]) => [h('dt', {}, keys.split(' ').map((key) => [h('kbd', {}, key), ' '])), h('dd', {}, what)])),
    h('p', { class: 'hint' }, 'Searching: ', h('code', {}, 'type:'), ' ', h('code', {}, 'queue:'), ' ', h('code', {}, 'tag:'), ' ', h('code', {}, 'worker:'), ' ', h('code', {}, 'status:'), ' ', h('code', {}, 'shard:'), ', or the start of an id.'),
    h('footer', {}, h('button', { type: 'button', class: 'primary', on: { click: () => close() } }, 'Close')),
  ]);
}

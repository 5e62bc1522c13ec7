// The workers page. Worker records are informational: correctness does not depend on them.

import { h } from '../dom.js';
import { number } from '../format.js';
import { badge, empty, taskLink, timeOf } from '../widgets/basics.js';

const STALE_MS = 60_000;
const DEAD_MS = 300_000;
const TASKS_SHOWN = 4;
export const HEALTHS = ['active', 'stale', 'dead'];

/** Workers send a heartbeat every 10 to 30 s. After a minute without one a worker is stale, after five minutes dead. */
export function healthOf(worker, now) {
  const age = now - worker.last_heartbeat;
  return age <= STALE_MS ? 'active' : age <= DEAD_MS ? 'stale' : 'dead';
}

export class WorkersView {
  title = 'Workers';

  constructor({ app }) {
    this.app = app;
    this.source = app.source;
  }

  async load() {
    this.workers = await this.source.workers();
  }

  render() {
    if (!this.workers) return h('main', { id: 'main', class: 'loading', tabindex: '-1' }, h('h1', {}, 'Workers'), h('p', { class: 'faint' }, 'Loading…'));
    const now = this.source.now();
    const rank = (worker) => HEALTHS.indexOf(healthOf(worker, now));
    const workers = [...this.workers].sort((a, b) => rank(a) - rank(b) || a.worker_id.localeCompare(b.worker_id));
    return h('main', { id: 'main', tabindex: '-1' },
      h('div', { class: 'page-head' }, h('h1', {}, 'Workers'),
        h('span', { class: 'note' }, 'active: heartbeat within a minute · stale: within five minutes · dead: older; its tasks are recovered when their leases expire')),
      workers.length === 0
        ? empty('No workers', h('p', {}, 'Start one with ', h('code', {}, 'qo worker')), 'Tasks wait until a worker is started.')
            : h('div', { class: 'card' },
          h('div', { class: 'scroll' }, h('table', { class: 'rows blocks' },
            h('thead', {}, h('tr', {}, ['Worker', 'Health', 'Heartbeat', 'Host', 'Queues', 'Types'].map(column), column('Slots', 'number'), column('Running now'), column('Completed', 'number'), column('Failed', 'number'), column('Started'))),
            h('tbody', {}, workers.map((worker) => this.#row(worker, now)))))));
  }

  #row(worker, now) {
    const tasks = worker.current_tasks.length > 0 ? worker.current_tasks : worker.current_task ? [worker.current_task] : [];
    return h('tr', { key: worker.worker_id },
      h('th', { scope: 'row', class: 'mono' }, worker.worker_id),
      h('td', { class: 'state-cell' }, badge(healthOf(worker, now))),
      h('td', { class: 'when', 'data-label': 'Heartbeat' }, timeOf(worker.last_heartbeat, this.source)),
      h('td', { 'data-label': 'Host' }, worker.host ?? h('span', { class: 'faint' }, '–')),
      h('td', { 'data-label': 'Queues' }, list(worker.queues)),
      h('td', { 'data-label': 'Types' }, list(worker.types)),
      h('td', { class: 'number', 'data-label': 'Slots' }, `${tasks.length} / ${worker.slots}`),
      h('td', { 'data-label': 'Running now' }, tasks.length === 0 ? h('span', { class: 'faint' }, 'idle') : tasks.slice(0, TASKS_SHOWN).map((id) => [taskLink(id, id.slice(0, 8)), ' ']),
        tasks.length > TASKS_SHOWN && h('span', { class: 'faint' }, `+${tasks.length - TASKS_SHOWN}`)),
      h('td', { class: 'number', 'data-label': 'Completed' }, number(worker.tasks_completed)),
      h('td', { class: 'number', 'data-label': 'Failed' }, number(worker.tasks_failed)),
      h('td', { class: 'when', 'data-label': 'Started' }, timeOf(worker.started_at, this.source)));
  }
}

const column = (name, kind) => h('th', { scope: 'col', class: kind === 'number' ? 'number' : '' }, name);
const list = (names) => (names.length === 0 ? h('span', { class: 'faint' }, 'all') : names.join(', '));

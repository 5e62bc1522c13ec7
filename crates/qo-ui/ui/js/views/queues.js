// The queues page: depth, throughput, paused or not.

import { h } from '../dom.js';
import { count, duration, number, ratePerMinute } from '../format.js';
import { address } from '../router.js';
import { badge, button, empty, timeOf } from '../widgets/basics.js';
import { confirm } from '../widgets/dialog.js';
import { toast } from '../widgets/toast.js';
import { OverviewDataView } from './overview.js';
import { healthOf } from './workers.js';

export class QueuesView extends OverviewDataView {
  title = 'Queues';

  render() {
    const { data } = this;
    if (!data) return h('main', { id: 'main', class: 'loading', tabindex: '-1' }, h('h1', {}, 'Queues'), h('p', { class: 'faint' }, 'Loading…'));
    const rows = this.#rows();
    const notes = [
      data.pendingChecked !== undefined && `due and scheduled tasks (+) are counted among ${number(data.pendingChecked)} pending ones`,
      data.activity.how !== 'exact' && `rates (~) are those of the last ${duration(data.activity.span)}${data.activity.basis ? `, from the ${number(data.activity.basis.read)} tasks changed most recently` : ', of tasks submitted within it'}`,
    ].filter(Boolean).join(' · ');
    return h('main', { id: 'main', tabindex: '-1' },
      h('div', { class: 'page-head' }, h('h1', {}, 'Queues'), h('span', { class: 'note' }, notes)),
      rows.length === 0
        ? empty('No queues yet', 'A queue is created by the first task submitted to it.')
            : h('div', { class: 'card' },
          h('div', { class: 'scroll' }, h('table', { class: 'rows blocks queues-table' },
            h('thead', {}, h('tr', {}, column('Queue'), column('State'), column('Pending', 'number'), column('Due', 'number'), column('Scheduled', 'number'), column('Running', 'number'), column('Oldest due'), column('Finished per minute', 'number'), column('Pending types'), column('Workers', 'number'), column(h('span', { class: 'sr-only' }, 'Actions')))),
            h('tbody', {}, rows.map((row) => this.#row(row)))))));
  }

  #rows() {
    const { queues, paused, workers, activity } = this.data;
    const names = new Set([...queues.keys(), ...paused.keys(), ...activity.queueRates.keys(), ...workers.flatMap((worker) => worker.queues)]);
    const now = this.source.now();
    const none = { value: 0, how: 'exact' };
    return [...names].sort().map((name) => ({
      name,
      since: paused.get(name),
      paused: paused.has(name),
      ...(queues.get(name) ?? { pending: none, due: none, scheduled: none, running: none, types: new Map() }),
      rate: activity.queueRates.get(name) ?? 0,
      workers: workers.filter((worker) => healthOf(worker, now) === 'active' && (worker.queues.length === 0 || worker.queues.includes(name))).length,
    }));
  }

  #row(row) {
    const unattended = (row.due.value > 0 || row.oldestDue) && row.workers === 0 && !row.paused;
    const cell = (label, value, more = '') => h('td', { class: `number ${more}`, 'data-label': label }, value);
    const types = [...row.types.entries()].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([type, waiting]) => `${type} ${count({ value: waiting, how: row.typesHow })}`).join(', ');
    return h('tr', { key: row.name },
      h('th', { scope: 'row' }, h('a', { href: address('tasks', { q: `queue:${row.name}` }) }, row.name)),
      h('td', { class: 'state-cell' }, row.paused ? [badge('paused'), row.since && [' ', h('span', { class: 'faint' }, timeOf(row.since, this.source))]] : unattended ? h('span', { class: 'warn-text' }, 'no worker') : badge('open')),
      cell('Pending', count(row.pending)),
      cell('Due', h('a', { href: address('tasks', { tab: 'due', q: `queue:${row.name}` }) }, count(row.due))),
      cell('Scheduled', h('a', { href: address('tasks', { tab: 'scheduled', q: `queue:${row.name}` }) }, count(row.scheduled))),
      cell('Running', h('a', { href: address('tasks', { tab: 'running', q: `queue:${row.name}` }) }, count(row.running))),
      h('td', { class: 'when', 'data-label': 'Oldest due' }, row.oldestDue ? timeOf(row.oldestDue, this.source) : h('span', { class: 'faint' }, '–')),
      h('td', { class: 'number', title: `in the last ${duration(this.data.activity.span)}`, 'data-label': 'Per minute' }, ratePerMinute(row.rate, this.data.activity.how)),
      h('td', { class: 'types-cell', 'data-label': 'Pending types' }, types || h('span', { class: 'faint' }, '–')),
      cell('Workers', number(row.workers)),
      h('td', { class: 'actions' }, !this.source.readOnly && button(row.paused ? 'Resume' : 'Pause', () => this.#toggle(row), { kind: 'small' })));
  }

  async #toggle({ name, paused }) {
    if (!paused) {
      const sure = await confirm(`Pause queue ${name}?`, ['Workers claim no tasks from it until it is resumed. Running tasks continue, and new tasks can be submitted.'], { action: 'Pause', destructive: true });
      if (!sure) return;
    }
    await this.app.attempt(async () => {
      await this.source.setPaused(name, !paused);
      toast(paused ? `Resumed ${name}` : `Paused ${name}`);
    });
  }
}

const column = (name, kind) => h('th', { scope: 'col', class: kind === 'number' ? 'number' : '' }, name);

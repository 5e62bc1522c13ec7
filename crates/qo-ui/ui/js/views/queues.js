// The queues page: depth, throughput, paused or not.

import { h } from '../dom.js';
import { duration, number } from '../format.js';
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
      data.pending.how === 'at least' && 'depths are based on the first 3,000 index entries',
      data.activity.basis && `rates are based on the ${number(data.activity.basis.read)} most recently changed tasks`,
    ].filter(Boolean).join(' · ');
    return h('main', { id: 'main', tabindex: '-1' },
      h('div', { class: 'page-head' }, h('h1', {}, 'Queues'), h('span', { class: 'note' }, notes)),
      rows.length === 0
        ? empty('No queues yet', 'A queue is created by the first task submitted to it.')
            : h('div', { class: 'card' },
          h('div', { class: 'scroll' }, h('table', { class: 'rows' },
            h('thead', {}, h('tr', {}, column('Queue'), column('State'), column('Due', 'number'), column('Scheduled', 'number'), column('Running', 'number'), column('Oldest due'), column('Finished per minute', 'number'), column('Pending types'), column('Workers', 'number'), column(h('span', { class: 'sr-only' }, 'Actions')))),
            h('tbody', {}, rows.map((row) => this.#row(row)))))));
  }

  #rows() {
    const { pending, running, paused, workers, activity } = this.data;
    const names = new Set([...pending.queues.keys(), ...paused.keys(), ...running.map((task) => task.queue), ...activity.queueRates.keys(), ...workers.flatMap((worker) => worker.queues)]);
    const now = this.source.now();
    return [...names].sort().map((name) => ({
      name,
      since: paused.get(name),
      paused: paused.has(name),
      ...(pending.queues.get(name) ?? { due: 0, scheduled: 0, types: new Map() }),
      running: running.filter((task) => task.queue === name).length,
      rate: activity.queueRates.get(name) ?? 0,
      workers: workers.filter((worker) => healthOf(worker, now) === 'active' && (worker.queues.length === 0 || worker.queues.includes(name))).length,
    }));
  }

  #row(row) {
    const unattended = row.due > 0 && row.workers === 0 && !row.paused;
    return h('tr', { key: row.name },
      h('th', { scope: 'row' }, h('a', { href: address('tasks', { q: `queue:${row.name}` }) }, row.name)),
      h('td', {}, row.paused ? [badge('paused'), row.since && [' ', h('span', { class: 'faint' }, timeOf(row.since, this.source))]] : unattended ? h('span', { class: 'warn-text' }, 'no worker') : badge('open')),
      h('td', { class: 'number' }, h('a', { href: address('tasks', { tab: 'due', q: `queue:${row.name}` }) }, number(row.due))),
      h('td', { class: 'number' }, number(row.scheduled)),
      h('td', { class: 'number' }, number(row.running)),
      h('td', { class: 'when' }, row.oldestDue ? timeOf(row.oldestDue, this.source) : h('span', { class: 'faint' }, '–')),
      h('td', { class: 'number', title: `in the last ${duration(this.data.activity.span)}` }, row.rate >= 10 ? number(row.rate) : row.rate.toFixed(1)),
      h('td', {}, [...row.types.entries()].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([type, waiting]) => `${type} ${number(waiting)}`).join(', ') || h('span', { class: 'faint' }, '–')),
      h('td', { class: 'number' }, number(row.workers)),
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

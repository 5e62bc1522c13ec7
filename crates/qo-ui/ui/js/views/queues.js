// The queues page: depth, throughput, settings, limits, webhooks, and what is paused, by whom and why.

import { h } from '../dom.js';
import { count, duration, number, ratePerMinute } from '../format.js';
import { address } from '../router.js';
import { badge, button, empty, timeOf } from '../widgets/basics.js';
import { confirm, dialog } from '../widgets/dialog.js';
import { toast } from '../widgets/toast.js';
import { OverviewDataView } from './overview.js';
import { webhooksSection } from './webhooks.js';
import { healthOf } from './workers.js';

export class QueuesView extends OverviewDataView {
  title = 'Queues';

  async load(options) {
    const [settings, limits, webhooks] = await Promise.all([this.source.queueSettings(), this.source.limits(), this.source.webhooks(), super.load(options)]);
    Object.assign(this, { settings, limits, webhooks });
  }

  render() {
    const { data } = this;
    if (!data) return h('main', { id: 'main', class: 'loading', tabindex: '-1' }, h('h1', {}, 'Queues'), h('p', { class: 'faint' }, 'Loading…'));
    const rows = this.#rows();
    const hidden = ['workers', 'settings', 'limits', 'pauses'].filter((name) => this.source.hidden.has(name));
    const notes = [
      data.pendingChecked !== undefined && `due and scheduled tasks (+) are counted among ${number(data.pendingChecked)} pending ones`,
      data.activity.how !== 'exact' && `rates (~) are those of the last ${duration(data.activity.span)}${data.activity.basis ? `, from the ${number(data.activity.basis.read)} tasks changed most recently` : ', of tasks submitted within it'}`,
      hidden.length > 0 && `${hidden.join(', ')}: not visible to this ${this.source.kind === 's3' ? 'session' : 'token'}`,
    ].filter(Boolean).join(' · ');
    return h('main', { id: 'main', tabindex: '-1' },
      h('div', { class: 'page-head' }, h('h1', {}, 'Queues'), h('span', { class: 'note' }, notes),
        !this.source.readOnly && button('Pause a type…', () => this.#pauseType(), { kind: 'small' })),
      rows.length === 0
        ? empty('No queues yet', 'A queue is created by the first task submitted to it.')
            : h('div', { class: 'card' },
          h('div', { class: 'scroll' }, h('table', { class: 'rows blocks queues-table' },
            h('thead', {}, h('tr', {}, column('Queue'), column('State'), column('Pending', 'number'), column('Due', 'number'), column('Scheduled', 'number'), column('Running', 'number'), column('Oldest due'), column('Finished per minute', 'number'), column('Pending types'), column('Workers', 'number'), column('Settings'), column(h('span', { class: 'sr-only' }, 'Actions')))),
            h('tbody', {}, rows.map((row) => this.#row(row)))))),
      this.#pausedTypes(),
      this.limits?.length > 0 && [h('h2', {}, 'Limits'), h('div', { class: 'card' },
        h('div', { class: 'scroll' }, h('table', { class: 'rows blocks' },
          h('thead', {}, h('tr', {}, column('Limit'), column('Applies to'), column('At once', 'number'), column('Starts'), column('Used'))),
          h('tbody', {}, this.limits.map((limit) => limitRow(limit))))))],
      webhooksSection(this.app, this.webhooks));
  }

  /** The paused types, if there are any. */
  #pausedTypes() {
    const types = [...this.data.pauses.types].sort(([a], [b]) => (a < b ? -1 : 1));
    if (types.length === 0) return undefined;
    return h('section', { class: 'stacked', 'aria-labelledby': 'paused-types' }, h('h2', { id: 'paused-types' }, 'Paused types'), h('div', { class: 'card' },
      h('div', { class: 'scroll' }, h('table', { class: 'rows blocks' },
        h('thead', {}, h('tr', {}, column('Type'), column('State'), column(h('span', { class: 'sr-only' }, 'Actions')))),
        h('tbody', {}, types.map(([name, pause]) => h('tr', { key: name },
          h('th', { scope: 'row' }, h('a', { href: address('tasks', { q: `type:${name}` }) }, name)),
          h('td', { class: 'state-cell' }, this.#pauseNote(pause)),
          h('td', { class: 'actions' }, !this.source.readOnly && button('Resume', () => this.#set({ type: name }, false), { kind: 'small' })))))))));
  }

  /** Since when, by whom and why. */
  #pauseNote({ since, by, reason }) {
    return [badge('paused'), since && [' ', h('span', { class: 'faint' }, timeOf(since, this.source))], by && h('span', { class: 'faint' }, ` by ${by}`), reason && h('div', { class: 'pause-reason' }, reason)];
  }

  #rows() {
    const { queues, pauses, workers, activity } = this.data;
    const names = new Set([...queues.keys(), ...pauses.queues.keys(), ...activity.queueRates.keys(), ...workers.flatMap((worker) => worker.queues), ...(this.settings?.keys() ?? [])]);
    const now = this.source.now();
    const none = { value: 0, how: 'exact' };
    return [...names].sort().map((name) => ({
      name,
      pause: pauses.queues.get(name),
      paused: pauses.queues.has(name),
      ...(queues.get(name) ?? { pending: none, due: none, scheduled: none, running: none, types: new Map() }),
      rate: activity.queueRates.get(name) ?? 0,
      workers: workers.filter((worker) => healthOf(worker, now) === 'active' && (worker.queues.length === 0 || worker.queues.includes(name))).length,
    }));
  }

  #row(row) {
    const knowsWorkers = !this.source.hidden.has('workers');
    const unattended = knowsWorkers && (row.due.value > 0 || row.oldestDue) && row.workers === 0 && !row.paused;
    const cell = (label, value, more = '') => h('td', { class: `number ${more}`, 'data-label': label }, value);
    const types = [...row.types.entries()].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([type, waiting]) => `${type} ${count({ value: waiting, how: row.typesHow })}`).join(', ');
    return h('tr', { key: row.name },
      h('th', { scope: 'row' }, h('a', { href: address('tasks', { q: `queue:${row.name}` }) }, row.name)),
      h('td', { class: 'state-cell' }, row.paused ? this.#pauseNote(row.pause) : unattended ? h('span', { class: 'warn-text' }, 'no worker') : this.source.hidden.has('pauses') ? h('span', { class: 'faint' }, '–') : badge('open')),
      cell('Pending', count(row.pending)),
      cell('Due', h('a', { href: address('tasks', { tab: 'due', q: `queue:${row.name}` }) }, count(row.due))),
      cell('Scheduled', h('a', { href: address('tasks', { tab: 'scheduled', q: `queue:${row.name}` }) }, count(row.scheduled))),
      cell('Running', h('a', { href: address('tasks', { tab: 'running', q: `queue:${row.name}` }) }, count(row.running))),
      h('td', { class: 'when', 'data-label': 'Oldest due' }, row.oldestDue ? timeOf(row.oldestDue, this.source) : h('span', { class: 'faint' }, '–')),
      h('td', { class: 'number', title: `in the last ${duration(this.data.activity.span)}`, 'data-label': 'Per minute' }, ratePerMinute(row.rate, this.data.activity.how)),
      h('td', { class: 'types-cell', 'data-label': 'Pending types' }, types || h('span', { class: 'faint' }, '–')),
      cell('Workers', knowsWorkers ? number(row.workers) : h('span', { class: 'faint' }, '–')),
      h('td', { class: 'settings-cell', 'data-label': 'Settings' }, settingsText(this.settings?.get(row.name)) || h('span', { class: 'faint' }, '–')),
      h('td', { class: 'actions' }, !this.source.readOnly && button(row.paused ? 'Resume' : 'Pause', () => this.#toggle(row), { kind: 'small' })));
  }

  async #toggle({ name, paused }) {
    if (paused) {
      await this.#set({ queue: name }, false);
      return;
    }
    const sure = await confirm(`Pause queue ${name}?`, ['Workers claim no tasks from it until it is resumed. Running tasks continue, and new tasks can be submitted.'], { action: 'Pause', destructive: true, reasonLabel: 'Reason (optional)' });
    if (sure) await this.#set({ queue: name }, true, sure.reason);
  }

  async #pauseType() {
    const name = h('input', { id: 'pause-type', type: 'text', maxlength: 64, autocomplete: 'off', spellcheck: 'false', autofocus: true });
    const reason = h('input', { id: 'pause-reason', type: 'text', maxlength: 500, autocomplete: 'off' });
    const sure = await dialog('Pause a type', (close) => [
      h('div', { class: 'dialog-body' },
        h('p', {}, 'Workers claim no tasks of this type, from any queue, until it is resumed. Running tasks continue, and new tasks can be submitted.'),
        h('label', { class: 'field', for: 'pause-type' }, h('span', {}, 'Type'), name),
        h('label', { class: 'field', for: 'pause-reason' }, h('span', {}, 'Reason (optional)'), reason)),
      h('footer', {},
        h('button', { type: 'button', on: { click: () => close() } }, 'Go back'),
        h('button', { type: 'button', class: 'danger', on: { click: () => close(name.value.trim() !== '') } }, 'Pause')),
    ]);
    if (sure) await this.#set({ type: name.value.trim() }, true, reason.value.trim() || undefined);
  }

  async #set(target, paused, reason) {
    const name = target.queue ?? target.type;
    await this.app.attempt(async () => {
      await this.source.setPaused(target, paused, reason);
      toast(paused ? `Paused ${name}` : `Resumed ${name}`);
    });
  }
}

/** The settings of a queue in one line. */
export function settingsText(settings = {}) {
  const { max_retries, timeout_seconds, retention_seconds, max_wait_ms, max_waiting, group_weights } = settings;
  return [
    max_retries !== undefined && `retries ${number(max_retries)}`,
    timeout_seconds !== undefined && `timeout ${duration(timeout_seconds * 1000)}`,
    retention_seconds !== undefined && `kept ${duration(retention_seconds * 1000)}`,
    max_wait_ms !== undefined && `waits at most ${duration(max_wait_ms)}`,
    max_waiting !== undefined && `at most ${number(max_waiting)} waiting`,
    weightsText(group_weights),
  ].filter(Boolean).join(', ');
}

/** The weights of some groups, and how many more there are. */
function weightsText(weights = {}) {
  const all = Object.entries(weights);
  const shown = all.slice(0, 5).map(([group, weight]) => `${group} ${weight}`).join(', ');
  return all.length > 0 && `turns: ${shown}${all.length > 5 ? ` and ${all.length - 5} more` : ''}`;
}

const column = (name, kind) => h('th', { scope: 'col', class: kind === 'number' ? 'number' : '' }, name);

/** What is used of a limit in one line, if that is known. */
export function usedText({ concurrent, starts, usage }) {
  if (!usage) return undefined;
  return [
    usage.running !== undefined && concurrent !== undefined && `${number(usage.running)} of ${number(concurrent)} running`,
    usage.started !== undefined && starts && `${number(usage.started)} of ${number(starts.max)} started`,
  ].filter(Boolean).join(', ');
}

function limitRow(limit) {
  const { name, queue, task_type, limit_key, concurrent, starts } = limit;
  const none = () => h('span', { class: 'faint' }, '–');
  const applies = [queue && `queue ${queue}`, task_type && `type ${task_type}`, limit_key && `key ${limit_key}`].filter(Boolean).join(', ');
  return h('tr', { key: `limit ${name}` },
    h('th', { scope: 'row' }, name),
    h('td', { class: 'half-cell', 'data-label': 'Applies to' }, applies),
    h('td', { class: 'number', 'data-label': 'At once' }, concurrent === undefined ? none() : number(concurrent)),
    h('td', { 'data-label': 'Starts' }, starts ? `${number(starts.max)} in ${duration(starts.window_ms)}` : none()),
    h('td', { 'data-label': 'Used' }, usedText(limit) || none()));
}

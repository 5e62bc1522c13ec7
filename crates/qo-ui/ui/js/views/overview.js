// The overview page. Numbers that are not exact are marked.

import { h } from '../dom.js';
import { about, count, duration, number, percent, plural, ratePerMinute } from '../format.js';
import { shownError } from '../record/sealed.js';
import { isName } from '../record/keys.js';
import { address } from '../router.js';
import { TABS } from '../search.js';
import { badge, button, empty, notVisible, panel, select, taskLink, timeOf } from '../widgets/basics.js';
import { barChart, percentileChart, shareBars } from '../widgets/chart.js';
import { countExactly } from './count.js';
import { healthOf, HEALTHS } from './workers.js';

const LABELS = { due: 'Due', scheduled: 'Scheduled', running: 'Running', completed: 'Completed', failed: 'Failed', cancelled: 'Cancelled', archived: 'Archived' };

const PERIODS = [['hour', '1 h'], ['day', '24 h'], ['week', '7 d']];

/** A view that shows the overview of the source. */
export class OverviewDataView {
  /** The queue and the type that the charts show; all if they are absent. */
  chosen = {};

  constructor({ app, params }) {
    this.app = app;
    this.source = app.source;
    const wanted = params?.get('period');
    this.period = PERIODS.some(([name]) => name === wanted) ? wanted : 'hour';
  }

  async load({ force } = {}) {
    this.data = await this.source.overview({ force, period: this.period, ...this.chosen });
    this.app.remember({ overview: this.data });
  }

  /** When the oldest part of the data was read. */
  dataAt() {
    return this.data?.at;
  }
}

export class OverviewView extends OverviewDataView {
  title = 'Overview';

  constructor(options) {
    super(options);
    const named = (name) => (isName(options.params.get(name) ?? '') ? options.params.get(name) : undefined);
    this.chosen = { queue: named('queue'), type: named('type') };
  }

  #address(period) {
    return address('overview', { period: period === 'hour' ? undefined : period, ...this.chosen });
  }

  /** Shows the charts of another queue or type. The view stays, so that the focus does. */
  #choose(change) {
    this.chosen = { ...this.chosen, ...change };
    history.replaceState(null, '', this.#address(this.period));
    this.app.refresh({ force: true });
  }

  /** The queues and types with activity in the period, and the chosen ones. */
  #choices() {
    const { pairs } = this.data.activity;
    if (!pairs) return undefined;
    const { queue, type } = this.chosen;
    const options = (all, names, chosen) => [['', all], ...[...new Set([...names, ...(chosen ? [chosen] : [])])].sort().map((name) => [name, name])];
    const types = pairs.filter((pair) => queue === undefined || pair.queue === queue).map((pair) => pair.type);
    return h('div', { class: 'choices-line' },
      select('Queue', queue ?? '', options('All queues', pairs.map((pair) => pair.queue), queue), (name) => this.#choose({ queue: name || undefined })),
      select('Type', type ?? '', options('All types', types, type), (name) => this.#choose({ type: name || undefined })));
  }

  /** Which period or how many tasks, and of which queue and type. Another choice may have been made since the data was read. */
  #scope(what) {
    const { queue, type } = this.data.activity.chosen ?? {};
    return [what, queue && `queue ${queue}`, type && `type ${type}`].filter(Boolean).join(', ');
  }

  render() {
    const { data } = this;
    if (!data) return skeleton();
    if (data.total.value === 0) return this.#nothingYet();
    return h('main', { id: 'main', class: 'overview', tabindex: '-1' },
      h('h1', { class: 'sr-only' }, 'Overview'),
      this.#counts(),
      h('div', { class: 'columns' },
        h('div', { class: 'column wide' }, this.#activity(), this.#percentiles(), this.#deadLetters()),
        h('div', { class: 'column' }, this.#latency(), this.#types(), this.#workers())));
  }

  #nothingYet() {
    return h('main', { id: 'main', tabindex: '-1' }, h('h1', { class: 'sr-only' }, 'Overview'),
      empty('No tasks yet',
        h('p', {}, 'Submit one with ', h('code', {}, 'qo submit --type hello --input \'{"name": "Ada"}\'')),
        'It appears here after the next refresh.'));
  }

  #counts() {
    const { counts, total, oldestDue } = this.data;
    const tiles = TABS.slice(1).map((tab) => h('a', { class: `tile ${tab}`, href: address('tasks', { tab }), key: tab },
      h('span', { class: 'tile-label' }, h('span', { class: `dot ${tab}` }), LABELS[tab]),
      h('span', { class: 'tile-value' }, count(counts[tab]))));
    return h('section', { class: 'tiles-section', 'aria-label': 'Tasks by status' },
      h('div', { class: 'tiles' }, tiles),
      h('p', { class: 'note' }, this.#totalNote(), this.#pendingNote(),
        counts.sampled !== undefined && this.source.countAll && [' · ', button('Count exactly', () => countExactly(this.app, total), { kind: 'link' })],
        oldestDue && [' · oldest due ', timeOf(oldestDue.at, this.source), oldestDue.how === 'at least' ? ' (of those checked)' : '']));
  }

  #totalNote() {
    const { counts, total } = this.data;
    if (counts.sampled === undefined) return total.how === 'exact' ? `${plural(total.value, 'task')} in total` : `More than ${plural(total.value, 'task')}; the server counted a part of them`;
    const sample = `~ marks an estimate from a sample of ${plural(counts.sampled, 'task')}`;
    if (total.how === 'estimate') return `${sample}; ${about(total)} tasks in total`;
    return total.how === 'exact' ? `${sample} of ${number(total.value)}` : `${sample} of the ${number(total.value)} oldest and newest; there are more tasks`;
  }

  /** Which of the pending tasks were looked at, if not all. */
  #pendingNote() {
    const { counts, pendingChecked } = this.data;
    if (pendingChecked === undefined) return undefined;
    const pending = counts.pending ? `${count(counts.pending)} pending; ` : '';
    return ` · ${pending}due and scheduled tasks are told apart among ${number(pendingChecked)} of them (+)`;
  }

  #activity() {
    const { activity } = this.data;
    const rate = ratePerMinute(activity.rate, activity.how);
    const mark = activity.how === 'exact' ? '' : '~';
    const label = `${plural(activity.ended, 'task')} finished in the last ${duration(activity.span)}, ${rate} per minute`;
    const tools = activity.period && h('nav', { class: 'periods', 'aria-label': 'Period' }, PERIODS.map(([name, text]) => h('a', { href: this.#address(name), 'aria-current': name === activity.period ? 'page' : undefined }, text)));
    return panel('Throughput', { note: this.#scope(`last ${duration(activity.span)}`), tools },
      this.#choices(),
      activity.ended === 0 ? empty(`No task finished in the last ${duration(activity.span)}`) : [h('div', { class: 'figures' },
        figure(rate, 'finished per minute'),
        figure(activity.failureShare === undefined ? '–' : `${mark}${percent(activity.failureShare)}`, 'failed'),
        h('span', { class: 'legend' }, ['completed', 'failed', 'cancelled'].map((name) => h('span', {}, h('span', { class: `dot ${name}` }), name)))),
      barChart(activity.bars, ['completed', 'failed', 'cancelled'], { label, width: activity.width, span: activity.span })],
      this.#aside(activity.basis));
  }

  /** Percentiles over time, as far as a server has measured them. */
  #percentiles() {
    const { activity } = this.data;
    if (!activity.period || !activity.bars.some((bar) => bar.latencies.total)) return undefined;
    const chart = (phase, words) => {
      const last = activity.bars.findLast((bar) => bar.latencies[phase])?.latencies[phase];
      const label = `${words} over the last ${duration(activity.span)}${last ? `; most recently p50 ${duration(last.p50)}, p95 ${duration(last.p95)}, p99 ${duration(last.p99)}` : ''}`;
      return h('div', { class: 'percentile-chart', key: phase }, h('h3', {}, words), percentileChart(activity.bars, phase, { label, width: activity.width, span: activity.span }));
    };
    const legend = h('span', { class: 'legend' }, ['p50', 'p95', 'p99'].map((name) => h('span', {}, h('span', { class: `key ${name}` }), `~${name}`)));
    return panel('Latency over time', { note: this.#scope(`last ${duration(activity.span)}`), tools: legend },
      h('div', { class: 'percentile-charts' }, chart('wait', 'Waiting'), chart('run', 'Running')));
  }

  /** Over which tasks the figures are computed, if not over all. */
  #aside(basis) {
    const { aside, since, resumedAt } = this.data.activity;
    return [since !== undefined && h('p', { class: 'note' }, 'Counted since ', timeOf(since, this.source), resumedAt === undefined ? ', when this server began to serve.' : '.'), aside && h('p', { class: 'note' }, aside), basisNote(basis)];
  }

  #latency() {
    const { latency, basis } = this.data.activity;
    const columns = latency.columns ?? ['p50', 'p90', 'p99'];
    const rows = [['Waiting', latency.wait], ['Running', latency.run], ['Total', latency.total]];
    return panel('Latency', { note: latency.count > 0 ? this.#scope(`of ${plural(latency.count, latency.of ?? 'completed task')}`) : undefined },
      latency.count === 0
        ? empty('No task completed recently')
        : h('table', { class: 'plain' },
          h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, h('span', { class: 'sr-only' }, 'Phase')), columns.map((name) => h('th', { scope: 'col', class: 'number' }, name)))),
          h('tbody', {}, rows.map(([name, values]) => h('tr', {}, h('th', { scope: 'row' }, name),
            columns.map((part) => h('td', { class: 'number' }, values ? `${latency.columns ? '~' : ''}${duration(values[part])}` : '–')))))),
      latency.count > 0 && this.#aside(basis));
  }

  #types() {
    const { types, typesNote = 'recently changed', basis } = this.data.activity;
    return panel('Busiest types', { note: typesNote },
      types.length === 0 ? empty('No task changed recently') : shareBars(types.map(({ type, total, failed }) => ({
        name: type, value: total, bad: failed, href: address('tasks', { q: `type:${type}` }),
        text: failed > 0 ? `${number(total)} (${number(failed)} failed)` : number(total),
      })), { label: 'Tasks by type' }),
      types.length > 0 && basisNote(basis));
  }

  #deadLetters() {
    const { deadLetters, basis } = this.data.activity;
    const { failed } = this.data.counts;
    return panel('Dead letters', { note: `permanently failed, newest first${this.data.activity.deadLettersFrom ? `, of the ${number(this.data.activity.deadLettersFrom)} checked` : ''}`, tools: failed.value > 0 && [h('a', { href: address('errors') }, 'By error'), ' · ', h('a', { href: address('tasks', { tab: 'failed' }) }, `All ${count(failed)}`)] },
      deadLetters.length === 0
        ? empty('No dead letters', basis ? 'None of the checked tasks has failed.' : undefined)
        : h('table', { class: 'plain letters' },
          h('colgroup', {}, ['letter-id', 'letter-type', 'letter-error', 'letter-when'].map((name) => h('col', { class: name }))),
          h('thead', { class: 'sr-only' }, h('tr', {}, ['Task', 'Type', 'Error', 'When'].map((name) => h('th', { scope: 'col' }, name)))),
          h('tbody', {}, deadLetters.map((task) => h('tr', { key: task.id },
            h('td', { class: 'mono' }, taskLink(task.id, task.id.slice(0, 8))),
            h('td', {}, task.task_type),
            h('td', { class: 'error-cell', title: shownError(task.last_error) ?? '' }, shownError(task.last_error) ?? ''),
            h('td', { class: 'when' }, timeOf(task.updated_at, this.source)))))));
  }

  #workers() {
    const { workers } = this.data;
    const now = this.source.now();
    const by = Object.fromEntries(HEALTHS.map((health) => [health, workers.filter((worker) => healthOf(worker, now) === health)]));
    const active = by.active;
    const slots = active.reduce((sum, worker) => sum + worker.slots, 0);
    const busy = active.reduce((sum, worker) => sum + worker.current_tasks.length, 0);
    return panel('Workers', { tools: h('a', { href: address('workers') }, 'All workers') },
      this.source.hidden.has('workers') ? notVisible('Workers are') : workers.length === 0
        ? empty('No workers', 'Tasks wait until a worker is started.')
        : h('div', { class: 'figures' },
          HEALTHS.map((health) => h('span', { class: 'figure' }, h('strong', {}, number(by[health].length)), badge(health))),
          figure(`${busy} / ${slots}`, 'slots busy')));
  }
}

function figure(value, label) {
  return h('span', { class: 'figure' }, h('strong', {}, value), h('span', {}, label));
}

/** A note on the data, if it is not complete. */
function basisNote(basis) {
  if (!basis) return undefined;
  const of = basis.total.how === 'estimate' ? about(basis.total) : basis.total.how === 'exact' ? number(basis.total.value) : `the ${number(basis.total.value)} that were listed; there are more`;
  const scaled = basis.total.how === 'exact' ? 'From ' : 'Sample: ';
  return h('p', { class: 'note' }, `${scaled}the ${plural(basis.read, 'task')} changed most recently, of ${of}.`);
}

function skeleton() {
  return h('main', { id: 'main', class: 'loading', tabindex: '-1', 'aria-busy': 'true' }, h('h1', { class: 'sr-only' }, 'Overview'), h('p', { class: 'faint' }, 'Loading…'));
}

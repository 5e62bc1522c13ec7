// The schedules page: when each one runs next and ran last; pause, resume, trigger.

import { h } from '../dom.js';
import { duration, number } from '../format.js';
import { address } from '../router.js';
import { badge, button, empty, notVisible, taskLink, timeOf } from '../widgets/basics.js';
import { confirm } from '../widgets/dialog.js';
import { toast } from '../widgets/toast.js';

export class SchedulesView {
  title = 'Schedules';

  constructor({ app }) {
    this.app = app;
    this.source = app.source;
  }

  async load() {
    this.schedules = await this.source.schedules();
  }

  render() {
    if (!this.schedules) return h('main', { id: 'main', class: 'loading', tabindex: '-1' }, h('h1', {}, 'Schedules'), h('p', { class: 'faint' }, 'Loading…'));
    return h('main', { id: 'main', tabindex: '-1' },
      h('div', { class: 'page-head' }, h('h1', {}, 'Schedules'), h('span', { class: 'note' }, 'workers and servers fire them; each tick makes one task')),
      this.source.hidden.has('schedules') ? notVisible('Schedules are') : this.schedules.length === 0
        ? empty('No schedules', h('p', {}, 'Add one with ', h('code', {}, "qo schedule add nightly --cron '30 2 * * *' --type report")))
        : h('div', { class: 'card' },
          h('div', { class: 'scroll' }, h('table', { class: 'rows blocks schedules-table' },
            h('thead', {}, h('tr', {}, ['Schedule', 'State', 'Rule', 'Task type', 'Next run', 'Last run'].map((name) => column(name)), column('Runs', 'number'), column('Skipped', 'number'), column('Missed', 'number'), column(h('span', { class: 'sr-only' }, 'Actions')))),
            h('tbody', {}, this.schedules.map((schedule) => this.#row(schedule)))))));
  }

  #row(schedule) {
    const { name, spec, last, next, paused_at: paused } = schedule;
    // A bucket's page cannot read cron lines: the next process that fires the schedule writes the time.
    const isUnknown = spec.cron && !paused && this.source.kind === 's3' && !(Date.parse(spec.end) <= this.source.now());
    const none = () => h('span', { class: 'faint' }, '–');
    return h('tr', { key: name },
      h('th', { scope: 'row' }, h('a', { href: address('tasks', { q: `tag:schedule:${name}` }) }, name)),
      h('td', { class: 'state-cell' }, paused ? [badge('paused'), ' ', h('span', { class: 'faint' }, timeOf(paused, this.source))] : badge('open')),
      h('td', { class: 'mono half-cell', 'data-label': 'Rule' }, ruleOf(spec)),
      h('td', { class: 'half-cell', 'data-label': 'Task type' }, spec.task.task_type, keysOf(spec.task).map((text) => h('div', { class: 'faint' }, text))),
      h('td', { class: 'when', 'data-label': 'Next run' }, next ? timeOf(next, this.source) : isUnknown ? h('span', { class: 'faint' }, 'not known until it next runs') : none()),
      h('td', { class: 'when', 'data-label': 'Last run' }, last ? [timeOf(last.tick, this.source), ' ', taskLink(last.task, last.task.slice(0, 8))] : none()),
      h('td', { class: 'number', 'data-label': 'Runs' }, number(schedule.fired)),
      h('td', { class: 'number', 'data-label': 'Skipped' }, number(schedule.skipped)),
      h('td', { class: 'number', 'data-label': 'Missed' }, number(schedule.missed)),
      h('td', { class: 'actions' }, !this.source.readOnly && [
        button('Trigger', () => this.#trigger(name), { kind: 'small' }),
        button(paused ? 'Resume' : 'Pause', () => this.#toggle(name, Boolean(paused)), { kind: 'small' }),
      ]));
  }

  async #toggle(name, paused) {
    if (!paused) {
      const sure = await confirm(`Pause schedule ${name}?`, ['It submits no tasks until it is resumed. The runs during the pause are skipped. Submitted tasks stay.'], { action: 'Pause', destructive: true });
      if (!sure) return;
    }
    await this.app.attempt(async () => {
      await this.source.setSchedulePaused(name, !paused);
      toast(paused ? `Resumed ${name}` : `Paused ${name}`);
    });
  }

  async #trigger(name) {
    await this.app.attempt(async () => {
      const id = await this.source.triggerSchedule(name);
      toast('Submitted', 'good', taskLink(id, id.slice(0, 8)));
    });
  }
}

/** The keys and the group of a schedule's tasks, for people. */
export function keysOf({ ordering_key: order, ordering_on_failure: onFailure, limit_key: limit, fairness_group: group }) {
  return [
    order && `ordering key ${order}${onFailure === 'stop' ? ' (stops on failure)' : ''}`,
    limit && `limit key ${limit}`,
    group && `group ${group}`,
  ].filter(Boolean);
}

/** When a schedule fires, for people. */
export function ruleOf(spec) {
  if (spec.cron) return spec.time_zone ? `${spec.cron} (${spec.time_zone})` : spec.cron;
  if (spec.every_ms) return `every ${duration(spec.every_ms)}`;
  return spec.at?.length === 1 ? 'once' : `${number(spec.at?.length ?? 0)} times`;
}

const column = (name, kind) => h('th', { scope: 'col', class: kind === 'number' ? 'number' : '' }, name);

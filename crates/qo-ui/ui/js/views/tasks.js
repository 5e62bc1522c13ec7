// The task list: tabs by status, search, pages and bulk actions.

import { h, icon } from '../dom.js';
import { count, number, plural } from '../format.js';
import { address, go } from '../router.js';
import { SHARDS } from '../record/keys.js';
import { combine, parseSearch, TABS } from '../search.js';
import { badge, button, empty, problem, statusWord, taskLink, timeOf } from '../widgets/basics.js';
import { ACTIONS, actOnMany } from './actions.js';

const LIMIT = 50;
const SORTS = { changed: 'Last change', created: 'Created', type: 'Type', attempt: 'Attempts', id: 'Id' };

export class TasksView {
  title = 'Tasks';
  #cursors = [undefined];
  #selected = new Set();
  #cursorRow = -1;

  constructor({ app, params }) {
    this.app = app;
    this.source = app.source;
    this.tab = TABS.includes(params.get('tab')) ? params.get('tab') : 'all';
    this.search = params.get('q') ?? '';
    this.shard = SHARDS.includes(params.get('shard')) ? params.get('shard') : '';
    this.sort = params.get('sort') in SORTS ? params.get('sort') : 'changed';
    const { query, problems } = parseSearch(this.search);
    this.problems = problems;
    this.query = combine(this.tab, this.shard, query, this.sort === 'id' ? 'id' : undefined);
  }

  async load() {
    const page = await this.source.page(this.query, this.#cursors.at(-1), LIMIT);
    this.page = page;
    const ids = new Set(page.tasks.map((task) => task.id));
    for (const id of this.#selected) if (!ids.has(id)) this.#selected.delete(id);
  }

  render() {
    return h('main', { id: 'main', class: 'tasks', tabindex: '-1' },
      h('h1', { class: 'sr-only' }, 'Tasks'),
      this.#tabs(),
      this.#tools(),
      this.problems.map((text) => problem({ message: text })),
      this.page ? [this.#selectionBar(), this.#table(), this.#pager()] : h('p', { class: 'faint loading-line' }, 'Loading…'));
  }

  #tabs() {
    const counts = this.app.memory.overview?.counts;
    return h('nav', { class: 'tabs', 'aria-label': 'Tasks by status' }, TABS.map((tab) => h('a', {
      href: address('tasks', { ...this.#params(), tab: tab === 'all' ? undefined : tab }), 'aria-current': tab === this.tab ? 'page' : undefined, key: tab,
    }, tab === 'all' ? 'All' : [h('span', { class: `dot ${tab}` }), tab],
    tab !== 'all' && counts?.[tab] && h('span', { class: 'tab-count' }, count(counts[tab])),
    tab === 'all' && this.app.memory.overview && h('span', { class: 'tab-count' }, count(this.app.memory.overview.total)))),
    !counts && h('button', { type: 'button', class: 'link', on: { click: () => this.app.attempt(async () => this.app.remember({ overview: await this.source.overview({}) })) } }, 'Count'));
  }

  #tools() {
    const submit = (event) => {
      event.preventDefault();
      go('tasks', { ...this.#params(), q: event.target.q.value.trim() || undefined });
    };
    return h('form', { class: 'tools-line', role: 'search', on: { submit } },
      h('label', { class: 'search' }, icon('search'), h('span', { class: 'sr-only' }, 'Search tasks'),
        h('input', { id: 'search', name: 'q', type: 'search', value: this.search, placeholder: 'id, type:resize, queue:bulk, tag:vip, worker:w-1, status:failed', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off' }), h('kbd', { 'aria-hidden': 'true' }, '/')),
      select('Shard', this.shard, [['', 'All shards'], ...SHARDS.map((shard) => [shard, `Shard ${shard}`])], (shard) => go('tasks', { ...this.#params(), shard: shard || undefined })),
      select('Order', this.sort, Object.entries(SORTS), (sort) => go('tasks', { ...this.#params(), sort: sort === 'changed' ? undefined : sort })));
  }

  #params() {
    return { tab: this.tab === 'all' ? undefined : this.tab, q: this.search || undefined, shard: this.shard || undefined, sort: this.sort === 'changed' ? undefined : this.sort };
  }

  #selectionBar() {
    if (this.source.readOnly || this.page.tasks.length === 0) return undefined;
    const chosen = this.page.tasks.filter((task) => this.#selected.has(task.id));
    const whole = async (options) => this.source.matching(this.query, options);
    const act = (kind) => actOnMany(this.app, kind, chosen.length > 0 ? async () => chosen : whole);
    return h('div', { class: `selection ${chosen.length > 0 ? 'active' : ''}` },
      h('span', {}, chosen.length > 0 ? `${plural(chosen.length, 'task')} selected` : this.#describe()),
      Object.entries(ACTIONS).map(([kind, { label }]) => this.#isOffered(kind) && button(chosen.length > 0 ? label : `${label} all…`, () => act(kind), { key: kind, kind: 'small' })),
      chosen.length > 0 && button('Choose none', () => { this.#selected.clear(); this.app.redraw(); }, { kind: 'link' }));
  }

  #describe() {
    const filter = [this.tab === 'all' ? undefined : this.tab, this.search].filter(Boolean).join(' ');
    return filter ? `All tasks matching ${filter}:` : 'All tasks:';
  }

  /** Whether an action applies to the tasks of this tab. */
  #isOffered(kind) {
    const by = {
      replay: ['all', 'completed', 'failed', 'cancelled'], run_now: ['all', 'scheduled'], cancel: ['all', 'due', 'scheduled', 'running'],
      archive: ['all', 'completed', 'failed', 'cancelled'], unarchive: ['archived'],
    };
    return by[kind].includes(this.tab);
  }

  #table() {
    const tasks = this.#sorted();
    if (tasks.length === 0) return this.#empty();
    const now = this.source.now();
    const canChoose = !this.source.readOnly;
    const all = tasks.every((task) => this.#selected.has(task.id));
    const some = tasks.some((task) => this.#selected.has(task.id));
    const chooseAll = () => {
      for (const task of tasks) if (all) this.#selected.delete(task.id); else this.#selected.add(task.id);
      this.app.redraw();
    };
    return h('div', { class: 'scroll' }, h('table', { class: 'rows tasks-table' },
      h('thead', {}, h('tr', {},
        canChoose && h('th', { scope: 'col', class: 'choose' }, h('input', { type: 'checkbox', 'aria-label': 'Select all tasks on this page', checked: all, indeterminate: some && !all, on: { change: chooseAll } })),
        ['Task', 'Type', 'Status', 'Queue'].map((name) => h('th', { scope: 'col' }, name)),
        h('th', { scope: 'col', class: 'number' }, 'Attempt'), h('th', { scope: 'col' }, 'Next'), h('th', { scope: 'col' }, 'Last change'))),
      h('tbody', {}, tasks.map((task, index) => this.#row(task, index, now, canChoose)))));
  }

  #row(task, index, now, canChoose) {
    const toggle = (event) => {
      if (event.target.checked) this.#selected.add(task.id); else this.#selected.delete(task.id);
      this.app.redraw();
    };
    const open = (event) => {
      if (event.target.closest('a, button, input')) return;
      if (getSelection()?.toString()) return;
      go(`tasks/${task.id}`);
    };
    return h('tr', { key: task.id, class: `${this.#selected.has(task.id) ? 'chosen' : ''} ${index === this.#cursorRow ? 'at' : ''}`, on: { click: open } },
      canChoose && h('td', { class: 'choose' }, h('input', { type: 'checkbox', 'aria-label': `Select task ${task.id}`, checked: this.#selected.has(task.id), on: { change: toggle } })),
      h('th', { scope: 'row', class: 'id-cell' }, taskLink(task.id)),
      h('td', { class: 'type-cell' }, task.task_type, task.tags.map((tag) => h('span', { class: 'tag' }, tag))),
      h('td', {}, badge(statusWord(task, now))),
      h('td', {}, task.queue),
      h('td', { class: 'number' }, task.attempt === 0 ? h('span', { class: 'faint' }, '–') : `${task.attempt} / ${task.max_retries + 1}`),
      h('td', { class: 'next-cell' }, nextStep(task, now, this.source)),
      h('td', { class: 'when' }, timeOf(task.updated_at, this.source)));
  }

  #sorted() {
    const tasks = [...this.page.tasks];
    if (this.sort === 'created') tasks.sort((a, b) => b.created_at - a.created_at);
    if (this.sort === 'type') tasks.sort((a, b) => a.task_type.localeCompare(b.task_type) || b.updated_at - a.updated_at);
    if (this.sort === 'attempt') tasks.sort((a, b) => b.attempt - a.attempt || b.updated_at - a.updated_at);
    if (this.sort === 'id') tasks.sort((a, b) => (a.id < b.id ? -1 : 1));
    if (this.sort === 'changed' && this.page.order.startsWith('changed')) tasks.sort((a, b) => b.updated_at - a.updated_at);
    return tasks;
  }

  #empty() {
    if (this.page.next) {
      return empty(`None of the ${plural(this.page.examined, 'task')} checked matches`, 'There is no index for this search, so each task must be read.',
        h('p', {}, button('Continue', () => this.#turn(1), { kind: 'primary' })));
    }
    if (this.search || this.tab !== 'all' || this.shard) {
      return empty('No task matches', h('p', {}, h('a', { href: address('tasks') }, 'Show all tasks')));
    }
    return empty('No tasks yet', h('p', {}, 'Submit one with ', h('code', {}, 'qo submit --type hello --input \'{"name": "Ada"}\'')));
  }

  #pager() {
    const { page } = this;
    const at = this.#cursors.length;
    const notes = [
      page.total !== undefined && plural(page.total, 'task'),
      page.total === undefined && plural(page.tasks.length, 'task'),
      page.all !== undefined && page.total === undefined && `of ${number(page.all)}`,
      page.examined > page.tasks.length && `${number(page.examined)} checked`,
      ORDERS[page.order],
      ['created', 'type', 'attempt'].includes(this.sort) && page.next && 'sorted within this page',
    ].filter(Boolean).join(' · ');
    return h('nav', { class: 'pager', 'aria-label': 'Pages' },
      h('span', { class: 'note' }, notes),
      h('span', {},
        button('Previous', () => this.#turn(-1), { disabled: at === 1 }),
        h('span', { class: 'page-number' }, `Page ${at}`),
        button('Next', () => this.#turn(1), { disabled: !page.next })));
  }

  async #turn(step) {
    if (step > 0) this.#cursors.push(this.page.next);
    else this.#cursors.pop();
    this.#selected.clear();
    this.#cursorRow = -1;
    this.page = undefined;
    this.app.redraw();
    await this.app.refresh();
    document.getElementById('main')?.focus();
    window.scrollTo(0, 0);
  }

  /** Shortcuts of this page: j and k move, x selects, Enter opens. */
  key(event) {
    const tasks = this.page ? this.#sorted() : [];
    if (tasks.length === 0) return false;
    const rows = document.querySelectorAll('.tasks-table tbody tr');
    if (event.key === 'j' || event.key === 'k') {
      this.#cursorRow = Math.max(0, Math.min(this.#cursorRow + (event.key === 'j' ? 1 : -1), tasks.length - 1));
      this.app.redraw();
      rows[this.#cursorRow]?.querySelector('a')?.focus();
      rows[this.#cursorRow]?.scrollIntoView({ block: 'nearest' });
      return true;
    }
    const task = tasks[this.#cursorRow];
    if (event.key === 'x' && task && !this.source.readOnly) {
      if (this.#selected.has(task.id)) this.#selected.delete(task.id); else this.#selected.add(task.id);
      this.app.redraw();
      return true;
    }
    return false;
  }
}

const ORDERS = {
  changed: 'most recently changed first',
  'changed in part': 'most recently changed first, within each thousand ids',
  urgency: 'by queue, type, priority and due time',
  due: 'earliest due time first',
  lease: 'by shard and lease',
};

/** What happens next to a task, in a few words. */
function nextStep(task, now, source) {
  if (task.status === 'running') {
    return [
      task.cancel_requested ? h('span', { class: 'warn-text' }, 'cancel requested') : task.progress ? h('span', {}, `${Math.round(task.progress.percent)} %`) : undefined,
      (task.cancel_requested || task.progress) && ' · ',
      h('span', {}, task.worker_id), h('span', { class: 'faint' }, ' · lease ', timeOf(task.lease_expires_at, source)),
    ];
  }
  if (task.status === 'pending' && task.available_at > now) {
    return [task.retry_count > 0 ? 'retry ' : 'due ', timeOf(task.available_at, source)];
  }
  if (task.status === 'pending') return [h('span', {}, 'waiting since '), timeOf(task.available_at, source)];
  if (task.last_error && task.status !== 'completed') return h('span', { class: task.status === 'failed' ? 'error-text' : 'faint', title: task.last_error }, task.last_error);
  return '';
}

function select(label, value, options, choose) {
  return h('label', { class: 'select' }, h('span', { class: 'sr-only' }, label),
    h('select', { 'aria-label': label, value, on: { change: (event) => choose(event.target.value) } },
      options.map(([key, text]) => h('option', { value: key, selected: key === value }, text))));
}

// The task list: tabs by status, search, pages and bulk actions.

import { h, icon } from '../dom.js';
import { count, number, plural, searchCost } from '../format.js';
import { address, go } from '../router.js';
import { SHARDS } from '../record/keys.js';
import { shownError } from '../record/sealed.js';
import { combine, describe, parseSearch, TABS } from '../search.js';
import { badge, button, copyButton, empty, problem, select, sentence, statusWord, taskLink, timeOf } from '../widgets/basics.js';
import { ACTIONS, actOnMany } from './actions.js';
import { submitTask } from './submit.js';

const LIMIT = 50;
const UNREADABLE_SHOWN = 5;
const COUNTS_MAX_AGE_MS = 30_000;
const ascending = (by) => (a, b) => (by(a) < by(b) ? -1 : by(a) > by(b) ? 1 : b.updated_at - a.updated_at);
/** The statuses in the order of a task's life. */
const STATUSES = ['pending', 'running', 'completed', 'failed', 'cancelled', 'archived'];
/** The orders: label, comparison within a page, whether the first click sorts in descending order, and what a server calls the column. */
const SORTS = {
  listed: { label: 'Order of the list', compare: () => 0 },
  changed: { label: 'Last change', compare: ascending((task) => task.updated_at), falls: true, column: 'changed' },
  created: { label: 'Created', compare: ascending((task) => task.created_at), falls: true },
  type: { label: 'Type', compare: ascending((task) => task.task_type), column: 'type' },
  status: { label: 'Status', compare: ascending((task) => STATUSES.indexOf(task.status)), column: 'status' },
  queue: { label: 'Queue', compare: ascending((task) => task.queue), column: 'queue' },
  attempt: { label: 'Attempts', compare: ascending((task) => task.attempt), falls: true, column: 'attempts' },
  due: { label: 'Due time', compare: ascending((task) => task.available_at), column: 'due' },
  id: { label: 'Id', compare: ascending((task) => task.id) },
};
const COLUMNS = [['Task', 'id'], ['Type', 'type'], ['Status', 'status'], ['Queue', 'queue'], ['Attempt', 'attempt', 'number'], ['Next', 'due'], ['Last change', 'changed']];

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
    this.sort = Object.hasOwn(SORTS, params.get('sort') ?? '') ? params.get('sort') : 'listed';
    this.direction = ['asc', 'desc'].includes(params.get('dir')) ? params.get('dir') : SORTS[this.sort].falls ? 'desc' : 'asc';
    const { query, problems } = parseSearch(this.search);
    this.problems = problems;
    this.query = combine(this.tab, this.shard, query, this.sort === 'id' ? 'id' : undefined);
    // Pages that were turned before a visit to a task.
    const { list } = app.memory;
    if (list?.hash === this.#hash()) this.#cursors = list.cursors;
    app.remember({ list: { hash: this.#hash(), cursors: this.#cursors } });
  }

  async load({ force } = {}) {
    // A search that is not understood shows no tasks, so that nothing can be done to the wrong ones.
    if (this.problems.length > 0) return;
    const [page] = await Promise.all([this.source.page(this.query, this.#cursors.at(-1), LIMIT, this.#column()), this.#loadCounts(force)]);
    this.page = page;
    const ids = new Set(page.tasks.map((task) => task.id));
    for (const id of this.#selected) if (!ids.has(id)) this.#selected.delete(id);
  }

  /** The column by which a server sorts. It is no part of the query: bulk actions apply to all tasks that match. */
  #column() {
    const { column, falls } = SORTS[this.sort];
    return column ? { column, reverse: this.direction !== (falls ? 'desc' : 'asc') } : {};
  }

  /** The counts on the tabs: those of a queue if the search names only a queue, and none for other searches. */
  async #loadCounts(force) {
    if (!this.source.tabCounts || !this.#isCounted()) return;
    const known = this.app.memory.tabCounts;
    const isFresh = known && known.queue === this.query.queue && Date.now() - known.at < COUNTS_MAX_AGE_MS;
    if (isFresh && !force) return;
    this.app.remember({ tabCounts: { ...(await this.source.tabCounts(this.query.queue)), queue: this.query.queue, at: Date.now() } });
  }

  #isCounted() {
    const { type, tag, worker, id, shard, text, any, none, alternatives, since, until } = this.query;
    return this.problems.length === 0 && !type && !tag && !worker && !id && !shard && !text && !any && !none && !alternatives && since === undefined && until === undefined;
  }

  #counts() {
    if (!this.#isCounted()) return undefined;
    const { tabCounts, overview } = this.app.memory;
    const known = tabCounts?.queue === this.query.queue ? tabCounts : undefined;
    if (this.query.queue) return known;
    if (!known) return overview;
    // The server counts pending tasks; the overview splits them.
    return { ...known, counts: { ...known.counts, due: overview?.counts.due, scheduled: overview?.counts.scheduled } };
  }

  render() {
    return h('main', { id: 'main', class: 'tasks', tabindex: '-1' },
      h('h1', { class: 'sr-only' }, 'Tasks'),
      this.#tabs(),
      this.#tools(),
      this.problems.map((text) => problem({ message: text })),
      this.problems.length > 0 ? h('p', { class: 'faint' }, 'No tasks are shown and no action is offered until the search is corrected.') : this.page ? [this.#selectionBar(), this.#table(), this.#unreadable(), this.#pager()] : h('p', { class: 'faint loading-line' }, 'Loading…'));
  }

  #tabs() {
    const known = this.#counts();
    const pending = known?.counts.pending;
    const countOf = (tab) => {
      if (tab === 'all') return known?.total;
      if (known?.counts[tab]) return known.counts[tab];
      // Without pending tasks, both of their tabs are empty.
      return (tab === 'due' || tab === 'scheduled') && pending?.value === 0 ? pending : undefined;
    };
    return h('nav', { class: 'tabs', 'aria-label': 'Tasks by status' }, TABS.map((tab) => h('a', {
      href: address('tasks', { ...this.#params(), tab: tab === 'all' ? undefined : tab }), 'aria-current': tab === this.tab ? 'page' : undefined, key: tab,
    }, tab === 'all' ? 'All' : [h('span', { class: `dot ${tab}` }), tab],
    countOf(tab) && h('span', { class: 'tab-count' }, count(countOf(tab))))),
    !known && this.#isCounted() && !this.source.tabCounts && h('button', { type: 'button', class: 'link', on: { click: () => this.app.attempt(async () => this.app.remember({ overview: await this.source.overview({}) })) } }, 'Count'));
  }

  #tools() {
    const submit = (event) => {
      event.preventDefault();
      go('tasks', { ...this.#params(), q: event.target.q.value.trim() || undefined });
    };
    return h('form', { class: 'tools-line', role: 'search', on: { submit } },
      h('label', { class: 'search' }, icon('search'), h('span', { class: 'sr-only' }, 'Search tasks'),
        h('input', { id: 'search', name: 'q', type: 'search', value: this.search, placeholder: 'id, type:resize, queue:bulk,mail, -tag:vip, worker:w-*, status:failed, since:2h', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off' }), h('kbd', { 'aria-hidden': 'true' }, '/')),
      select('Shard', this.shard, [['', 'All shards'], ...SHARDS.map((shard) => [shard, `Shard ${shard}`])], (shard) => go('tasks', { ...this.#params(), shard: shard || undefined })),
      select('Order', this.sort, Object.entries(SORTS).map(([name, { label }]) => [name, label]), (sort) => this.#order(sort)),
      h('span', { class: 'tools-end' },
        copyButton(() => location.href, 'a link to this view'),
        !this.source.readOnly && button('Submit task…', () => submitTask(this.app), { key: 'submit' })));
  }

  /** Everything that defines this view is in its address, so that it can be shared and found again. */
  #params() {
    const { falls } = SORTS[this.sort];
    return {
      tab: this.tab === 'all' ? undefined : this.tab, q: this.search || undefined, shard: this.shard || undefined,
      sort: this.sort === 'listed' ? undefined : this.sort, dir: this.direction === (falls ? 'desc' : 'asc') ? undefined : this.direction,
    };
  }

  #hash() {
    return address('tasks', this.#params());
  }

  /** Sorts by a column, or reverses the order if the rows are already sorted by it. */
  #order(sort) {
    const first = SORTS[sort].falls ? 'desc' : 'asc';
    const isReversed = sort === this.sort && this.direction === first;
    go('tasks', { ...this.#params(), sort: sort === 'listed' ? undefined : sort, dir: isReversed ? (first === 'asc' ? 'desc' : 'asc') : undefined }, { replace: true });
  }

  #selectionBar() {
    if (this.source.readOnly || this.page.tasks.length === 0) return undefined;
    const chosen = this.page.tasks.filter((task) => this.#selected.has(task.id));
    const words = chosen.length > 0 ? `the ${plural(chosen.length, 'selected task')}` : describe(this.query);
    const find = chosen.length > 0 ? async () => chosen : async (options) => this.source.matching(this.query, options);
    return h('div', { class: `selection ${chosen.length > 0 ? 'active' : ''}` },
      h('span', {}, chosen.length > 0 ? `${plural(chosen.length, 'task')} selected` : `${sentence(words).slice(0, -1)}:`),
      Object.entries(ACTIONS).map(([kind, { label, destructive }]) => this.#isOffered(kind) && button(chosen.length > 0 ? label : `${label} all…`, () => actOnMany(this.app, kind, words, find), { key: kind, kind: `small ${destructive ? 'danger-quiet' : ''}` })),
      chosen.length > 0 && button('Choose none', () => { this.#selected.clear(); this.app.redraw(); }, { kind: 'link' }));
  }

  /** Whether an action applies to the tasks of this tab. */
  #isOffered(kind) {
    const by = {
      replay: ['all', 'completed', 'failed', 'cancelled'], redrive: ['due', 'scheduled', 'failed'], run_now: ['all', 'scheduled'], cancel: ['all', 'due', 'scheduled', 'running'],
      archive: ['all', 'completed', 'failed', 'cancelled'], unarchive: ['archived'], purge: ['completed', 'failed', 'cancelled', 'archived'],
    };
    // A status in the search overrides the tab.
    const shown = this.query.statuses.length > 0 ? this.query.statuses : ['all'];
    const isPending = (tab) => tab === 'pending' && (by[kind].includes('due') || by[kind].includes('scheduled'));
    return this.source.actions.includes(kind) && shown.some((tab) => by[kind].includes(tab) || isPending(tab));
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
        COLUMNS.map((column) => this.#columnHead(column)))),
      h('tbody', {}, tasks.map((task, index) => this.#row(task, index, now, canChoose)))));
  }

  #columnHead([label, sort, kind]) {
    const isDefault = this.sort === 'listed';
    const direction = sort !== this.#sortShown() ? undefined : isDefault || this.direction === 'desc' ? 'descending' : 'ascending';
    return h('th', { scope: 'col', class: kind ?? '', 'aria-sort': direction, key: sort },
      h('button', { type: 'button', class: `sort ${direction ?? ''}`, title: `Sort these rows by ${SORTS[sort].label.toLowerCase()}`, on: { click: () => this.#order(sort) } }, label));
  }

  #row(task, index, now, canChoose) {
    const toggle = (event) => {
      if (event.target.checked) this.#selected.add(task.id); else this.#selected.delete(task.id);
      this.app.redraw();
    };
    const open = (event) => {
      if (event.target.closest('a, button, input, time')) return;
      if (getSelection()?.toString()) return;
      go(`tasks/${task.id}`);
    };
    return h('tr', { key: task.id, class: `${this.#selected.has(task.id) ? 'chosen' : ''} ${index === this.#cursorRow ? 'at' : ''}`, on: { click: open } },
      canChoose && h('td', { class: 'choose' }, h('input', { type: 'checkbox', 'aria-label': `Select task ${task.id}`, checked: this.#selected.has(task.id), on: { change: toggle } })),
      h('th', { scope: 'row', class: 'id-cell' }, taskLink(task.id)),
      h('td', { class: 'type-cell' }, task.task_type, task.tags.map((tag) => h('span', { class: 'tag' }, tag))),
      h('td', { class: 'status-cell' }, badge(statusWord(task, now))),
      h('td', { class: 'queue-cell' }, task.queue),
      h('td', { class: 'number attempt-cell' }, task.attempt === 0 ? h('span', { class: 'faint' }, '–') : `${task.attempt} / ${task.max_retries + 1}`),
      h('td', { class: 'next-cell' }, nextStep(task, now, this.source)),
      h('td', { class: 'when changed-cell' }, timeOf(task.updated_at, this.source)));
  }

  #sorted() {
    const sort = this.#sortShown();
    const sorted = [...this.page.tasks].sort(SORTS[sort].compare);
    return this.direction === 'desc' || sort !== this.sort ? sorted.reverse() : sorted;
  }

  /** What the rows are sorted by. A bucket lists the tasks that changed last first. */
  #sortShown() {
    return this.sort === 'listed' && this.page?.order.startsWith('changed') ? 'changed' : this.sort;
  }

  #empty() {
    if (this.page.next) {
      return empty(this.page.examined > 0 ? `None of the ${plural(this.page.examined, 'task')} checked matches` : 'No task matches so far', 'There is no index for this search, so each task must be read.',
        h('p', {}, button('Continue', () => this.#turn(1), { kind: 'primary' })));
    }
    const isUnreadable = this.page.unreadable?.length > 0;
    if (this.search || this.tab !== 'all' || this.shard) {
      return empty(isUnreadable ? 'No readable task on this page' : 'No task matches', h('p', {}, h('a', { href: address('tasks') }, 'Show all tasks')));
    }
    if (isUnreadable) return empty('No readable task on this page');
    return empty('No tasks yet', h('p', {}, 'Submit one with ', h('code', {}, 'qo submit --type hello --input \'{"name": "Ada"}\'')));
  }

  /** The tasks on this page whose records the page cannot read. Their own pages say why. */
  #unreadable() {
    const { unreadable = [] } = this.page;
    if (unreadable.length === 0) return undefined;
    const shown = unreadable.slice(0, UNREADABLE_SHOWN);
    const rest = unreadable.length - shown.length;
    return h('p', { class: 'note warn-text' }, `${plural(unreadable.length, 'task cannot', 'tasks cannot')} be read: `,
      shown.map((id, index) => [index > 0 && ', ', taskLink(id, id.slice(0, 8))]), rest > 0 && ` and ${number(rest)} more`);
  }

  #pager() {
    const { page } = this;
    const at = this.#cursors.length;
    const notes = [
      page.total !== undefined && plural(page.total, 'task'),
      page.total === undefined && plural(page.tasks.length, 'task'),
      page.all !== undefined && page.total === undefined && `of ${number(page.all)}`,
      page.sorted && `the first by ${SORTS[this.sort].label.toLowerCase()} ${page.sorted.complete ? `of all ${number(page.sorted.among)}` : `among the newest ${number(page.sorted.among)}; more match, and there is no index for this order`}`,
      (this.search || (!page.sorted && page.examined > page.tasks.length)) && searchCost(page.examined, page.sorted ? page.sorted.complete : !page.next),
      this.sort === 'listed' ? ORDERS[page.order] : undefined,
      this.sort !== 'listed' && !page.sorted && (page.next || at > 1) && `sorted by ${SORTS[this.sort].label.toLowerCase()} within this page`,
    ].filter(Boolean).join(' · ');
    return h('nav', { class: 'pager', 'aria-label': 'Pages' },
      h('span', { class: 'note' }, notes),
      h('span', {},
        button('Previous page', () => this.#turn(-1), { disabled: at === 1 }),
        h('span', { class: 'page-number' }, `Page ${at}`),
        button('Next page', () => this.#turn(1), { disabled: !page.next })));
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
  created: 'newest first',
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
      h('span', {}, task.worker_id), h('span', { class: 'faint' }, ' · lease ends ', timeOf(task.lease_expires_at, source)),
    ];
  }
  if (task.status === 'pending' && task.available_at > now) {
    return [task.retry_count > 0 ? 'retry ' : 'due ', timeOf(task.available_at, source)];
  }
  if (task.status === 'pending') return [h('span', {}, 'waiting since '), timeOf(task.available_at, source)];
  if (task.last_error && task.status !== 'completed') return h('span', { class: task.status === 'failed' ? 'error-text' : 'faint', title: shownError(task.last_error) }, shownError(task.last_error));
  return '';
}

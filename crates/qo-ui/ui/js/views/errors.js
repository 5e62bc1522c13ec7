// The errors page: failed tasks grouped by their error.

import { h } from '../dom.js';
import { count, number, plural, searchCost } from '../format.js';
import { groupFailures } from '../failures.js';
import { address, go } from '../router.js';
import { describe, parseSearch } from '../search.js';
import { button, empty, problem, taskLink, timeOf } from '../widgets/basics.js';
import { ACTIONS, actOnMany } from './actions.js';

const ACTIONS_OFFERED = ['replay', 'archive', 'purge'];
const EXAMPLES = 3;

export class ErrorsView {
  title = 'Errors';
  /** The pages that were read, so that a refresh reads the same again. */
  #pages = 1;

  constructor({ app, params }) {
    this.app = app;
    this.source = app.source;
    this.search = params.get('q') ?? '';
    const { query, problems } = parseSearch(this.search);
    this.problems = query.statuses.length > 0 ? [...problems, 'status: does not apply here: all of these tasks are failed'] : problems;
    this.query = { ...query, statuses: ['failed'] };
  }

  async load() {
    if (this.problems.length > 0) return;
    const tasks = [];
    let examined = 0;
    let next;
    for (let page = 0; page < this.#pages; page += 1) {
      const found = await this.source.failures(this.query, next);
      tasks.push(...found.tasks);
      examined += found.examined;
      next = found.next;
      if (!next) break;
    }
    this.data = { groups: groupFailures(tasks), read: tasks.length, examined, more: Boolean(next) };
  }

  render() {
    return h('main', { id: 'main', class: 'errors', tabindex: '-1' },
      h('div', { class: 'page-head' }, h('h1', {}, 'Errors'), this.data && h('span', { class: 'note' }, this.#basis())),
      this.#tools(),
      this.problems.map((text) => problem({ message: text })),
      this.problems.length > 0 ? undefined : this.data ? this.#groups() : h('p', { class: 'faint loading-line' }, 'Loading…'));
  }

  #basis() {
    const { read, examined, more } = this.data;
    const basis = more ? `from ${plural(read, 'failed task')}; there may be more` : `from all ${plural(read, 'failed task')}`;
    return this.search || examined > read ? `${basis} · ${searchCost(examined, !more)}` : basis;
  }

  #tools() {
    const submit = (event) => {
      event.preventDefault();
      go('errors', { q: event.target.q.value.trim() || undefined });
    };
    return h('form', { class: 'tools-line', role: 'search', on: { submit } },
      h('label', { class: 'search' }, h('span', { class: 'sr-only' }, 'Search failed tasks'),
        h('input', { id: 'search', name: 'q', type: 'search', value: this.search, placeholder: 'type:resize, queue:bulk, tag:vip', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off' })),
      this.data?.more && this.problems.length === 0 && button('Read more failed tasks', () => { this.#pages += 1; this.app.refresh({ force: true }); }));
  }

  #groups() {
    const { groups, more } = this.data;
    if (groups.length === 0) {
      return more ? empty(this.search ? 'None of the tasks checked matches' : 'None of the tasks checked has failed') : empty('No failed tasks', this.search ? h('p', {}, h('a', { href: address('errors') }, 'Show all errors')) : undefined);
    }
    return h('ol', { class: 'groups' }, groups.map((group) => this.#group(group)));
  }

  #group(group) {
    const many = group.tasks.length;
    const how = this.data.more ? 'at least' : 'exact';
    return h('li', { class: 'panel group', key: group.pattern },
      h('div', { class: 'group-head' },
        h('strong', { class: 'group-count' }, count({ value: many, how })),
        h('h2', { class: 'group-error' }, group.pattern),
        !this.source.readOnly && h('span', { class: 'group-actions' }, ACTIONS_OFFERED.filter((kind) => this.source.actions.includes(kind)).map((kind) => button(`${ACTIONS[kind].label}…`, () => this.#act(kind, group), { key: kind, kind: `small ${ACTIONS[kind].destructive ? 'danger-quiet' : ''}` })))),
      group.example !== group.pattern && h('p', { class: 'group-example', title: group.example }, group.example),
      h('p', { class: 'note' },
        'first ', timeOf(group.first, this.source), ' · last ', timeOf(group.last, this.source), ' · ',
        group.types.slice(0, 4).map(([type, of], index) => [index > 0 && ', ', h('a', { href: address('tasks', { tab: 'failed', q: `type:${type}` }) }, type), ` ${number(of)}`]),
        group.types.length > 4 && `, ${plural(group.types.length - 4, 'more type')}`,
        ' · for example ', group.tasks.slice(0, EXAMPLES).map((task) => [taskLink(task.id, task.id.slice(0, 8)), ' '])));
  }

  #act(kind, group) {
    const filter = this.search ? ` (${describe(this.query)})` : '';
    const words = `the ${plural(group.tasks.length, 'listed failed task')} with the error “${group.pattern}”${filter}`;
    actOnMany(this.app, kind, words, async () => group.tasks);
  }
}

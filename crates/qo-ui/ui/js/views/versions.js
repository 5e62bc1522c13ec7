// The stored versions of a task, and the changes between two of them. Each costs a GET, so they are loaded on demand. The URL contains
// the two versions, so that a comparison can be shared.

import { h } from '../dom.js';
import { elements, fields, kindOf } from '../json/scan.js';
import { address, go } from '../router.js';
import { fullTime } from '../format.js';
import { payloadKey, shownValue } from '../record/sealed.js';
import { badge, button, panel, problem, statusWord } from '../widgets/basics.js';

const VALUE_MAX = 300;
/** The number of newest versions to read without being selected. */
const PRELOADED = 12;

export class Versions {
  #list;
  #stale = false;
  #content = new Map();

  constructor({ app, id, params, isOpen }) {
    this.app = app;
    this.source = app.source;
    this.id = id;
    this.isOpen = isOpen;
    this.a = params.get('a');
    this.b = params.get('b');
  }

  /** Marks the list as outdated, because the task has changed. */
  outdated() {
    this.#stale = true;
  }

  async load() {
    if (!this.isOpen || (this.#list && !this.#stale)) return;
    try {
      this.#list = await this.source.versions(this.id);
      this.#stale = false;
      this.error = undefined;
    } catch (error) {
      this.error = error;
      return;
    }
    const { versions } = this.#list;
    const has = (version) => versions.some((one) => one.version === version);
    if (!has(this.b)) this.b = versions.at(-1)?.version;
    if (!has(this.a)) this.a = versions.at(-2)?.version ?? this.b;
    await this.#loadContent();
  }

  render() {
    if (!this.isOpen) {
      return panel('Versions', { note: 'every stored state of the task', tools: button('Show versions', () => go(`tasks/${this.id}/versions`)) });
    }
    if (this.error) return panel('Versions', {}, problem(this.error));
    if (!this.#list) return panel('Versions', {}, h('p', { class: 'faint' }, 'Loading…'));
    const { versions, truncated } = this.#list;
    return panel('Versions', { note: `${versions.length}${truncated ? '+' : ''} stored`, tools: h('a', { href: address(`tasks/${this.id}`) }, 'Hide') },
      h('div', { class: 'versions' },
        h('div', { class: 'scroll', tabindex: '0' }, h('table', { class: 'plain version-list' },
          h('thead', {}, h('tr', {}, ['From', 'To', 'Stored', 'Status', 'Revision'].map((name) => h('th', { scope: 'col' }, name)))),
          h('tbody', {}, [...versions].reverse().map((version) => this.#row(version))))),
        this.#difference()));
  }

  #row(version) {
    const record = this.#content.get(version.version);
    const choose = (side) => h('td', {}, h('input', {
      type: 'radio', name: `version-${side}`, 'aria-label': `Compare ${side === 'a' ? 'from' : 'to'} the version of ${new Date(version.modified).toISOString()}`,
      checked: this[side] === version.version, on: { change: () => this.#choose(side, version.version) },
    }));
    const task = record?.view?.();
    return h('tr', { key: version.version },
      choose('a'), choose('b'),
      h('td', { class: 'when' }, fullTime(version.modified).slice(0, 19)),
      h('td', {}, version.deleted ? h('span', { class: 'faint' }, 'deleted') : task ? badge(statusWord(task, this.source.now())) : h('span', { class: 'faint' }, '–')),
      h('td', {}, task ? String(task.revision) : h('span', { class: 'faint' }, '–')));
  }

  async #choose(side, version) {
    this[side] = version;
    history.replaceState(null, '', address(`tasks/${this.id}/versions`, { a: this.a, b: this.b }));
    await this.#loadContent();
    this.app.redraw();
  }

  async #loadContent() {
    const { versions } = this.#list;
    // A version never changes, so each is read once.
    const newest = versions.slice(-PRELOADED).map((one) => one.version);
    const chosen = [...new Set([this.a, this.b, ...newest])];
    const wanted = chosen.filter((version) => version && !this.#content.has(version) && !versions.find((one) => one.version === version)?.deleted);
    await Promise.all(wanted.map(async (version) => {
      try {
        this.#content.set(version, await this.source.version(this.id, version));
      } catch (error) {
        this.#content.set(version, { error });
      }
    }));
  }

  #difference() {
    const [from, to] = [this.#content.get(this.a), this.#content.get(this.b)];
    if (!from || !to) return h('p', { class: 'faint' }, 'Select two versions to compare.');
    if (from.error || to.error) return problem(from.error ?? to.error);
    const changes = difference(from.write(), to.write());
    if (changes.length === 0) return h('p', { class: 'faint' }, 'The versions are identical.');
    return h('div', { class: 'scroll' }, h('table', { class: 'plain diff', 'aria-label': 'Changes between the two versions' },
      h('thead', {}, h('tr', {}, ['Field', 'Before', 'After'].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, changes.map(({ path, before, after }) => h('tr', { key: path },
        h('th', { scope: 'row', class: 'mono' }, path),
        h('td', { class: before === undefined ? 'faint' : 'removed' }, before === undefined ? 'missing' : cut(shownValue(before))),
        h('td', { class: after === undefined ? 'faint' : 'added' }, after === undefined ? 'missing' : cut(shownValue(after))))))));
  }
}

/** The differences between two JSON texts, by path. A value that exists on one side only is one difference. */
export function difference(before, after, path = '') {
  if (before === after) return [];
  const isWhole = before === undefined || after === undefined || payloadKey(before) !== undefined || kindOf(before) !== kindOf(after);
  const kind = isWhole ? 'leaf' : kindOf(before);
  if (kind !== 'object' && kind !== 'array') return [{ path, before: before?.trim(), after: after?.trim() }];
  const [one, other] = [children(kind, before), children(kind, after)];
  const names = [...new Set([...one.keys(), ...other.keys()])];
  const within = (name) => (kind === 'array' ? `${path}[${name}]` : path ? `${path}.${name}` : name);
  return names.flatMap((name) => difference(one.get(name), other.get(name), within(name)));
}

function children(kind, text) {
  return new Map(kind === 'object' ? fields(text) : elements(text).map((element, index) => [index, element]));
}

const cut = (text) => (text.length > VALUE_MAX ? `${text.slice(0, VALUE_MAX)}…` : text);

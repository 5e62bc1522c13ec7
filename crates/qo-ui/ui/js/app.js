// The application: navigation, refreshing, keyboard shortcuts and error handling.

import { h, icon, patch } from './dom.js';
import { dollars, plural } from './format.js';
import { address, go, readRoute, takeLinkPayload } from './router.js';
import { applyTheme, changeSettings, getSettings, INTERVALS } from './settings.js';
import { HttpSource } from './http/source.js';
import { S3Source } from './s3/source.js';
import { SourceError } from './source.js';
import { problem, sentence, tickTimes } from './widgets/basics.js';
import { showHelp } from './views/help.js';
import { toast } from './widgets/toast.js';
import { ConnectView } from './views/connect.js';
import { OverviewView } from './views/overview.js';
import { QueuesView } from './views/queues.js';
import { SettingsView } from './views/settings.js';
import { TasksView } from './views/tasks.js';
import { TaskView } from './views/task.js';
import { WorkersView } from './views/workers.js';

const PAGES = [
  ['overview', 'Overview', OverviewView],
  ['tasks', 'Tasks', TasksView],
  ['queues', 'Queues', QueuesView],
  ['workers', 'Workers', WorkersView],
  ['settings', 'Settings', SettingsView],
];
const GO_KEYS = { o: 'overview', t: 'tasks', q: 'queues', w: 'workers', s: 'settings' };
const GO_WAIT_MS = 1500;
const LIVE_PAUSE_MS = 1000;

class App {
  source;
  /** Data shared between pages, such as the counts on the tabs. */
  memory = {};
  #view;
  #error;
  #loading = false;
  #again = false;
  #loadedAt;
  #timer;
  #goPressedAt = 0;
  #stopLive;
  /** Whether to focus the search field once the task list is shown. */
  #searchNext = false;

  async start() {
    applyTheme();
    const payload = takeLinkPayload();
    window.addEventListener('hashchange', () => this.#navigate());
    document.addEventListener('keydown', (event) => this.#key(event));
    document.addEventListener('visibilitychange', () => this.#visibility());
    setInterval(() => this.#tick(), 1000);
    if (payload) {
      const error = await this.connect(connectionFromLink(payload));
      if (error) this.#showConnect(error, formFromLink(payload));
      return;
    }
    const own = await HttpSource.ownServer();
    if (own && !(await this.connect(own))) return;
    this.#showConnect(undefined, own ?? undefined);
  }

  /** Connects to a source. Returns the error if that fails. */
  async connect(connection) {
    let source;
    try {
      source = connection.kind === 'http' ? new HttpSource(connection) : new S3Source(connection);
      await source.open();
    } catch (error) {
      source?.close();
      return error instanceof SourceError ? error : new SourceError('unknown', String(error.message ?? error));
    }
    this.source = source;
    this.memory = {};
    source.counter.addEventListener('change', () => this.#drawFooter());
    this.#stopLive = source.live?.(() => this.#onChange());
    if (readRoute().path.length === 0) history.replaceState(null, '', '#/overview');
    this.#navigate();
    this.schedule();
    return undefined;
  }

  disconnect(error) {
    this.#stopLive?.();
    this.source?.close();
    this.source = undefined;
    this.memory = {};
    clearTimeout(this.#timer);
    this.#showConnect(error);
  }

  remember(data) {
    Object.assign(this.memory, data);
  }

  /** Reloads the page's data and redraws. */
  async refresh(options = {}) {
    if (!this.source || !this.#view) return;
    if (this.#loading) {
      this.#again = true;
      return;
    }
    const view = this.#view;
    this.#loading = true;
    this.#drawTop();
    try {
      await view.load(options);
      if (view === this.#view) this.#error = undefined;
      this.#loadedAt = this.source?.now();
    } catch (error) {
      if (view === this.#view) this.#failed(error);
    } finally {
      this.#loading = false;
    }
    if (this.#again || view !== this.#view) {
      this.#again = false;
      await this.refresh();
      return;
    }
    this.redraw();
    this.schedule();
  }

  /** Runs an operation, reports its error, and refreshes the page. */
  async attempt(work) {
    try {
      await work();
      await this.refresh({ force: true });
      return true;
    } catch (error) {
      toast(sentence(error.message), 'bad', error.hint && h('span', {}, error.hint));
      if (error.kind === 'expired') this.disconnect(error);
      else await this.refresh({ force: true });
      return false;
    }
  }

  /** Schedules the next refresh, unless the tab is hidden. */
  schedule() {
    clearTimeout(this.#timer);
    const { refreshSeconds } = getSettings();
    if (!this.source || refreshSeconds === 0 || document.hidden) return;
    this.#timer = setTimeout(() => {
      // The page must not change while a dialog refers to it.
      if (document.querySelector('dialog[open]')) this.schedule();
      else this.refresh();
    }, refreshSeconds * 1000);
  }

  redraw() {
    const root = document.getElementById('app');
    if (!this.source) {
      patch(root, [h('header', { class: 'top' }, brand()), this.#view.render(), h('footer', { id: 'footer' })]);
      return;
    }
    document.title = `${this.#view.title} · ${this.source.title} · qo`;
    const content = this.#view.render();
    if (this.#error) content.prepend(problem(this.#error, { retry: () => this.refresh({ force: true }) }));
    patch(root, [h('a', { class: 'skip', href: '#main', on: { click: (event) => { event.preventDefault(); document.getElementById('main').focus(); } } }, 'Skip to content'), this.#top(), content, h('footer', { id: 'footer', class: 'footer' }, this.#footer())]);
  }

  #showConnect(error, suggestion) {
    this.#view = new ConnectView({ app: this, error, suggestion });
    document.title = 'Connect · qo';
    this.redraw();
  }

  #navigate() {
    if (!this.source) return;
    const { path, params } = readRoute();
    const [, , Page] = PAGES.find(([name]) => name === path[0]) ?? PAGES[0];
    const View = path[0] === 'tasks' && path[1] ? TaskView : Page;
    this.#view = new View({ app: this, path, params });
    this.#error = undefined;
    document.querySelector('dialog[open]')?.close();
    this.redraw();
    window.scrollTo(0, 0);
    if (this.#searchNext) document.getElementById('search')?.focus();
    this.#searchNext = false;
    this.refresh();
  }

  #failed(error) {
    console.warn(error);
    if (error.kind === 'expired') this.disconnect(error);
    else this.#error = error instanceof SourceError ? error : new SourceError('unknown', sentence(String(error.message ?? error)));
  }

  #visibility() {
    if (document.hidden) {
      clearTimeout(this.#timer);
      return;
    }
    const { refreshSeconds } = getSettings();
    const age = this.source ? this.source.now() - (this.#loadedAt ?? 0) : 0;
    if (refreshSeconds > 0 && age > refreshSeconds * 1000) this.refresh();
    else this.schedule();
  }

  /** Refreshes soon after a change notification; several changes cause one refresh. */
  #onChange() {
    if (document.hidden || document.querySelector('dialog[open]')) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), LIVE_PAUSE_MS);
  }

  #tick() {
    if (!this.source || document.hidden) return;
    tickTimes(this.source);
    if (this.#view.isOutdated?.()) this.redraw();
    const element = document.getElementById('as-of');
    if (element) element.textContent = this.#asOf();
    if (this.source.expires && this.source.now() > this.source.expires) {
      this.disconnect(new SourceError('expired', 'the session has expired', { hint: 'Create a new link.', command: 'qo ui link' }));
    }
  }

  #drawTop() {
    const element = document.querySelector('header.top');
    if (element) patch(element, [...this.#top().childNodes]);
  }

  #drawFooter() {
    const element = document.getElementById('footer');
    if (element && this.source) patch(element, this.#footer());
  }

  #top() {
    const here = readRoute().path[0] ?? 'overview';
    const { refreshSeconds } = getSettings();
    return h('header', { class: 'top' },
      brand(),
      h('nav', { class: 'pages', 'aria-label': 'Pages' }, PAGES.map(([name, label]) => h('a', { href: address(name), 'aria-current': name === here ? 'page' : undefined, key: name }, icon(name), h('span', {}, label)))),
      h('div', { class: 'top-right' },
        h('span', { class: 'source', title: this.source.detail }, this.source.readOnly && icon('lock'), this.source.title),
        h('button', { type: 'button', class: `quiet ${this.#loading ? 'busy' : ''}`, 'aria-label': 'Refresh', title: 'Refresh (r)', on: { click: () => this.refresh({ force: true }) } }, icon('refresh')),
        h('label', { class: 'select' }, h('span', { class: 'sr-only' }, 'Refresh interval'),
          h('select', { 'aria-label': 'Refresh interval', value: String(refreshSeconds), on: { change: (event) => { changeSettings({ refreshSeconds: Number(event.target.value) }); this.schedule(); this.redraw(); } } },
            INTERVALS.map((seconds) => h('option', { value: String(seconds), selected: seconds === refreshSeconds }, seconds === 0 ? 'Off' : `${seconds} s`))))));
  }

  #footer() {
    const { counter } = this.source;
    const parts = Object.entries(counter.counts).filter(([, many]) => many > 0).map(([kind, many]) => `${many} ${kind.toUpperCase()}`).join(', ');
    return [
      h('span', { id: 'as-of' }, this.#asOf()),
      h('span', { id: 'requests', title: parts },
        `${plural(counter.requests, 'request')} in this session`, this.source.kind === 's3' && ` · ${dollars(counter.dollars)} at S3 prices`),
      h('button', { type: 'button', class: 'link', on: { click: showHelp } }, 'Shortcuts ', h('kbd', {}, '?')),
    ];
  }

  #asOf() {
    if (!this.#loadedAt) return '';
    const seconds = Math.max(Math.round((this.source.now() - this.#loadedAt) / 1000), 0);
    return seconds < 2 ? 'Up to date' : `Updated ${seconds} s ago`;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.source || document.querySelector('dialog[open]')) return;
    if (event.target.closest?.('input:not([type=checkbox]):not([type=radio]), textarea, select')) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    const afterG = Date.now() - this.#goPressedAt < GO_WAIT_MS;
    this.#goPressedAt = 0;
    const handled = this.#handleKey(event, afterG);
    if (handled) event.preventDefault();
  }

  #handleKey(event, afterG) {
    if (afterG && GO_KEYS[event.key]) {
      go(GO_KEYS[event.key]);
      return true;
    }
    switch (event.key) {
      case 'g':
        this.#goPressedAt = Date.now();
        return true;
      case '/':
        this.#searchNext = !document.getElementById('search');
        if (this.#searchNext) go('tasks');
        else document.getElementById('search').focus();
        return true;
      case '?':
        showHelp();
        return true;
      case 'r':
        this.refresh({ force: true });
        return true;
      case 'u':
        go('tasks');
        return true;
      default:
        return this.#view.key?.(event) ?? false;
    }
  }
}

function brand() {
  return h('a', { class: 'brand', href: '#/overview', 'aria-label': 'qo' }, h('span', { 'aria-hidden': 'true' }, 'qo'));
}

/** The payload of a link as form values, so that the user can try again. */
function formFromLink(payload) {
  return {
    ...payload, kind: payload.url ? 'http' : 's3', readOnly: payload.mode === 'read', virtualHost: Boolean(payload.virtual_host),
    accessKeyId: payload.access_key_id, secretAccessKey: payload.secret_access_key, sessionToken: payload.session_token ?? '',
  };
}

/** The payload of a link as a connection. */
function connectionFromLink(payload) {
  const expires = payload.expires ? Date.parse(payload.expires) : undefined;
  const readOnly = payload.mode === 'read';
  if (payload.url) return { kind: 'http', url: String(payload.url), token: payload.token, readOnly, expires };
  return {
    kind: 's3', endpoint: String(payload.endpoint), bucket: String(payload.bucket), prefix: payload.prefix ?? '', region: payload.region ?? 'us-east-1',
    virtualHost: Boolean(payload.virtual_host), readOnly, expires,
    credentials: { accessKeyId: payload.access_key_id, secretAccessKey: payload.secret_access_key, sessionToken: payload.session_token },
  };
}

new App().start();

// The application: navigation, refreshing, keyboard shortcuts and error handling.

import { h, icon, patch } from './dom.js';
import { dollars, plural } from './format.js';
import { address, go, goTo, readRoute, takeLinkPayload } from './router.js';
import { applyTheme, changeSettings, getSettings, INTERVALS } from './settings.js';
import { askForSession, mayHandOver } from './http/handover.js';
import { HttpSource } from './http/source.js';
import { S3Source } from './s3/source.js';
import { SourceError } from './source.js';
import { Throttle } from './throttle.js';
import { problem, sentence, switchTimes, tickTimes } from './widgets/basics.js';
import { showHelp } from './views/help.js';
import { toast } from './widgets/toast.js';
import { ConfirmLinkView, foreignHost } from './views/confirm_link.js';
import { ConnectView } from './views/connect.js';
import { ErrorsView } from './views/errors.js';
import { OverviewView } from './views/overview.js';
import { QueuesView } from './views/queues.js';
import { SchedulesView } from './views/schedules.js';
import { SettingsView } from './views/settings.js';
import { TasksView } from './views/tasks.js';
import { TaskView } from './views/task.js';
import { WorkersView } from './views/workers.js';

const PAGES = [
  ['overview', 'Overview', OverviewView],
  ['tasks', 'Tasks', TasksView],
  ['errors', 'Errors', ErrorsView],
  ['queues', 'Queues', QueuesView],
  ['schedules', 'Schedules', SchedulesView],
  ['workers', 'Workers', WorkersView],
  ['settings', 'Settings', SettingsView],
];
const GO_KEYS = { o: 'overview', t: 'tasks', e: 'errors', q: 'queues', c: 'schedules', w: 'workers', s: 'settings' };
const GO_WAIT_MS = 1500;
/** The least time between two refreshes after change notifications. */
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
  #live = new Throttle(() => this.#refreshLive(), LIVE_PAUSE_MS);
  /** Whether something changed while the page was hidden or a dialog was open. */
  #isStale = false;
  /** The last connection, without credentials. */
  #lastConnection;
  /** Whether to focus the search field once the task list is shown. */
  #searchNext = false;

  async start() {
    applyTheme();
    const payload = takeLinkPayload();
    window.addEventListener('hashchange', () => this.#navigate());
    document.addEventListener('keydown', (event) => this.#key(event));
    document.addEventListener('visibilitychange', () => this.#visibility());
    document.addEventListener('click', (event) => {
      if (this.source && event.target.closest?.('time[data-time]')) switchTimes(this.source);
    });
    setInterval(() => this.#tick(), 1000);
    if (payload) await this.#follow(payload);
    else await this.#connectToOwnServer();
  }

  /** Follows a link. A link to another host than that of the page needs confirmation. */
  async #follow(payload) {
    const connection = connectionFromLink(payload);
    const accept = async () => {
      const error = await this.connect(connection);
      if (error) this.#showConnect(error, formFromLink(payload));
    };
    const host = foreignHost(connection);
    if (host === undefined) {
      await accept();
      return;
    }
    this.#view = new ConfirmLinkView({ host, connection, accept, refuse: () => this.#connectToOwnServer() });
    document.title = `${this.#view.title} · qo`;
    this.redraw();
    document.querySelector('main button')?.focus();
  }

  /** Connects to the server that served the page, with the session of another tab if the server needs a token. */
  async #connectToOwnServer() {
    const own = await HttpSource.ownServer();
    const session = own?.needsToken && mayHandOver(own.url) ? await askForSession() : undefined;
    const isReload = performance.getEntriesByType('navigation')[0]?.type === 'reload';
    if (own && (!own.needsToken || session)) {
      const error = await this.connect({ ...own, ...session });
      if (!error) return;
      this.#showConnect(error.kind === 'expired' ? undefined : error, own);
      return;
    }
    this.#showConnect(undefined, own, isReload);
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
    this.#loadedAt = undefined;
    this.#lastConnection = { ...connection, token: undefined, credentials: undefined };
    source.counter.addEventListener('change', () => this.#drawFooter());
    this.#stopLive = source.live?.(() => this.#onChange(), () => this.#recheck());
    if (readRoute().path.length === 0) history.replaceState(null, '', '#/overview');
    this.#navigate();
    this.schedule();
    return undefined;
  }

  disconnect(error) {
    this.#stopLive?.();
    this.#live.stop();
    this.source?.close();
    this.source = undefined;
    this.memory = {};
    clearTimeout(this.#timer);
    document.querySelector('dialog[open]')?.close();
    this.#showConnect(error, this.#lastConnection);
  }

  /** The address of the task list as it was left. */
  listAddress() {
    return this.memory.list?.hash ?? address('tasks');
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
    const started = performance.now();
    this.#loading = true;
    this.#isStale = false;
    this.#drawTop();
    try {
      await view.load(options);
      if (view === this.#view) this.#error = undefined;
      this.#loadedAt = this.source?.now();
    } catch (error) {
      if (view === this.#view) await this.#failed(error);
    } finally {
      this.#loading = false;
      this.#live.done(performance.now() - started);
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
      toast(sentence(error.message), 'bad', error.hint && h('span', {}, error.hint, error.command && [' ', h('code', {}, error.command)]));
      if (error.kind === 'denied') await this.#recheck();
      if (error.kind === 'expired') this.disconnect(error);
      else await this.refresh({ force: true });
      return false;
    }
  }

  /** Asks what the credentials still allow, after a refusal: a token may have been revoked. */
  async #recheck() {
    const { source } = this;
    try {
      await source?.checkScopes?.();
    } catch (error) {
      if (source === this.source && (error.kind === 'expired' || error.kind === 'denied')) this.disconnect(error);
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

  #showConnect(error, suggestion, wasReloaded) {
    this.#view = new ConnectView({ app: this, error, suggestion, wasReloaded });
    document.title = 'Connect · qo';
    this.redraw();
    document.querySelector('input[autofocus]')?.focus();
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
    // On a phone the tabs are wider than the screen.
    for (const tab of document.querySelectorAll('.pages [aria-current], .tabs [aria-current]')) tab.scrollIntoView?.({ block: 'nearest', inline: 'center' });
    if (this.#searchNext) document.getElementById('search')?.focus();
    this.#searchNext = false;
    this.refresh();
  }

  async #failed(error) {
    console.warn(error);
    if (error.kind === 'denied') await this.#recheck();
    if (!this.source) return;
    if (error.kind === 'expired') this.disconnect(error);
    else this.#error = error instanceof SourceError ? error : new SourceError('unknown', sentence(String(error.message ?? error)), { hint: error.hint, command: error.command });
  }

  #visibility() {
    if (document.hidden) {
      clearTimeout(this.#timer);
      return;
    }
    const { refreshSeconds } = getSettings();
    const age = this.source ? this.source.now() - (this.#loadedAt ?? 0) : 0;
    if (this.#isStale || (refreshSeconds > 0 && age > refreshSeconds * 1000)) this.refresh();
    else this.schedule();
  }

  /** Refreshes soon after a change notification. However many changes there are, the page is refreshed once per pause. */
  #onChange() {
    if (document.hidden) this.#isStale = true;
    else this.#live.notify();
  }

  #refreshLive() {
    if (!this.source || document.hidden) return;
    // The page must not change while a dialog refers to it, and a refresh that is running may have read older data.
    if (this.#loading || document.querySelector('dialog[open]')) this.#live.notify();
    else this.refresh();
  }

  #tick() {
    if (!this.source || document.hidden) return;
    tickTimes(this.source);
    if (this.#view.isOutdated?.()) this.redraw();
    const element = document.getElementById('as-of');
    if (element) patch(element, [...this.#asOf().childNodes]);
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
        this.#asOf(),
        h('button', { type: 'button', class: `quiet ${this.#loading ? 'busy' : ''}`, 'aria-label': 'Refresh', title: 'Refresh (r)', on: { click: () => this.refresh({ force: true }) } }, icon('refresh')),
        h('label', { class: 'select' }, h('span', { class: 'sr-only' }, 'Refresh interval'),
          h('select', { 'aria-label': 'Refresh interval', value: String(refreshSeconds), on: { change: (event) => { changeSettings({ refreshSeconds: Number(event.target.value) }); this.schedule(); this.redraw(); } } },
            INTERVALS.map((seconds) => h('option', { value: String(seconds), selected: seconds === refreshSeconds }, seconds === 0 ? 'Off' : `${seconds} s`))))));
  }

  #footer() {
    const { counter } = this.source;
    const parts = Object.entries(counter.counts).filter(([, many]) => many > 0).map(([kind, many]) => `${many} ${kind.toUpperCase()}`).join(', ');
    return [
      h('span', { id: 'requests', title: parts },
        `${plural(counter.requests, 'request')} in this session`, this.source.kind === 's3' && ` · ${dollars(counter.dollars)} at S3 prices`),
      h('button', { type: 'button', class: 'link', on: { click: showHelp } }, 'Shortcuts ', h('kbd', {}, '?')),
    ];
  }

  /** The age of the data on the page. */
  #asOf() {
    const at = this.#view?.dataAt?.() ?? this.#loadedAt;
    const { refreshSeconds } = getSettings();
    const seconds = at ? Math.max(Math.round((this.source.now() - at) / 1000), 0) : 0;
    const isOld = Boolean(this.#error) || (refreshSeconds > 0 && seconds > refreshSeconds * 3 + 30);
    const text = !at ? '' : seconds < 2 ? 'up to date' : seconds < 120 ? `${seconds} s old` : `${Math.round(seconds / 60)} min old`;
    return h('span', { id: 'as-of', class: isOld ? 'warn-text' : '', title: 'The age of the data on this page' }, text);
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
        goTo(this.listAddress());
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

// A qo server as a source: the HTTP API under `/v1`, with change notifications.
//
// The server counts and filters. A server of an earlier version knows fewer conditions: the others are applied here, page by page, as for
// buckets. Lists leave out inputs, outputs and histories.

import { Counter } from '../counter.js';
import { elements, fields } from '../json/scan.js';
import { isTaskId, newTaskId } from '../record/keys.js';
import { TaskRecord } from '../record/record.js';
import { timesOf } from '../record/schedules.js';
import { matches, serverSearch } from '../search.js';
import { actOneByOne, SourceError } from '../source.js';
import { readWorker } from '../s3/source.js';
import { HttpClient } from './client.js';
import { offerSession, mayHandOver } from './handover.js';
import { countsOf, ServerOverview } from './overview.js';
import { SharedStream } from './stream.js';

const PAGE_MAX = 1000;
const RECEIVED_MAX = 2000;
/** The requests for one page. Each of them lets the server compare up to 10,000 tasks, which may all not match. */
const REQUESTS_MAX = 10;
const STATS_MAX_AGE_MS = 5_000;
/** The tasks of one bulk request: few enough to show progress and to stop in between. */
const BULK = 200;
/** From this number of tasks on, the server works in the background: the page can be closed meanwhile. */
const BACKGROUND_FROM = 5_000;
const BACKGROUND_MAX = 50_000;
const BACKGROUND_POLL_MS = 400;
const MATCH_FIELDS = ['id', 'task_type', 'queue', 'shard', 'status', 'tags', 'available_at', 'expires_at', 'cancel_requested', 'worker_id', 'updated_at', 'created_at'];
const ROW_FIELDS = [...MATCH_FIELDS, 'priority', 'attempt', 'max_retries', 'retry_count', 'started_at', 'completed_at', 'lease_expires_at', 'progress', 'last_error', 'revision'];
const FAILURE_FIELDS = ['id', 'task_type', 'queue', 'shard', 'status', 'tags', 'available_at', 'worker_id', 'last_error', 'updated_at', 'created_at'];

export class HttpSource {
  kind = 'http';
  takesGroups = true;
  takesOrdering = true;
  counter = new Counter();
  hidden = new Set();
  actions = ['replay', 'redrive', 'run_now', 'cancel', 'archive', 'unarchive', 'purge'];
  #client;
  #overview;
  #stats;
  #record;
  #stopOffer;
  #isNode = false;
  /** Older servers return whole tasks and take no ids in bulk requests. */
  #selectsFields = true;
  #worksInBackground = true;
  #takesIds = true;
  #counts = true;
  #sortsColumns = true;
  #searches = true;

  constructor(connection) {
    this.connection = { ...connection, token: undefined };
    this.#client = new HttpClient(connection, this.counter);
    this.#overview = new ServerOverview((query, options) => this.#list(query, options));
    this.base = this.#client.base;
    this.readOnly = Boolean(connection.readOnly);
    this.expires = connection.expires;
    this.title = new URL(connection.url).host;
    this.detail = this.base;
  }

  /** The server that served this page, if it is a qo server. A reverse proxy may put it under a path. */
  static async ownServer() {
    const before = /^(.*?)\/(?:ui\/)?(?:index\.html)?$/.exec(location.pathname)?.[1];
    if (before === undefined || !location.protocol.startsWith('http') || location.hostname.endsWith('.amazonaws.com')) return undefined;
    try {
      const url = location.origin + before;
      const response = await fetch(`${url}/v1/info`, { cache: 'no-store', signal: AbortSignal.timeout(5_000) });
      const isQo = response.ok ? (await response.json()).service === 'qo' : response.headers.get('content-type')?.includes('problem+json');
      return isQo ? { kind: 'http', url, needsToken: response.status === 401 } : undefined;
    } catch {
      return undefined;
    }
  }

  now() {
    return this.#client.now();
  }

  async open() {
    await this.checkScopes();
    if (this.#client.token && mayHandOver(this.base)) {
      const { readOnly, expires } = this.connection;
      this.#stopOffer = offerSession({ token: this.#client.token, readOnly: Boolean(readOnly), expires });
    }
  }

  /** Asks what the token allows. Fails if it does not allow reading. */
  async checkScopes() {
    const { scopes, cluster } = JSON.parse(await this.#client.request('GET', '/v1/info'));
    this.scopes = scopes;
    this.#isNode = Boolean(cluster);
    if (!scopes.includes('read') && !scopes.includes('admin')) {
      throw new SourceError('denied', `this token cannot read tasks: its scope is ${scopes.join(', ') || 'empty'}`, {
        hint: 'The dashboard needs a token with the scope read, or admin to change tasks. Create one with:',
        command: 'qo token create --name dashboard --scope read',
      });
    }
    this.mayWrite = scopes.includes('admin');
    if (!this.mayWrite) this.readOnly = true;
  }

  close() {
    this.#stopOffer?.();
    this.#client.close();
  }

  async page(query, cursor, limit = 50, options = {}) {
    if (query.id && isTaskId(query.id)) {
      const task = await this.get(query.id).catch((error) => {
        if (error.kind === 'not_found') return undefined;
        throw error;
      });
      const found = task && matches(query, task, this.now()) ? [task] : [];
      return { tasks: found, examined: 1, order: 'id', total: found.length };
    }
    const tasks = [];
    let examined = 0;
    let received = 0;
    let requests = 0;
    let next = cursor?.next;
    if (options.column && this.#sortsColumns && (this.#searches || !serverSearch(query))) {
      const sorted = await this.#sortedPage(query, limit, options);
      if (sorted) return sorted;
    }
    do {
      const page = await this.#list(query, { cursor: next, limit: limit - tasks.length, fields: ROW_FIELDS, ...options });
      examined += page.examined ?? page.tasks.length;
      received += page.tasks.length;
      requests += 1;
      // The server has looked for the text, in fields that this list omits.
      tasks.push(...(this.#searches ? page.tasks : page.tasks.filter((task) => matches({ ...query, text: undefined }, task, this.now()))));
      next = page.next;
    } while (next && tasks.length < limit && received < RECEIVED_MAX && requests < REQUESTS_MAX);
    const isNewestFirst = tasks.length > 1 && tasks.every((task, index) => index === 0 || task.created_at <= tasks[index - 1].created_at);
    return { tasks, examined, order: isNewestFirst ? 'created' : 'id', next: next && { next }, total: !cursor && !next ? tasks.length : undefined };
  }

  /** The first tasks by a column, among the newest that match; undefined on older servers, which sort by no column. */
  async #sortedPage(query, limit, { column, reverse }) {
    try {
      const { tasks, sorted, examined = sorted.among } = await this.#list(query, { limit, fields: ROW_FIELDS, sort: column, reverse });
      return { tasks, examined, order: 'column', sorted, total: sorted.complete && sorted.among === tasks.length ? tasks.length : undefined };
    } catch (error) {
      if (error.kind !== 'bad_request') throw error;
      this.#sortsColumns = false;
      return undefined;
    }
  }

  /** A page of failed tasks with their errors. */
  async failures(query, cursor) {
    return this.page({ ...query, statuses: ['failed'] }, cursor, PAGE_MAX, { fields: FAILURE_FIELDS });
  }

  async overview({ force, period = 'hour', queue, type } = {}) {
    const isChosen = queue !== undefined || type !== undefined;
    const [stats, workers, counted, report] = await Promise.all([
      this.#takeStats(0), this.workers(), this.#counted({ period }), isChosen ? this.#counted({ period, queue, task_type: type }) : undefined,
    ]);
    return this.#overview.take(stats, workers, this.now(), { force, counted, chosen: report && { report, queue, type } });
  }

  /** What the server has counted, unless other processes change tasks, too, or it is too old to count. */
  async #counted(query) {
    if (!this.#counts) return undefined;
    const params = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined));
    try {
      const report = await this.#visible('activity', `/v1/activity?${params}`);
      return report?.covers === 'queue' ? report : undefined;
    } catch (error) {
      if (error.kind !== 'not_found') throw error;
      this.#counts = false;
      return undefined;
    }
  }

  /** A document of the server; undefined, and noted as hidden, if the server refuses it to this token. */
  async #visible(what, path) {
    try {
      const text = await this.#client.request('GET', path);
      this.hidden.delete(what);
      return JSON.parse(text);
    } catch (error) {
      if (error.kind !== 'denied') throw error;
      this.hidden.add(what);
      return undefined;
    }
  }

  /** The number of tasks by status, in one queue or all. It costs one request, so lists show it. */
  async tabCounts(queue) {
    const stats = await this.#takeStats(STATS_MAX_AGE_MS);
    const { counts, total } = countsOf(queue === undefined ? stats : { ...stats, queues: queue in stats.queues ? { [queue]: stats.queues[queue] } : {} });
    return { counts, total };
  }

  async get(id) {
    const text = await this.#client.request('GET', `/v1/tasks/${encodeURIComponent(id)}`);
    this.#record = readRecord(text);
    return viewOf(this.#record);
  }

  /** What a pending task waits for. */
  async waitsFor(task) {
    if (task.status !== 'pending') return undefined;
    return JSON.parse(await this.#client.request('GET', `/v1/tasks/${task.id}/waits_for`)).waits_for ?? undefined;
  }

  /** The text of the task that was read last. */
  rawRecord(id) {
    return this.#record?.get('id') === id ? this.#record.write() : undefined;
  }

  async payload(task, field) {
    return task[field] ?? this.#client.request('GET', `/v1/tasks/${task.id}/${field}`);
  }

  async versions(id) {
    const response = new Map(fields(await this.#client.request('GET', `/v1/tasks/${id}/versions?limit=${PAGE_MAX}`)));
    const versions = elements(response.get('versions')).map((text) => {
      const version = new Map(fields(text));
      const record = version.has('task') && version.get('task') !== 'null' ? readRecord(version.get('task')) : undefined;
      return { version: JSON.parse(version.get('version')), modified: Date.parse(JSON.parse(version.get('stored_at'))), deleted: !record, record };
    });
    this.knownVersions = new Map(versions.map((version) => [version.version, version.record]));
    return { versions, truncated: versions.length >= PAGE_MAX };
  }

  async version(id, version) {
    const record = this.knownVersions?.get(version);
    if (!record) throw new SourceError('not_found', 'this version no longer exists');
    return record;
  }

  /** The state of the cluster, if this server is a node of one. */
  async cluster() {
    return this.#isNode ? this.#visible('cluster', '/v1/cluster') : undefined;
  }

  async workers() {
    const response = (await this.#visible('workers', '/v1/workers')) ?? [];
    return (Array.isArray(response) ? response : response.workers).map(readWorker);
  }

  async askWorker(id, action) {
    this.#requireWritable();
    await this.#client.request('POST', `/v1/workers/${encodeURIComponent(id)}/${action}`);
  }

  async act(kind, id, { reason, to } = {}) {
    this.#requireWritable();
    if (kind === 'purge') {
      await this.#client.request('DELETE', `/v1/tasks/${id}`);
      return undefined;
    }
    const body = kind === 'cancel' ? JSON.stringify(reason ? { reason } : {}) : kind === 'redrive' ? JSON.stringify({ to }) : undefined;
    this.#record = readRecord(await this.#client.request('POST', `/v1/tasks/${id}/${kind}`, body));
    return viewOf(this.#record);
  }

  async actOnAll(kind, tasks, options) {
    this.#requireWritable();
    const report = { done: 0, failed: 0, failures: [], left: 0 };
    let inBackground = tasks.length >= BACKGROUND_FROM && this.#takesIds && this.#worksInBackground;
    let at = 0;
    while (at < tasks.length) {
      if (options.signal?.aborted) {
        report.left += tasks.length - at;
        break;
      }
      const batch = tasks.slice(at, at + (inBackground ? BACKGROUND_MAX : BULK));
      const before = report.done + report.failed;
      const onProgress = (finished) => options.onProgress?.({ finished: before + finished });
      const outcome = inBackground ? await this.#inBackground(kind, batch, options, onProgress) : await this.#bulk(kind, batch, options);
      // An older server, a token that may not, or a server that has no room now: the rest goes in small requests.
      if (!outcome) {
        inBackground = false;
        continue;
      }
      at += batch.length;
      const { done, failed, failures, left = 0 } = outcome;
      report.done += done;
      report.failed += failed;
      report.failures.push(...failures);
      report.left += left;
      options.onProgress?.({ finished: report.done + report.failed });
    }
    return report;
  }

  /** Lets the server work in the background and shows its progress. Returns undefined if the server cannot. */
  async #inBackground(kind, tasks, { reason, to, signal }, onProgress) {
    const body = { operation: kind, filter: { ids: tasks.map((task) => task.id) }, reason, to, background: true };
    let job;
    try {
      job = JSON.parse(await this.#client.request('POST', '/v1/bulk', JSON.stringify(body)));
    } catch (error) {
      if (!['bad_request', 'bad_body', 'forbidden', 'denied', 'unavailable'].includes(error.kind)) throw error;
      this.#worksInBackground = error.kind === 'unavailable';
      return undefined;
    }
    let isCancelled = false;
    while (job.state === 'running') {
      onProgress(job.result.matched);
      await new Promise((done) => setTimeout(done, BACKGROUND_POLL_MS));
      const cancels = signal?.aborted && !isCancelled;
      job = JSON.parse(await this.#client.request(cancels ? 'DELETE' : 'GET', `/v1/bulk/${job.id}`));
      isCancelled ||= cancels;
    }
    const { result } = job;
    if (result.stopped) throw new SourceError('unavailable', result.stopped.detail ?? 'the server stopped before it reached all tasks');
    const failures = result.failures.map(({ id, problem }) => ({ id, message: problem.detail ?? problem.title }));
    return { done: result.done, failed: result.failed, failures, left: tasks.length - result.matched };
  }

  async #bulk(kind, tasks, options) {
    const { reason, to, signal } = options;
    if (!this.#takesIds) return actOneByOne(this, kind, tasks, { signal, reason, to });
    const body = { operation: kind, filter: { ids: tasks.map((task) => task.id) }, reason, to };
    let response;
    try {
      response = JSON.parse(await this.#client.request('POST', '/v1/bulk', JSON.stringify(body)));
    } catch (error) {
      if (error.kind !== 'bad_request' || !/\bids\b/.test(error.message)) throw error;
      this.#takesIds = false;
      return this.#bulk(kind, tasks, options);
    }
    const failures = response.failures.map(({ id, problem }) => ({ id, message: problem.detail ?? problem.title }));
    if (response.stopped) throw new SourceError('unavailable', response.stopped.detail ?? 'the server stopped before it reached all tasks');
    return { done: response.done, failed: response.failed, failures };
  }

  async submit(request) {
    this.#requireWritable();
    const { input, retry_policy: retries, ...others } = request;
    const policy = retries ? `,"retry_policy":${retries}` : '';
    const settings = JSON.stringify({ id: newTaskId(this.now()), ...others });
    // The input is inserted byte for byte.
    const response = await this.#client.request('POST', '/v1/tasks', `${settings.slice(0, -1)}${policy},"input":${input.trim()}}`);
    const submitted = new Map(fields(response));
    return viewOf(readRecord(submitted.get('task') ?? response));
  }

  async setPaused({ queue, type }, paused, reason) {
    this.#requireWritable();
    const name = queue === undefined ? `types/${encodeURIComponent(type)}` : `queues/${encodeURIComponent(queue)}`;
    const body = paused && reason ? JSON.stringify({ reason }) : undefined;
    await this.#client.request('POST', `/v1/${name}/${paused ? 'pause' : 'resume'}`, body);
  }

  async queueSettings() {
    try {
      const { queues } = (await this.#visible('settings', '/v1/queues')) ?? { queues: [] };
      return new Map(queues.map(({ queue, settings }) => [queue, settings]));
    } catch (error) {
      // Older servers have no settings of queues.
      if (error.kind === 'not_found' || error.kind === 'no_route') return new Map();
      throw error;
    }
  }

  async schedules() {
    try {
      const { schedules } = (await this.#visible('schedules', '/v1/schedules')) ?? { schedules: [] };
      return schedules.map((schedule) => ({ ...schedule, ...timesOf(schedule) }));
    } catch (error) {
      // Older servers have no schedules.
      if (error.kind === 'not_found') return [];
      throw error;
    }
  }

  async limits() {
    try {
      return (await this.#visible('limits', '/v1/limits'))?.limits ?? [];
    } catch (error) {
      // Older servers have no limits.
      if (error.kind === 'not_found') return [];
      throw error;
    }
  }

  /** The webhooks, which only operators see. Undefined for others, and on older servers. */
  async webhooks() {
    if (!this.mayWrite) return undefined;
    try {
      return JSON.parse(await this.#client.request('GET', '/v1/webhooks')).webhooks;
    } catch (error) {
      if (error.kind === 'not_found' || error.kind === 'denied') return undefined;
      throw error;
    }
  }

  async putWebhook(name, webhook) {
    this.#requireWritable();
    return JSON.parse(await this.#client.request('PUT', `/v1/webhooks/${encodeURIComponent(name)}`, JSON.stringify(webhook)));
  }

  async removeWebhook(name) {
    this.#requireWritable();
    await this.#client.request('DELETE', `/v1/webhooks/${encodeURIComponent(name)}`);
  }

  async testWebhook(name) {
    this.#requireWritable();
    return JSON.parse(await this.#client.request('POST', `/v1/webhooks/${encodeURIComponent(name)}/test`)).delivery;
  }

  async setSchedulePaused(name, paused) {
    this.#requireWritable();
    await this.#client.request('POST', `/v1/schedules/${encodeURIComponent(name)}/${paused ? 'pause' : 'resume'}`);
  }

  async triggerSchedule(name) {
    this.#requireWritable();
    return JSON.parse(await this.#client.request('POST', `/v1/schedules/${encodeURIComponent(name)}/trigger`)).task_id;
  }

  async matching(query, { signal, onProgress } = {}) {
    const tasks = [];
    let cursor;
    let examined = 0;
    do {
      signal?.throwIfAborted();
      const page = await this.page(query, cursor, PAGE_MAX, { fields: MATCH_FIELDS });
      tasks.push(...page.tasks);
      examined += page.examined;
      onProgress?.({ examined, matched: tasks.length });
      cursor = page.next;
    } while (cursor);
    return tasks;
  }

  /** Listens for changes, together with the other tabs that show this server. */
  live(listener, refused) {
    const stream = new SharedStream({ name: `qo-events ${this.base}`, open: (signal, on) => this.#client.events(signal, on), listener, refused });
    return () => stream.close();
  }

  async #takeStats(maxAgeMs) {
    if (this.#stats && Date.now() - this.#stats.at < maxAgeMs) return this.#stats.stats;
    const stats = JSON.parse(await this.#client.request('GET', '/v1/stats'));
    this.#stats = { at: Date.now(), stats };
    return stats;
  }

  async #list(query, { cursor, limit, fields: names, sort, reverse }) {
    const params = new URLSearchParams({ limit: String(Math.max(Math.min(limit, PAGE_MAX), 1)) });
    const statuses = new Set((query.statuses ?? []).map((status) => (status === 'due' || status === 'scheduled' ? 'pending' : status)));
    params.set('status', statuses.size > 0 ? [...statuses].join(',') : 'pending,running,completed,failed,cancelled,archived');
    const shard = query.shard ?? query.id?.[0];
    for (const [name, value] of [['queue', query.queue], ['task_type', query.type], ['tag', query.tag], ['shard', shard], ['text', query.text], ['cursor', cursor]]) {
      if (value) params.set(name, value);
    }
    if (sort) params.set('sort', sort);
    if (reverse) params.set('reverse', 'true');
    for (const name of ['since', 'until']) if (query[name] !== undefined) params.set(name, new Date(query[name]).toISOString());
    const search = this.#searches ? serverSearch(query) : '';
    if (search) params.set('search', search);
    const selects = this.#selectsFields;
    if (selects) params.set('fields', names.join(','));
    let text;
    try {
      text = await this.#client.request('GET', `/v1/tasks?${params}`);
    } catch (error) {
      if (search && error.kind === 'bad_request' && /unknown field `search`/.test(error.message)) {
        this.#searches = false;
        return this.#list(query, { cursor, limit, fields: names, sort, reverse });
      }
      if (!selects || error.kind !== 'bad_request' || !/\bfields\b/.test(error.message)) throw error;
      this.#selectsFields = false;
      return this.#list(query, { cursor, limit, fields: names });
    }
    const response = new Map(fields(text));
    const parsed = (name) => (response.has(name) ? JSON.parse(response.get(name)) ?? undefined : undefined);
    return { tasks: elements(response.get('tasks')).map((task) => viewOf(readRecord(task))), next: parsed('next'), sorted: parsed('sorted'), examined: parsed('examined') };
  }

  #requireWritable() {
    if (this.readOnly) throw new SourceError('read_only', 'this session is read-only');
  }
}

function readRecord(text) {
  return new TaskRecord(new Map(fields(text)));
}

/** The view of a record that may lack fields. */
function viewOf(record) {
  const view = record.view();
  view.shard ??= view.id?.[0];
  return view;
}

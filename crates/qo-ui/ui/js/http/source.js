// A qo server as a source: the HTTP API under `/v1`, with change notifications.
//
// The server counts and filters. Conditions that its filter lacks (worker, prefix of an id, due or scheduled) are applied here, page by
// page, as for buckets.

import { activityOf } from '../activity.js';
import { Counter } from '../counter.js';
import { elements, fields } from '../json/scan.js';
import { isTaskId } from '../record/keys.js';
import { TaskRecord } from '../record/record.js';
import { matches } from '../search.js';
import { SourceError } from '../source.js';
import { readWorker } from '../s3/source.js';

const TIMEOUT_MS = 30_000;
const PAGE_MAX = 1000;
const EXAMINED_MAX = 2000;
const RECENT_MS = 3_600_000;
const LIVE_WAIT_MAX_MS = 30_000;

export class HttpSource {
  kind = 'http';
  counter = new Counter();
  #token;
  #offset = 0;
  #records = new Map();

  constructor(connection) {
    this.connection = { ...connection, token: undefined };
    this.base = new URL(connection.url).href.replace(/\/+$/, '');
    this.#token = connection.token || undefined;
    this.readOnly = Boolean(connection.readOnly);
    this.expires = connection.expires;
    this.title = new URL(connection.url).host;
    this.detail = this.base;
  }

  /** The server that served this page, if it is a qo server. */
  static async ownServer() {
    const isRoot = /^\/(?:ui\/)?(?:index\.html)?$/.test(location.pathname) && location.protocol.startsWith('http');
    if (!isRoot || location.hostname.endsWith('.amazonaws.com')) return undefined;
    try {
      const response = await fetch('/v1/info', { cache: 'no-store', signal: AbortSignal.timeout(5_000) });
      const isQo = response.ok ? (await response.json()).service === 'qo' : response.headers.get('content-type')?.includes('problem+json');
      return isQo ? { kind: 'http', url: location.origin } : undefined;
    } catch {
      return undefined;
    }
  }

  now() {
    return Date.now() + this.#offset;
  }

  async open() {
    const info = JSON.parse(await this.#request('GET', '/v1/info'));
    this.#offset = Date.parse(info.now) - Date.now();
    this.scopes = info.scopes;
    if (!info.scopes.includes('admin')) this.readOnly = true;
  }

  close() {
    this.#token = undefined;
  }

  async page(query, cursor, limit = 50) {
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
    let next = cursor?.next;
    do {
      const page = await this.#list(query, next, limit - tasks.length);
      examined += page.tasks.length;
      tasks.push(...page.tasks.filter((task) => matches(query, task, this.now())));
      next = page.next;
    } while (next && tasks.length < limit && examined < EXAMINED_MAX);
    return { tasks, examined, order: 'id', next: next && { next }, total: !cursor && !next ? tasks.length : undefined };
  }

  async overview() {
    const now = this.now();
    const [stats, workers, pending, running, failed, recent] = await Promise.all([
      this.#request('GET', '/v1/stats').then(JSON.parse),
      this.workers(),
      this.#list({ statuses: ['pending'] }, undefined, PAGE_MAX),
      this.#list({ statuses: ['running'] }, undefined, PAGE_MAX),
      this.#list({ statuses: ['failed'] }, undefined, PAGE_MAX),
      this.#list({ statuses: [], since: now - RECENT_MS }, undefined, PAGE_MAX),
    ]);
    const total = { value: 0, how: stats.partial ? 'at least' : 'exact' };
    const counts = {};
    const how = total.how;
    for (const queue of Object.values(stats.queues)) {
      for (const [status, many] of Object.entries(queue.statuses)) {
        counts[status] = { value: (counts[status]?.value ?? 0) + many, how };
        total.value += many;
      }
    }
    for (const status of ['running', 'completed', 'failed', 'cancelled', 'archived']) counts[status] ??= { value: 0, how };
    const due = pending.tasks.filter((task) => task.available_at <= now);
    const pendingHow = pending.next ? 'at least' : 'exact';
    counts.due = { value: due.length, how: pendingHow };
    counts.scheduled = { value: pending.tasks.length - due.length, how: pendingHow };
    const known = new Map([...recent.tasks, ...failed.tasks].map((task) => [task.id, task]));
    const activity = activityOf([...known.values()], {
      now,
      from: now - RECENT_MS,
      share: 1,
      basis: recent.next ? { read: recent.tasks.length, total } : undefined,
    });
    activity.aside = 'Tasks submitted within the last hour.';
    activity.deadLettersFrom = failed.next ? failed.tasks.length : undefined;
    return {
      at: now,
      total,
      counts,
      workers,
      activity,
      running: running.tasks,
      paused: new Map(Object.entries(stats.queues).filter(([, queue]) => queue.paused).map(([name]) => [name, undefined])),
      pending: this.#pending(pending, stats, now),
    };
  }

  async get(id) {
    return this.#view(await this.#request('GET', `/v1/tasks/${id}`));
  }

  rawRecord(id) {
    return this.#records.get(id)?.write();
  }

  async payload(task, field) {
    return task[field] ?? this.#request('GET', `/v1/tasks/${task.id}/${field}`);
  }

  async versions(id) {
    const response = new Map(fields(await this.#request('GET', `/v1/tasks/${id}/versions?limit=${PAGE_MAX}`)));
    const versions = elements(response.get('versions')).map((text) => {
      const version = new Map(fields(text));
      const record = version.has('task') && version.get('task') !== 'null' ? new TaskRecord(new Map(fields(version.get('task')))) : undefined;
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

  async workers() {
    const response = JSON.parse(await this.#request('GET', '/v1/workers'));
    return (Array.isArray(response) ? response : response.workers).map(readWorker);
  }

  async act(kind, id, { reason } = {}) {
    this.#requireWritable();
    const body = kind === 'cancel' ? JSON.stringify(reason ? { reason } : {}) : undefined;
    return this.#view(await this.#request('POST', `/v1/tasks/${id}/${kind}`, body));
  }

  async submit(request) {
    this.#requireWritable();
    const policy = request.retry_policy ? `,"retry_policy":${request.retry_policy}` : '';
    const { task_type, queue, priority, delay_ms, timeout_seconds, max_retries, tags } = request;
    const settings = JSON.stringify({ id: crypto.randomUUID(), task_type, queue, priority, delay_ms, timeout_seconds, max_retries, tags });
    // The input is inserted byte for byte.
    const response = await this.#request('POST', '/v1/tasks', `${settings.slice(0, -1)}${policy},"input":${request.input.trim()}}`);
    const submitted = new Map(fields(response));
    return this.#view(submitted.get('task') ?? response);
  }

  async setPaused(queue, paused) {
    this.#requireWritable();
    await this.#request('POST', `/v1/queues/${encodeURIComponent(queue)}/${paused ? 'pause' : 'resume'}`);
  }

  async matching(query, { signal, onProgress } = {}) {
    const tasks = [];
    let cursor;
    let examined = 0;
    do {
      signal?.throwIfAborted();
      const page = await this.page(query, cursor, PAGE_MAX);
      tasks.push(...page.tasks);
      examined += page.examined;
      onProgress?.({ examined, matched: tasks.length });
      cursor = page.next;
    } while (cursor);
    return tasks;
  }

  /** Listens for changes. Reconnects with increasing delays. */
  live(listener) {
    const stop = new AbortController();
    (async () => {
      for (let wait = 1000; !stop.signal.aborted; wait = Math.min(wait * 2, LIVE_WAIT_MAX_MS)) {
        try {
          const response = await fetch(`${this.base}/v1/events`, { headers: this.#headers({ accept: 'text/event-stream' }), cache: 'no-store', signal: stop.signal });
          if (response.status === 401 || response.status === 403 || response.status === 404) return;
          if (response.ok) {
            wait = 1000;
            for await (const text of response.body.pipeThrough(new TextDecoderStream())) if (/^data:/m.test(text)) listener();
          }
        } catch {
          // Retried below. Meanwhile the pages refresh periodically.
        }
        await new Promise((done) => setTimeout(done, wait));
      }
    })();
    return () => stop.abort();
  }

  async #list(query, cursor, limit) {
    const params = new URLSearchParams({ limit: String(Math.max(Math.min(limit, PAGE_MAX), 1)) });
    const statuses = new Set((query.statuses ?? []).map((status) => (status === 'due' || status === 'scheduled' ? 'pending' : status)));
    params.set('status', statuses.size > 0 ? [...statuses].join(',') : 'pending,running,completed,failed,cancelled,archived');
    const shard = query.shard ?? query.id?.[0];
    for (const [name, value] of [['queue', query.queue], ['task_type', query.type], ['tag', query.tag], ['shard', shard], ['cursor', cursor]]) {
      if (value) params.set(name, value);
    }
    if (query.since) params.set('since', new Date(query.since).toISOString());
    const response = new Map(fields(await this.#request('GET', `/v1/tasks?${params}`)));
    return { tasks: elements(response.get('tasks')).map((text) => this.#view(text)), next: response.has('next') ? JSON.parse(response.get('next')) : undefined };
  }

  #pending(pending, stats, now) {
    const queues = new Map();
    for (const task of pending.tasks) {
      const queue = queues.get(task.queue) ?? { due: 0, scheduled: 0, types: new Map(), oldestDue: undefined };
      queue[task.available_at <= now ? 'due' : 'scheduled'] += 1;
      queue.types.set(task.task_type, (queue.types.get(task.task_type) ?? 0) + 1);
      queues.set(task.queue, queue);
    }
    let oldest;
    for (const [name, { oldest_due: text }] of Object.entries(stats.queues)) {
      const at = text ? Date.parse(text) : undefined;
      const queue = queues.get(name);
      if (queue) queue.oldestDue = at;
      if (at && (!oldest || at < oldest.availableAt)) oldest = { availableAt: at };
    }
    return { queues, oldest, how: pending.next ? 'at least' : 'exact' };
  }

  #view(text) {
    const record = new TaskRecord(new Map(fields(text)));
    const view = record.view();
    if (this.#records.size > 5000) this.#records.clear();
    this.#records.set(view.id, record);
    return view;
  }

  #headers(more = {}) {
    return this.#token ? { ...more, authorization: `Bearer ${this.#token}` } : more;
  }

  async #request(method, path, body) {
    let response;
    this.counter.add('http');
    try {
      response = await fetch(this.base + path, {
        method, body, cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(TIMEOUT_MS),
        headers: this.#headers(body === undefined ? {} : { 'content-type': 'application/json' }),
      });
    } catch (error) {
      throw new SourceError('network', `no response from ${this.base}`, { cause: error, hint: 'Check the URL, that the server is running, and that it allows requests from this page.' });
    }
    const time = Date.parse(response.headers.get('qo-time'));
    if (Number.isFinite(time)) this.#offset = time - Date.now();
    const text = await response.text();
    if (response.ok) return text;
    throw errorFrom(response.status, text);
  }

  #requireWritable() {
    if (this.readOnly) throw new SourceError('read_only', 'this session is read-only');
  }
}

/** Converts a problem document to an error. */
function errorFrom(status, text) {
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch {
    // The response comes from a proxy.
  }
  const message = problem.detail ?? problem.title ?? `the server responded with ${status}`;
  const kinds = { 401: 'denied', 403: 'denied', 404: 'not_found', 409: problem.code === 'not_versioned' ? 'not_versioned' : 'conflict', 429: 'throttled', 503: 'unavailable' };
  const hint = status === 401 ? 'Enter a valid token.' : status === 403 ? 'Enter a token with the required scope.' : undefined;
  return new SourceError(kinds[status] ?? (status >= 500 ? 'unavailable' : 'bad_request'), message, { hint });
}

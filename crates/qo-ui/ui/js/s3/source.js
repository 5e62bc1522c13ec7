// A bucket as a source. The browser calls S3 directly.

import { Counter } from '../counter.js';
import { inputKey, isName, lineKey, newTaskId, outputKey, QUEUES_KEY, taskKey } from '../record/keys.js';
import { limitApplies, limitRecordKey, limitUsage, limitWait } from '../record/limit_usage.js';
import { readPauses, setPaused, waitsForPause } from '../record/queues.js';
import { TaskRecord } from '../record/record.js';
import { completed, QUEUE_SETTINGS_PREFIX, queueOfSettings, queueSettingsKey, readQueueSettings } from '../record/queue_settings.js';
import { carriesOp, readSchedule, recordTrigger, requestOf, scheduleKey, scheduleName, SCHEDULES_PREFIX, setSchedulePaused } from '../record/schedules.js';
import { timeText } from '../record/schema.js';
import { apply, INLINE_PAYLOAD_MAX_BYTES, stopsLine, submit } from '../record/transitions.js';
import { ACTOR, actOneByOne, mapConcurrently, SourceError } from '../source.js';
import { TaskCache } from './cache.js';
import { changeTask, createTask, isInDoubt, signal } from './change.js';
import { S3Client } from './client.js';
import { StoreClock } from './clock.js';
import { hex, sha256 } from './sign.js';
import { Survey } from './survey.js';
import { Walk } from './walk.js';

const WORKERS_MAX = 1000;
const SCHEDULES_MAX = 1000;
const LIMITS_PREFIX = 'meta/settings/limits/';
const WEBHOOKS_PREFIX = 'meta/settings/webhooks/';
const LIMITS_MAX = 1000;
const FAILURES = 400;
const TRIES_MAX = 8;

export class S3Source {
  kind = 's3';
  counter = new Counter();
  hidden = new Set();
  mayWrite = true;
  actions = ['replay', 'redrive', 'run_now', 'cancel', 'archive', 'unarchive'];
  #client;
  #cache;
  #walk;
  #survey;
  #workers = new Map();
  #schedules = new Map();
  #limits = new Map();

  constructor(connection) {
    this.connection = { ...connection, credentials: undefined };
    this.readOnly = Boolean(connection.readOnly);
    this.expires = connection.expires;
    this.title = connection.prefix ? `${connection.bucket}/${connection.prefix}` : connection.bucket;
    this.detail = new URL(connection.endpoint).host;
    this.#client = new S3Client(connection, this.counter, new StoreClock());
    this.#cache = new TaskCache(this.#client);
    this.#walk = new Walk(this.#client, this.#cache);
    this.#survey = new Survey(this.#client, this.#cache);
  }

  now() {
    return this.#client.clock.now();
  }

  async open() {
    await this.#client.list('tasks/', { max: 1 });
  }

  close() {
    this.#client.close();
  }

  async page(query, cursor, limit) {
    return this.#walk.page(query, cursor, limit);
  }

  /** A page of failed tasks with their errors. There is no index of failures, so each task must be read. */
  async failures(query, cursor) {
    return this.#walk.page({ ...query, statuses: ['failed'] }, cursor, FAILURES);
  }

  async overview(options) {
    const [survey, workers, pauses] = await Promise.all([this.#survey.take(options), this.workers(), this.#pauses()]);
    return { ...survey, workers, pauses };
  }

  /** Counts tasks by reading all of them. */
  async countAll(options) {
    return this.#survey.countAll(this.#all({ statuses: [] }, options));
  }

  async get(id) {
    const task = await this.#cache.read(id);
    if (!task) throw new SourceError('not_found', `task ${id} does not exist`);
    return task;
  }

  /** What a pending task waits for: the end of a pause, the head of the line of its ordering key, or a limit. */
  async waitsFor(task) {
    if (task.status !== 'pending') return undefined;
    const paused = waitsForPause(task, await this.#pauses());
    return paused ?? (await this.#waitsBehind(task)) ?? this.#waitsForLimit(task);
  }

  async #waitsBehind(task) {
    if (task.ordering_key === undefined) return undefined;
    let line;
    try {
      const digest = hex(await sha256(new TextEncoder().encode(`${task.queue}/${task.ordering_key}`)));
      line = JSON.parse((await this.#client.get(lineKey(digest))).text);
    } catch (error) {
      if (isHidden(error)) return undefined;
      throw error;
    }
    const ahead = line.tasks.findIndex(({ id }) => id === task.id);
    if (ahead <= 0) return undefined;
    const behind = line.tasks[0].id;
    const head = await this.#cache.read(behind);
    return { reason: 'ordering_key', behind, ahead, stopped: Boolean(head && stopsLine(head)) };
  }

  /** The limit that a due task waits for. Only the records of limits that apply to the task are read. */
  async #waitsForLimit(task) {
    if (task.available_at > this.now()) return undefined;
    const rules = await this.#limitRules().catch(unlessHidden);
    const limits = rules?.filter((limit) => limitApplies(limit, task)) ?? [];
    const waits = await mapConcurrently(limits, 24, async (limit) => {
      // The record of one limit may be hidden; another limit can still explain the wait.
      const record = await this.#limitRecord(limit.name).catch(unlessHidden);
      return limitWait(limit, record, this.now());
    });
    return waits.find(Boolean);
  }

  /** The stored text of a cached task. */
  rawRecord(id) {
    return this.#cache.record(id)?.write();
  }

  async payload(task, field) {
    const reference = task[`${field}_ref`];
    if (!reference) return task[field];
    const key = field === 'input' ? inputKey(task.id, reference.sha256) : outputKey(task.id, task.attempt);
    const { text } = await this.#client.get(key);
    if (hex(await sha256(text)) !== reference.sha256) {
      throw new SourceError('unreadable', `the ${field} does not match the hash in the task's record`);
    }
    return text;
  }

  async versions(id) {
    const { versions, truncated } = await this.#client.versions(taskKey(id));
    const real = versions.filter((version) => version.version && version.version !== 'null');
    if (real.length === 0) {
      throw new SourceError('not_versioned', 'this bucket is not versioned', {
        hint: 'The history of the task does not depend on versions. Enable versioning with:',
        command: 'qo init',
      });
    }
    // The list is newest first. For versions with the same second, only its order tells which is newer.
    const oldestFirst = real.reverse().map((version, index) => ({ ...version, index }));
    oldestFirst.sort((a, b) => a.modified - b.modified || a.index - b.index);
    return { versions: oldestFirst, truncated };
  }

  async version(id, version) {
    const { text } = await this.#client.get(taskKey(id), { version });
    return TaskRecord.read(text);
  }

  /** A bucket belongs to no cluster. */
  async cluster() {
    return undefined;
  }

  async workers() {
    const list = await this.#client.list('workers/', { max: WORKERS_MAX });
    keepListed(this.#workers, list);
    const workers = await mapConcurrently(list.entries, 24, async ({ key, etag }) => {
      const known = this.#workers.get(key);
      if (known?.etag === etag) return known.worker;
      try {
        const worker = readWorker((await this.#client.get(key)).text);
        this.#workers.set(key, { etag, worker });
        return worker;
      } catch (error) {
        if (error.kind === 'not_found' || error instanceof SyntaxError) return undefined;
        throw error;
      }
    });
    return workers.filter(Boolean);
  }

  /** Writes the request into the worker's record, as `crates/qo-engine/src/worker_records.rs` does. */
  async askWorker(id, action) {
    this.#requireWritable();
    const key = `workers/${id}.json`;
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const { text, etag } = await this.#client.get(key);
      const worker = JSON.parse(text);
      if ((worker.request?.action ?? 'resume') === action) return;
      delete worker.request;
      if (action !== 'resume') worker.request = { action, at: timeText(this.now()), by: ACTOR };
      worker.op_id = crypto.randomUUID();
      try {
        await this.#client.put(key, JSON.stringify(worker), { ifMatch: etag });
        return;
      } catch (error) {
        // A heartbeat came first, or the response was lost. The next read tells.
        if (!isInDoubt(error)) throw error;
      }
    }
    throw new SourceError('in_doubt', `it is unknown whether worker ${id} was asked: the store does not respond`);
  }

  async act(kind, id, { reason, to } = {}) {
    this.#requireWritable();
    const record = await changeTask(this.#client, id, kind, (before, op, now) => apply(before, { kind, reason, to, by: ACTOR }, op, now));
    this.#cache.forget(id);
    return record.view();
  }

  async actOnAll(kind, tasks, options) {
    this.#requireWritable();
    return actOneByOne(this, kind, tasks, options);
  }

  async submit(request) {
    this.#requireWritable();
    const id = newTaskId(this.now());
    const op = crypto.randomUUID();
    const bytes = new TextEncoder().encode(request.input.trim());
    const taskRequest = completed(request, await this.#settingsOf(queueSettingsKey(request.queue)));
    if (bytes.length > INLINE_PAYLOAD_MAX_BYTES) {
      const digest = hex(await sha256(bytes));
      // The payload is written before the record that refers to it.
      await this.#putInput(inputKey(id, digest), request);
      taskRequest.input_ref = { size: bytes.length, sha256: digest };
    }
    const record = submit(taskRequest, id, op, this.now());
    await createTask(this.#client, record, op);
    return record.view();
  }

  /** The sessions of links may write tasks, but no payloads of their own: they must not replace those of other tasks. */
  async #putInput(key, request) {
    try {
      await this.#client.putUnconditionally(key, request.input.trim());
    } catch (error) {
      if (error.kind !== 'denied') throw error;
      throw new SourceError('too_large', `this session cannot store inputs above ${INLINE_PAYLOAD_MAX_BYTES / 1024} KiB, and nothing was submitted`, {
        cause: error, hint: 'Shorten the input, connect with keys that may write to data/, or submit the task with the command.', command: `qo submit --type ${request.task_type} --input @FILE`,
      });
    }
  }

  async setPaused(target, paused, reason) {
    this.#requireWritable();
    const name = target.queue ?? target.type;
    // The engine could not read a record with another name, and nobody else checks it.
    if (!isName(name)) throw new SourceError('bad_request', `${name} is not a valid name: use letters, digits, _, - and ., at most 64`);
    const op = crypto.randomUUID();
    const note = paused ? { by: ACTOR, reason } : undefined;
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const found = await this.#readQueues();
      const body = setPaused(found?.text, target, note, op, this.now());
      if (body === undefined) {
        await signal(this.#client);
        return;
      }
      try {
        await this.#client.put(QUEUES_KEY, body, found ? { ifMatch: found.etag } : { ifNoneMatch: '*' });
        await signal(this.#client);
        return;
      } catch (error) {
        if (!isInDoubt(error)) throw error;
      }
    }
    throw new SourceError('in_doubt', `it is unknown whether ${name} was changed; reload the page`);
  }

  async queueSettings() {
    const found = await this.#client.list(QUEUE_SETTINGS_PREFIX, { max: SCHEDULES_MAX });
    const settings = await mapConcurrently(found.entries, 24, async ({ key }) => [queueOfSettings(key), await this.#settingsOf(key)]);
    return new Map(settings.filter(([, values]) => Object.keys(values).length > 0));
  }

  async #settingsOf(key) {
    try {
      return readQueueSettings((await this.#client.get(key)).text);
    } catch (error) {
      if (error.kind === 'not_found' || error instanceof SyntaxError) return {};
      throw error;
    }
  }

  async schedules() {
    const found = await this.#client.list(SCHEDULES_PREFIX, { max: SCHEDULES_MAX });
    keepListed(this.#schedules, found);
    const schedules = await mapConcurrently(found.entries, 24, async ({ key, etag }) => {
      const known = this.#schedules.get(key);
      if (known?.etag === etag) return known.schedule;
      try {
        const schedule = readSchedule(scheduleName(key), (await this.#client.get(key)).text);
        this.#schedules.set(key, { etag, schedule });
        return schedule;
      } catch (error) {
        if (error.kind === 'not_found' || error instanceof SyntaxError) return undefined;
        throw error;
      }
    });
    return schedules.filter(Boolean);
  }

  async limits() {
    return mapConcurrently(await this.#limitRules(), 24, async (limit) => ({ ...limit, usage: await this.#limitUsage(limit) }));
  }

  /** The limits without their usage. One that has not changed since the last time is not read again. */
  async #limitRules() {
    const found = await this.#client.list(LIMITS_PREFIX, { max: LIMITS_MAX });
    keepListed(this.#limits, found);
    const limits = await mapConcurrently(found.entries, 24, async ({ key, etag }) => {
      const known = this.#limits.get(key);
      if (known?.etag === etag) return known.limit;
      try {
        const { body } = JSON.parse((await this.#client.get(key)).text);
        const limit = body && { name: key.slice(LIMITS_PREFIX.length, -'.json'.length), ...body };
        this.#limits.set(key, { etag, limit });
        return limit;
      } catch (error) {
        if (isHidden(error) || error instanceof SyntaxError) return undefined;
        throw error;
      }
    });
    return limits.filter(Boolean);
  }

  /** The webhooks, without their secrets. The session of a link may list them, but not read them: then only their names are known. */
  async webhooks() {
    const found = await this.#client.list(WEBHOOKS_PREFIX, { max: LIMITS_MAX });
    const webhooks = await mapConcurrently(found.entries, 24, async ({ key }) => {
      const name = key.slice(WEBHOOKS_PREFIX.length, -'.json'.length);
      try {
        const { body } = JSON.parse((await this.#client.get(key)).text);
        return body && { name, ...body, secret: undefined };
      } catch (error) {
        if (error.kind === 'denied') return { name, isHidden: true };
        if (error.kind === 'not_found' || error instanceof SyntaxError) return undefined;
        throw error;
      }
    });
    return webhooks.filter(Boolean);
  }

  /** What is used of a limit; undefined if the page may not read it. */
  async #limitUsage(limit) {
    try {
      return limitUsage(limit, await this.#limitRecord(limit.name), this.now());
    } catch {
      return undefined;
    }
  }

  /** The record of a limit; undefined if nobody has used it. */
  async #limitRecord(name) {
    try {
      return (await this.#client.get(limitRecordKey(name))).text;
    } catch (error) {
      if (error.kind === 'not_found') return undefined;
      throw error;
    }
  }

  async setSchedulePaused(name, paused) {
    await this.#changeSchedule(name, (text, op, now) => setSchedulePaused(text, paused, op, now));
  }

  /** Submits the task first: a run that is not recorded does no harm, one that is recorded and missing would. */
  async triggerSchedule(name) {
    this.#requireWritable();
    const { text } = await this.#client.get(scheduleKey(name));
    const { id } = await this.submit(requestOf(name, text));
    await this.#changeSchedule(name, (before, op, now) => recordTrigger(before, id, op, now));
    return id;
  }

  /** Changes the record of a schedule by compare-and-swap. */
  async #changeSchedule(name, change) {
    this.#requireWritable();
    const op = crypto.randomUUID();
    const key = scheduleKey(name);
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const { text, etag } = await this.#client.get(key);
      const changed = carriesOp(text, op) ? undefined : change(text, op, this.now());
      if (changed === undefined) {
        await signal(this.#client);
        return;
      }
      try {
        await this.#client.put(key, changed, { ifMatch: etag });
        await signal(this.#client);
        return;
      } catch (error) {
        if (!isInDoubt(error)) throw error;
      }
    }
    throw new SourceError('in_doubt', `it is unknown whether schedule ${name} was changed; reload the page`);
  }

  /** All matching tasks. */
  async matching(query, options) {
    const tasks = [];
    for await (const task of this.#all(query, options)) tasks.push(task);
    return tasks;
  }

  /** Buckets send no change notifications. */
  live() {
    return undefined;
  }

  async* #all(query, { signal: stop, onProgress } = {}) {
    let cursor;
    let examined = 0;
    let matched = 0;
    do {
      stop?.throwIfAborted();
      const page = await this.#walk.page(query, cursor, 1000);
      examined += page.examined;
      matched += page.tasks.length;
      onProgress?.({ examined, matched });
      yield* page.tasks;
      cursor = page.next;
    } while (cursor);
  }

  /** What is paused. A session that may not read it still shows tasks and queues. */
  async #pauses() {
    try {
      const found = await this.#readQueues();
      this.hidden.delete('pauses');
      return readPauses(found?.text);
    } catch (error) {
      if (error.kind !== 'denied') throw error;
      this.hidden.add('pauses');
      return readPauses();
    }
  }

  async #readQueues() {
    try {
      return await this.#client.get(QUEUES_KEY);
    } catch (error) {
      if (error.kind === 'not_found') return undefined;
      throw error;
    }
  }

  #requireWritable() {
    if (this.readOnly) throw new SourceError('read_only', 'this session is read-only');
  }
}

/** Whether an object cannot be seen: it does not exist, or this session may not read it. */
const isHidden = (error) => error.kind === 'not_found' || error.kind === 'denied';

function unlessHidden(error) {
  if (!isHidden(error)) throw error;
}

/** Forgets the records whose objects are gone. */
export function keepListed(records, { entries }) {
  const listed = new Set(entries.map(({ key }) => key));
  for (const key of records.keys()) if (!listed.has(key)) records.delete(key);
}

/** A worker's record, with times in milliseconds. */
export function readWorker(text) {
  const worker = typeof text === 'string' ? JSON.parse(text) : text;
  return {
    queues: [], types: [], shards: [], slots: 0, current_tasks: [], tasks_completed: 0, tasks_failed: 0,
    ...worker,
    started_at: Date.parse(worker.started_at),
    last_heartbeat: Date.parse(worker.last_heartbeat),
  };
}

// The page of one task: details, history, input and output.

import { h, icon } from '../dom.js';
import { bytes, duration, plural } from '../format.js';
import { address } from '../router.js';
import { isTaskId } from '../record/keys.js';
import { label, payloadKey, shownError } from '../record/sealed.js';
import { stopsLine } from '../record/transitions.js';
import { badge, button, copyButton, empty, facts, panel, problem, statusWord, timeBothWays, timeOf } from '../widgets/basics.js';
import { jsonTree } from '../widgets/json_tree.js';
import { timeline } from '../widgets/timeline.js';
import { ACTIONS, actionsFor, actOnTask } from './actions.js';
import { submitCopy } from './submit.js';
import { Versions } from './versions.js';

export class TaskView {
  #payloads = {};
  #versions;
  #shownStatus;

  constructor({ app, path, params }) {
    this.app = app;
    this.source = app.source;
    this.id = path[1];
    this.title = `Task ${this.id.slice(0, 8)}`;
    this.#versions = new Versions({ app, id: this.id, params, isOpen: path[2] === 'versions' });
  }

  async load() {
    if (!isTaskId(this.id)) {
      this.gone = 'invalid';
      return;
    }
    const before = this.task;
    try {
      this.task = await this.source.get(this.id);
      this.gone = undefined;
    } catch (error) {
      if (error.kind !== 'not_found') throw error;
      this.gone = before ? 'removed' : 'unknown';
    }
    this.waitsFor = this.gone ? undefined : await this.#reasonToWait();
    if (before?.revision !== this.task?.revision) this.#versions.outdated();
    await this.#versions.load();
  }

  /** What the task waits for, as far as that can be read. Whatever is wrong with it must not hide the task. */
  async #reasonToWait() {
    try {
      return await this.source.waitsFor(this.task);
    } catch (error) {
      if (error.kind === 'expired') throw error;
      console.warn('it is unknown what the task waits for:', error.message);
      return undefined;
    }
  }

  /** Whether the displayed status has changed with time: a scheduled task becomes due without a change in the store. */
  isOutdated() {
    return !this.gone && this.task !== undefined && this.#shownStatus !== undefined && statusWord(this.task, this.source.now()) !== this.#shownStatus;
  }

  render() {
    if (this.gone) return this.#gone();
    const { task, source } = this;
    if (!task) return h('main', { id: 'main', class: 'loading', tabindex: '-1' }, h('h1', { class: 'mono' }, this.id), h('p', { class: 'faint' }, 'Loading…'));
    const now = source.now();
    this.#shownStatus = statusWord(task, now);
    return h('main', { id: 'main', class: 'task', tabindex: '-1' },
      h('a', { class: 'back', href: this.app.listAddress() }, icon('back'), 'Tasks'),
      h('div', { class: 'page-head task-head' },
        h('div', {},
          h('h1', {}, task.task_type, ' ', badge(this.#shownStatus), task.cancel_requested && h('span', { class: 'warn-text' }, ' cancel requested')),
          h('p', { class: 'id-line mono' }, task.id, copyButton(task.id, 'the id'))),
        h('div', { class: 'actions' }, this.#actions())),
      h('div', { class: 'columns' },
        h('div', { class: 'column wide' },
          this.#progress(),
          task.last_error && task.status !== 'completed' && panel(task.status === 'failed' ? 'Error' : 'Last error', {}, h('pre', { class: 'error-block' }, shownError(task.last_error))),
          this.#logs(),
          panel('History', { note: `${plural(task.attempt, 'attempt')}${task.events_dropped > 0 ? ` · ${plural(task.events_dropped, 'older event')} dropped` : ''}` }, timeline(task, source)),
          this.#payload('input', 'Input'),
          this.#payload('output', 'Output')),
        h('div', { class: 'column' }, this.#facts(now))),
      this.#versions.render(task));
  }

  #gone() {
    return h('main', { id: 'main', tabindex: '-1' },
      h('a', { class: 'back', href: this.app.listAddress() }, icon('back'), 'Tasks'),
      h('h1', { class: 'sr-only' }, 'Task not found'),
      empty(this.gone === 'removed' ? 'This task no longer exists' : 'Task not found',
        h('p', { class: 'mono' }, this.id),
        this.gone === 'invalid' ? 'This is not an id: ids have 36 characters, such as 550e8400-e29b-41d4-a716-446655440000.' : this.gone === 'removed' ? 'It was deleted while this page was open.' : 'The id may be wrong, the task may have been deleted, or it is in another bucket or prefix.'));
  }

  #actions() {
    if (this.source.readOnly) return h('span', { class: 'read-only' }, icon('lock'), 'Read-only');
    const primary = this.task.status === 'failed' ? 'replay' : undefined;
    // A copy has another id, and what is encrypted is bound to the id.
    const isSealed = payloadKey(this.task.input) !== undefined;
    return [
      actionsFor(this.source, this.task).map((kind) => button(ACTIONS[kind].label, () => actOnTask(this.app, kind, this.task), {
        key: kind, kind: kind === primary ? 'primary' : ACTIONS[kind].destructive ? 'danger-quiet' : '',
      })),
      !isSealed && this.task.status === 'failed' && button('Edit and retry…', () => submitCopy(this.app, this.task, 'edit'), { key: 'edit' }),
      !isSealed && button('Duplicate…', () => submitCopy(this.app, this.task, 'duplicate'), { key: 'duplicate' }),
    ];
  }

  #progress() {
    const { task, source } = this;
    if (task.status !== 'running') return undefined;
    const { progress } = task;
    return panel('Running', { note: ['lease expires ', timeOf(task.lease_expires_at, source)] },
      h('p', {}, 'On ', h('strong', {}, task.worker_id), ' since ', timeOf(task.started_at, source), `, attempt ${task.attempt}`),
      progress && [
        h('progress', { max: 100, value: progress.percent, 'aria-label': 'Progress' }),
        h('p', {}, `${Math.round(progress.percent)} %`, progress.message && ` · ${progress.message}`, h('span', { class: 'faint' }, ' · ', timeOf(progress.at, source))),
      ]);
  }

  /** What the last attempts printed, newest first. Lists omit logs, and so does the copy of a task that a list gave. */
  #logs() {
    const { task, source } = this;
    if (!task.logs?.length) return undefined;
    return panel('Logs', { note: 'the end of what the last attempts printed' },
      [...task.logs].reverse().map((log, index) => h('details', { key: `log ${log.attempt}`, open: index === 0 },
        h('summary', {}, `Attempt ${log.attempt}`, h('span', { class: 'faint' }, ' · ', timeOf(Date.parse(log.at), source))),
        h('pre', { class: 'log-block', tabindex: '0', 'aria-label': `Log of attempt ${log.attempt}` }, shownError(log.text)))));
  }

  #payload(field, title) {
    const { task } = this;
    const reference = task[`${field}_ref`];
    const inline = task[field];
    if (!reference && inline === undefined) {
      return field === 'output' ? undefined : panel(title, {}, empty('None'));
    }
    const known = reference ? this.#payloads[field] : { text: inline };
    const size = reference ? reference.size : new TextEncoder().encode(inline).length;
    const name = `${field} ${task.revision} ${Boolean(known?.text)}`;
    const key = payloadKey(known?.text);
    if (key !== undefined) {
      return panel(title, { note: bytes(size) }, h('p', { class: 'sealed' }, icon('lock'), ` This ${field} is ${label(key)}. Only clients that have the key can read it.`));
    }
    return panel(title, { note: bytes(size), tools: known?.text !== undefined && copyButton(known.text, `the ${field}`) },
      known?.error && problem(known.error),
      known?.text !== undefined
        ? h('div', { keep: name, class: 'payload' }, jsonTree(known.text))
        : h('p', {}, 'Stored in a separate object. ', button(`Load ${bytes(size)}`, async () => {
          try {
            this.#payloads[field] = { text: await this.source.payload(task, field) };
          } catch (error) {
            this.#payloads[field] = { error };
          }
          this.app.redraw();
        })));
  }

  #facts(now) {
    const { task, source } = this;
    const policy = task.retry_policy;
    return panel('Details', {}, facts([
      ['Queue', h('a', { href: address('tasks', { q: `queue:${task.queue}` }) }, task.queue)],
      ['Priority', `${task.priority}${task.priority === 5 ? '' : task.priority < 5 ? ' (high)' : ' (low)'}`],
      ['Attempts', `${task.attempt} (${task.retry_count} of ${plural(task.max_retries, 'retry', 'retries')} used)`],
      task.tags.length > 0 && ['Tags', task.tags.map((tag) => h('a', { class: 'tag', href: address('tasks', { q: `tag:${/\s/.test(tag) ? `"${tag}"` : tag}` }) }, tag))],
      ['Created', timeBothWays(task.created_at, source)],
      ['Last change', timeBothWays(task.updated_at, source)],
      task.status === 'pending' && [task.available_at > now ? 'Due' : 'Due since', timeBothWays(task.available_at, source)],
      task.started_at !== undefined && ['Started', timeBothWays(task.started_at, source)],
      task.completed_at !== undefined && ['Finished', timeBothWays(task.completed_at, source)],
      task.completed_at !== undefined && task.started_at !== undefined && task.completed_at >= task.started_at && ['Run time', duration(task.completed_at - task.started_at)],
      task.expires_at !== undefined && ['Expires', timeBothWays(task.expires_at, source)],
      task.max_wait_ms !== undefined && ['Maximum wait', duration(task.max_wait_ms)],
      task.worker_id && ['Worker', h('span', { class: 'mono' }, task.worker_id)],
      ['Timeout', duration(task.timeout_seconds * 1000)],
      policy && ['Retry delays', `${duration(policy.initial_interval_ms)} × ${policy.multiplier}, up to ${duration(policy.max_interval_ms)}`],
      task.ordering_key && ['Ordering key', [h('span', { class: 'mono' }, task.ordering_key), task.ordering_on_failure === 'stop' && ' (stops on failure)']],
      this.waitsFor?.behind && ['Waits behind', [
        h('a', { class: 'mono', href: address(`tasks/${this.waitsFor.behind}`) }, this.waitsFor.behind.slice(0, 8)),
        this.waitsFor.stopped ? ' which failed and stops the key: replay or cancel it' : this.waitsFor.ahead > 1 && ` and ${plural(this.waitsFor.ahead - 1, 'other')}`]],
      task.limit_key && ['Limit key', h('span', { class: 'mono' }, task.limit_key)],
      task.fairness_group && ['Group', h('span', { class: 'mono' }, task.fairness_group)],
      this.waitsFor?.reason === 'limit' && ['Waits for', limitText(this.waitsFor)],
      this.waitsFor?.reason === 'paused' && ['Waits for', pauseText(this.waitsFor)],
      stopsLine(task) && ['Stops', 'the tasks with the same ordering key: replay or cancel this task'],
      task.idempotency_key && ['Idempotency key', [h('span', { class: 'mono' }, task.idempotency_key), { waiting: ' (held until it is started)', unfinished: ' (held until it is finished)' }[task.idempotency_hold]]],
      ['Shard', h('a', { href: address('tasks', { shard: task.shard }) }, task.shard)],
      ['Revision', String(task.revision)],
    ]), this.source.rawRecord && h('p', { class: 'record-line' }, h('span', { class: 'faint' }, 'Full record as JSON '), copyButton(() => this.source.rawRecord(task.id) ?? '', 'the record')));
  }
}

/** Which pause keeps a task from starting. */
function pauseText({ queue, by, note }) {
  return `${queue === undefined ? 'its type' : 'its queue'} to be resumed${by ? `, paused by ${by}` : ', paused'}${note ? `: ${note}` : ''}`;
}

/** Why a limit keeps a task from starting. */
function limitText({ limit, bound, used, max, until }) {
  const text = `limit ${limit}: ${used} of ${max} ${bound === 'starts' ? 'started' : 'running'}`;
  return until ? `${text}, the next at ${until}` : text;
}

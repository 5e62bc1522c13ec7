// Actions on tasks: a single one, the selected ones, or all that match. Destructive actions ask for confirmation.

import { Counter } from '../counter.js';
import { h } from '../dom.js';
import { dollars, number, plural } from '../format.js';
import { isJson } from '../json/scan.js';
import { address, go } from '../router.js';
import { possibleActions } from '../record/transitions.js';
import { mapConcurrently } from '../source.js';
import { problem } from '../widgets/basics.js';
import { confirm, dialog } from '../widgets/dialog.js';
import { toast } from '../widgets/toast.js';

export const ACTIONS = {
  replay: { label: 'Replay', done: 'Replayed', effect: 'runs again with all its retries; its output is deleted' },
  run_now: { label: 'Run now', done: 'Made due', effect: 'becomes due now' },
  cancel: { label: 'Cancel', done: 'Cancelled', effect: 'is cancelled; if it is running, its worker is asked to stop', destructive: true },
  archive: { label: 'Archive', done: 'Archived', effect: 'is archived and can be restored later' },
  unarchive: { label: 'Unarchive', done: 'Restored', effect: 'returns to its previous status' },
};
const NAME = '[A-Za-z0-9_\\-][A-Za-z0-9_.\\-]{0,63}';
const CONCURRENCY = 8;

/** Applies an action to one task, after confirmation if it is destructive. */
export async function actOnTask(app, kind, task) {
  const { label, done } = ACTIONS[kind];
  let reason;
  if (kind === 'cancel' || (kind === 'replay' && task.status === 'completed')) {
    const lines = {
      cancel: task.status === 'running'
        ? 'The worker is asked to stop and learns of it at its next lease renewal. If it completes the task before that, the task is completed.'
        : 'The task is cancelled at once. You can replay it later.',
      replay: 'The task is completed. A replay runs it again and deletes its output.',
    };
    const answer = await confirm(`${label} ${task.task_type} ${task.id.slice(0, 8)}?`, [lines[kind]], {
      action: kind === 'cancel' ? 'Cancel the task' : label, destructive: true, reasonLabel: kind === 'cancel' ? 'Reason (optional, recorded in the history)' : undefined,
    });
    if (!answer) return;
    ({ reason } = answer);
  }
  await app.attempt(async () => {
    const changed = await app.source.act(kind, task.id, { reason });
    toast(kind === 'cancel' && changed.status === 'running' ? 'Asked the worker to stop' : `${done} ${task.id.slice(0, 8)}`);
  });
}

/** Applies an action to many tasks, with a preview and a report. */
export async function actOnMany(app, kind, find) {
  const { label, done, effect, destructive } = ACTIONS[kind];
  const stop = new AbortController();
  await dialog(`${label} tasks`, (close) => {
    const body = h('div', { class: 'bulk', 'aria-live': 'polite' }, h('p', {}, 'Searching…'));
    const proceed = h('button', { type: 'button', class: destructive ? 'danger' : 'primary', disabled: true }, label);
    const leave = h('button', { type: 'button', on: { click: () => close() } }, 'Stop');
    prepare(app, kind, find, { stop, body, effect }).then((tasks) => {
      if (!tasks?.length) return;
      proceed.textContent = `${label} ${plural(tasks.length, 'task')}`;
      proceed.disabled = false;
      proceed.focus();
      proceed.onclick = async () => {
        proceed.disabled = true;
        await execute(app, kind, tasks, { stop, body, done });
        proceed.remove();
        leave.textContent = 'Close';
        leave.focus();
        app.refresh({ force: true });
      };
    }, (error) => {
      if (!stop.signal.aborted) body.replaceChildren(problem(error));
    });
    return [body, h('footer', {}, leave, proceed)];
  });
  stop.abort();
}

async function prepare(app, kind, find, { stop, body, effect }) {
  const found = await find({
    signal: stop.signal,
    onProgress: ({ examined, matched }) => body.replaceChildren(h('p', {}, `${plural(examined, 'task')} checked, ${number(matched)} match…`)),
  });
  const now = app.source.now();
  const tasks = found.filter((task) => possibleActions(task, now)[kind]);
  const counts = new Map();
  for (const task of found) counts.set(task.status, (counts.get(task.status) ?? 0) + 1);
  const parts = [...counts].map(([status, many]) => `${number(many)} ${status}`).join(', ');
  const cost = app.source.kind === 's3' ? Counter.estimate({ get: tasks.length, put: tasks.length * 3 }) : 0;
  show(body,
    h('p', {}, h('strong', { class: 'preview' }, `${plural(found.length, 'task matches', 'tasks match')}`), found.length > 0 ? `: ${parts}.` : '.'),
    found.length > tasks.length && h('p', {}, `${plural(found.length - tasks.length, 'task is', 'tasks are')} skipped, because the action does not apply to their status.`),
    tasks.length > 0 && h('p', {}, `Each task ${effect}.`),
    cost > 0 && h('p', { class: 'faint' }, `At most ${dollars(cost)} at S3 prices.`));
  return tasks;
}

async function execute(app, kind, tasks, { stop, body, done }) {
  const bar = h('progress', { max: tasks.length, value: 0, 'aria-label': 'Progress' });
  const line = h('p', {}, '0 done');
  body.replaceChildren(bar, line);
  const failures = [];
  let finished = 0;
  let left = 0;
  await mapConcurrently(tasks, CONCURRENCY, async (task) => {
    if (stop.signal.aborted) {
      left += 1;
      return;
    }
    try {
      await app.source.act(kind, task.id);
    } catch (error) {
      failures.push([task.id, error]);
    }
    finished += 1;
    bar.value = finished;
    line.textContent = `${number(finished)} of ${number(tasks.length)}`;
  });
  const succeeded = finished - failures.length;
  show(body,
    h('p', {}, h('strong', {}, `${done} ${plural(succeeded, 'task')}`), failures.length > 0 ? `; ${number(failures.length)} failed:` : left > 0 ? `; ${number(left)} skipped.` : '.'),
    failures.length > 0 && h('ul', { class: 'failures' }, failures.slice(0, 20).map(([id, error]) => h('li', {}, h('span', { class: 'mono' }, id.slice(0, 8)), ` ${error.message}`))));
}

/** Replaces the content of an element, without falsy parts. */
function show(body, ...parts) {
  body.replaceChildren(...parts.filter(Boolean));
}

/** Submits an edited copy of a task. */
export async function duplicate(app, task) {
  let input;
  const loaded = await app.attempt(async () => { input = (await app.source.payload(task, 'input')) ?? 'null'; });
  if (!loaded) return;
  const submitted = await dialog('Duplicate task', (close) => {
    const status = h('div', { 'aria-live': 'polite' });
    const field = (name, label, value, attributes = {}) => h('label', { class: 'field' }, h('span', {}, label), h('input', { name, value: String(value), required: true, autocomplete: 'off', ...attributes }));
    const send = async (event) => {
      event.preventDefault();
      const values = Object.fromEntries(new FormData(event.target));
      if (!isJson(values.input)) {
        status.replaceChildren(problem({ message: 'the input is not valid JSON' }));
        return;
      }
      const submit = event.target.querySelector('[type=submit]');
      submit.disabled = true;
      try {
        close(await app.source.submit({
          task_type: values.task_type, queue: values.queue, priority: Number(values.priority), delay_ms: Math.round(Number(values.delay) * 1000),
          timeout_seconds: task.timeout_seconds, max_retries: task.max_retries, retry_policy: task.retry_policy ? retryPolicyText(task.retry_policy) : undefined,
          tags: task.tags, input: values.input,
        }));
      } catch (error) {
        status.replaceChildren(problem(error));
        submit.disabled = false;
      }
    };
    return [h('form', { on: { submit: send } },
      h('p', { class: 'hint' }, 'The copy gets a new id and keeps the retries, timeout and tags. An idempotency key is not copied.'),
      h('div', { class: 'fields' },
        field('task_type', 'Type', task.task_type, { pattern: NAME }),
        field('queue', 'Queue', task.queue, { pattern: NAME }),
        field('priority', 'Priority (0 runs first)', task.priority, { type: 'number', min: 0, max: 9 }),
        field('delay', 'Delay in seconds', 0, { type: 'number', min: 0, max: 31_536_000, step: 'any' })),
      h('label', { class: 'field' }, h('span', {}, 'Input (JSON)'), h('textarea', { name: 'input', rows: 10, spellcheck: 'false', class: 'mono' }, input)),
      status,
      h('footer', {}, h('button', { type: 'button', on: { click: () => close() } }, 'Cancel'), h('button', { type: 'submit', class: 'primary' }, 'Submit')))];
  }, { wide: true });
  if (!submitted) return;
  toast('Submitted', 'good', h('a', { href: address(`tasks/${submitted.id}`) }, submitted.id.slice(0, 8)));
  go(`tasks/${submitted.id}`);
}

/** A retry policy as JSON, with factors as floating-point numbers as the core writes them. */
function retryPolicyText(policy) {
  const float = (value) => (Number.isInteger(value) ? `${value}.0` : String(value));
  return `{"initial_interval_ms":${policy.initial_interval_ms},"max_interval_ms":${policy.max_interval_ms},"multiplier":${float(policy.multiplier)},"jitter_percent":${float(policy.jitter_percent)}}`;
}

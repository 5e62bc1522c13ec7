// Actions on tasks: a single one, the selected ones, or all that match. Destructive actions ask for confirmation.

import { Counter } from '../counter.js';
import { h } from '../dom.js';
import { dollars, number, plural } from '../format.js';
import { go } from '../router.js';
import { isName } from '../record/keys.js';
import { possibleActions } from '../record/transitions.js';
import { problem, sentence } from '../widgets/basics.js';
import { confirm, dialog } from '../widgets/dialog.js';
import { toast } from '../widgets/toast.js';

export const ACTIONS = {
  replay: { label: 'Replay', done: 'Replayed', effect: 'runs again with all its retries; its output is deleted' },
  redrive: { label: 'Move', done: 'Moved', effect: 'moves to the other queue; a failed one runs again there with all its retries', asksQueue: true },
  run_now: { label: 'Run now', done: 'Made due', effect: 'becomes due now' },
  cancel: { label: 'Cancel', done: 'Cancelled', effect: 'is cancelled; if it is running, its worker is asked to stop', destructive: true },
  archive: { label: 'Archive', done: 'Archived', effect: 'is archived and can be restored later' },
  unarchive: { label: 'Unarchive', done: 'Restored', effect: 'returns to its previous status' },
  purge: { label: 'Purge', done: 'Purged', effect: 'is deleted permanently, with its input, output and history', destructive: true },
};
/** Beyond this number of tasks, the number must be typed. */
export const TYPED_FROM = 100;

/** The actions that the source supports and the task allows. */
export function actionsFor(source, task) {
  const possible = possibleActions(task, source.now());
  return Object.keys(ACTIONS).filter((kind) => source.actions.includes(kind) && possible[kind]);
}

/** Applies an action to one task, after confirmation if it is destructive. */
export async function actOnTask(app, kind, task) {
  const { label, done, asksQueue } = ACTIONS[kind];
  let reason;
  let to;
  if (asksQueue) {
    to = await askQueue(app, `${label} ${task.task_type} ${task.id.slice(0, 8)} to another queue`, task.queue);
    if (!to) return;
  }
  const lines = {
    cancel: task.status === 'running'
      ? 'The worker sees the request at its next lease renewal. If it completes the task before that, the task is completed.'
      : 'The task is cancelled at once. You can replay it later.',
    replay: task.status === 'completed' && 'The task is completed. A replay runs it again and deletes its output.',
    purge: 'The task is deleted permanently, with its input, output and history. This cannot be undone.',
  };
  if (lines[kind]) {
    const answer = await confirm(`${label} ${task.task_type} ${task.id.slice(0, 8)}?`, [lines[kind]], {
      action: kind === 'replay' ? label : `${label} the task`, destructive: true, reasonLabel: kind === 'cancel' ? 'Reason (optional, recorded in the history)' : undefined,
    });
    if (!answer) return;
    ({ reason } = answer);
  }
  await app.attempt(async () => {
    const changed = await app.source.act(kind, task.id, { reason, to });
    toast(kind === 'cancel' && changed.status === 'running' ? 'Asked the worker to stop' : `${done} ${task.id.slice(0, 8)}`);
    if (kind === 'purge') go('tasks');
  });
}

/**
 * Applies an action to many tasks, with a preview and a report.
 *
 * The tasks are found first and the action is applied to exactly those, so that it never hits a task that was not counted.
 * @param {string} words which tasks these are, as the search was understood
 * @param {(options: object) => Promise<object[]>} find
 */
export async function actOnMany(app, kind, words, find) {
  const { label, destructive, asksQueue } = ACTIONS[kind];
  const stop = new AbortController();
  const to = asksQueue ? await askQueue(app, `${label} ${words} to another queue`) : undefined;
  if (asksQueue && !to) return;
  await dialog(`${label} ${words}${to ? ` to queue ${to}` : ''}?`, (close) => {
    const body = h('div', { class: 'bulk', 'aria-live': 'polite' }, h('p', {}, 'Searching…'));
    const proceed = h('button', { type: 'button', class: destructive ? 'danger' : 'primary', disabled: true }, label);
    const leave = h('button', { type: 'button', autofocus: true, on: { click: () => close() } }, 'Go back');
    prepare(app, kind, words, find, { stop, body, proceed, to }).then((tasks) => {
      if (!tasks?.length) return;
      proceed.textContent = `${label} ${plural(tasks.length, 'task')}`;
      proceed.onclick = async () => {
        proceed.remove();
        leave.textContent = 'Stop';
        leave.focus();
        await execute(app, kind, tasks, { stop, body, to });
        leave.textContent = 'Close';
        app.refresh({ force: true });
      };
    }, (error) => {
      if (!stop.signal.aborted) body.replaceChildren(problem(error));
    });
    return [body, h('footer', {}, leave, proceed)];
  });
  stop.abort();
}

/** Asks for the queue to which tasks are moved. Returns undefined if the answer is to go back. */
async function askQueue(app, title, from) {
  const known = [...(app.memory.overview?.queues.keys() ?? [])].filter((name) => name !== from);
  const input = h('input', { name: 'to', id: 'to-queue', type: 'text', autofocus: true, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', maxlength: 64, list: 'to-queues' });
  const note = h('p', { class: 'error-text', role: 'alert' });
  return dialog(title, (close) => {
    const submit = (event) => {
      event.preventDefault();
      const name = input.value.trim();
      const wrong = !isName(name) ? 'A queue name has 1 to 64 letters, digits, dots, dashes and underscores, and does not start with a dot.' : name === from ? 'The task is already in this queue.' : undefined;
      note.textContent = wrong ?? '';
      if (!wrong) close(name);
    };
    return [h('form', { on: { submit } },
      h('label', { class: 'field', for: 'to-queue' }, h('span', {}, 'Queue'), input),
      h('datalist', { id: 'to-queues' }, known.map((name) => h('option', { value: name }))), note,
      h('footer', {}, h('button', { type: 'button', on: { click: () => close() } }, 'Go back'), h('button', { type: 'submit', class: 'primary' }, 'Continue')))];
  });
}

async function prepare(app, kind, words, find, { stop, body, proceed, to }) {
  const found = await find({
    signal: stop.signal,
    onProgress: ({ examined, matched }) => body.replaceChildren(h('p', {}, `${plural(examined, 'task')} checked, ${number(matched)} match…`)),
  });
  if (stop.signal.aborted) return undefined;
  const tasks = found.filter((task) => task.queue !== to && actionsFor(app.source, task).includes(kind));
  const counts = new Map();
  for (const task of found) counts.set(task.status, (counts.get(task.status) ?? 0) + 1);
  const parts = [...counts].map(([status, many]) => `${number(many)} ${status}`).join(', ');
  const cost = app.source.kind === 's3' ? Counter.estimate({ get: tasks.length, put: tasks.length * 3 }) : 0;
  show(body,
    h('p', { class: 'filter-words' }, sentence(words)),
    h('p', {}, h('strong', { class: 'preview' }, `${plural(found.length, 'task matches', 'tasks match')}`), found.length > 0 ? `: ${parts}.` : '.'),
    found.length > tasks.length && h('p', {}, `${plural(found.length - tasks.length, 'task is', 'tasks are')} skipped, ${to ? 'because the action does not apply to their status, they have an ordering key, or they are in this queue already.' : 'because the action does not apply to their status.'}`),
    tasks.length > 0 && h('p', {}, `Each task ${ACTIONS[kind].effect}.`),
    cost > 0 && h('p', { class: 'faint' }, `At most ${dollars(cost)} at S3 prices.`),
    tasks.length > TYPED_FROM ? typedCount(tasks.length, proceed) : undefined);
  if (tasks.length > 0 && tasks.length <= TYPED_FROM) proceed.disabled = false;
  return tasks;
}

/** A field for the number of tasks, without which the action stays disabled. */
function typedCount(many, proceed) {
  const check = (event) => { proceed.disabled = event.target.value.replaceAll(/[\s,.]/g, '') !== String(many); };
  return h('label', { class: 'field' }, h('span', {}, `Type ${number(many)}, the number of tasks, to confirm`),
    h('input', { name: 'count', inputmode: 'numeric', autocomplete: 'off', on: { input: check } }));
}

async function execute(app, kind, tasks, { stop, body, to }) {
  const bar = h('progress', { max: tasks.length, value: 0, 'aria-label': 'Progress' });
  const line = h('p', {}, `0 of ${number(tasks.length)}`);
  body.replaceChildren(bar, line);
  let finished = 0;
  let report;
  try {
    report = await app.source.actOnAll(kind, tasks, {
      signal: stop.signal,
      to,
      onProgress: (progress) => {
        ({ finished } = progress);
        bar.value = finished;
        line.textContent = `${number(finished)} of ${number(tasks.length)}`;
      },
    });
  } catch (error) {
    show(body, problem(error), h('p', {}, `${plural(finished, 'task was', 'tasks were')} processed before that.`));
    return;
  }
  const { done, failed, failures, left } = report;
  const rest = [failed > 0 && `${number(failed)} failed`, left > 0 && `${number(left)} not processed`].filter(Boolean).join(', ');
  const summary = `${ACTIONS[kind].done} ${plural(done, 'task')}`;
  show(body,
    h('p', {}, h('strong', {}, summary), rest ? `; ${rest}.` : '.'),
    failures.length > 0 && h('ul', { class: 'failures' }, failures.slice(0, 20).map(({ id, message }) => h('li', {}, h('span', { class: 'mono' }, id.slice(0, 8)), ` ${message}`))));
  // The dialog may have been closed meanwhile.
  if (!body.isConnected) toast(rest ? `${summary}; ${rest}` : summary);
}

/** Replaces the content of an element, without falsy parts. */
function show(body, ...parts) {
  body.replaceChildren(...parts.filter(Boolean));
}

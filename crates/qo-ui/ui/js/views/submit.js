// The form that submits a task: a new one, an edited copy, or an edited retry of a failed one.

import { h } from '../dom.js';
import { isJson } from '../json/scan.js';
import { payloadKey } from '../record/sealed.js';
import { stopsLine } from '../record/transitions.js';
import { address, go } from '../router.js';
import { problem } from '../widgets/basics.js';
import { dialog } from '../widgets/dialog.js';
import { toast } from '../widgets/toast.js';

// These mirror `crates/qo-core/src/limits.rs`.
const RETRIES_MAX = 10_000;
const TIMEOUT_MAX_SECONDS = 30 * 24 * 60 * 60;
const TAGS_MAX = 16;
const TAG_MAX_BYTES = 64;
const ORDERING_KEY_MAX_BYTES = 256;
const JSON_MAX_DEPTH = 128;
const NAME = '[A-Za-z0-9_\\-][A-Za-z0-9_.\\-]{0,63}';
const SEALED = 'the input is encrypted for another task: submit a copy with `qo submit` and the key';
const DEFAULTS = { task_type: '', queue: 'default', priority: 5, timeout_seconds: '', max_retries: '', tags: [] };
const KINDS = {
  submit: { title: 'Submit a task', hint: 'The task gets a new id.' },
  duplicate: { title: 'Duplicate task', hint: 'The copy gets a new id and keeps the retry delays. The idempotency key is not copied.' },
  edit: { title: 'Edit and retry', hint: 'This submits a new task with the edited input.' },
};

/** Submits a new task. */
export function submitTask(app) {
  return open(app, 'submit', DEFAULTS, '{}');
}

/** Submits an edited copy of a task. With `edit`, the original can be archived, or cancelled if it keeps its line from running. */
export async function submitCopy(app, task, kind) {
  let input;
  const loaded = await app.attempt(async () => {
    input = (await app.source.payload(task, 'input')) ?? 'null';
    if (payloadKey(input) !== undefined) throw new Error(SEALED);
  });
  if (loaded) await open(app, kind, task, input);
}

async function open(app, kind, task, input) {
  const { title, hint: rules } = KINDS[kind];
  const { takesGroups, takesOrdering } = app.source;
  const after = kind === 'edit' ? whatFollows(app.source, task) : undefined;
  const hint = [
    rules,
    task.ordering_key && takesOrdering && 'With the ordering key, the new task joins the end of the line.',
    kind === 'edit' && !after && 'The failed task stays as it was.',
    task.fairness_group && !takesGroups && `The group ${task.fairness_group} is not kept: only a server, the command or a program can rank a task in its group.`,
    task.ordering_key && !takesOrdering && `The ordering key ${task.ordering_key} is not kept: only a server, the command or a program can add a task to a line.`,
  ].filter(Boolean).join(' ');
  const submitted = await dialog(title, (close) => {
    const status = h('div', { 'aria-live': 'polite' });
    const field = (name, label, value, attributes = {}) => h('label', { class: 'field' }, h('span', {}, label), h('input', { name, value: String(value), autocomplete: 'off', required: true, ...attributes }));
    const ofQueue = { required: false, placeholder: 'the queue’s default' };
    const whole = { type: 'number', min: 0, step: 1 };
    const send = async (event) => {
      event.preventDefault();
      const values = Object.fromEntries(new FormData(event.target));
      const wrong = problemOf(values);
      if (wrong) {
        status.replaceChildren(problem({ message: wrong }));
        return;
      }
      const button = event.target.querySelector('[type=submit]');
      button.disabled = true;
      try {
        close({ task: await app.source.submit(requestOf(values, task)), follows: values.follows === 'on' });
      } catch (error) {
        status.replaceChildren(problem(error));
        button.disabled = false;
      }
    };
    return [h('form', { on: { submit: send } },
      h('p', { class: 'hint' }, hint),
      h('div', { class: 'fields' },
        field('task_type', 'Type', task.task_type, { pattern: NAME, autofocus: kind === 'submit' }),
        field('queue', 'Queue', task.queue, { pattern: NAME }),
        field('priority', 'Priority (0 runs first)', task.priority, { ...whole, max: 9 }),
        field('delay', 'Delay in seconds', 0, { type: 'number', min: 0, max: 31_536_000, step: 'any' }),
        field('max_retries', 'Retries', task.max_retries, { ...whole, max: RETRIES_MAX, ...ofQueue }),
        field('timeout_seconds', 'Timeout in seconds', task.timeout_seconds, { ...whole, min: 1, max: TIMEOUT_MAX_SECONDS, ...ofQueue }),
        field('tags', 'Tags, separated by commas', task.tags.join(', '), { required: false }),
        field('limit_key', 'Limit key', task.limit_key ?? '', { pattern: NAME, required: false, placeholder: 'such as an account' }),
        takesOrdering && field('ordering_key', 'Ordering key', task.ordering_key ?? '', { required: false, maxlength: ORDERING_KEY_MAX_BYTES, placeholder: 'runs in submit order' }),
        takesGroups && field('group', 'Group', task.fairness_group ?? '', { pattern: NAME, required: false, placeholder: 'such as a tenant' })),
      h('label', { class: 'field' }, h('span', {}, 'Input (JSON)'), h('textarea', { name: 'input', rows: 10, spellcheck: 'false', class: 'mono' }, input)),
      after && h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'follows', checked: true }), after.label),
      status,
      h('footer', {}, h('button', { type: 'button', on: { click: () => close() } }, 'Cancel'), h('button', { type: 'submit', class: 'primary' }, 'Submit')))];
  }, { wide: true });
  if (!submitted) return;
  // The new task exists before the old one leaves the list of failures.
  if (submitted.follows) await app.attempt(() => app.source.act(after.kind, task.id, { reason: `replaced by ${submitted.task.id}` }));
  toast('Submitted', 'good', h('a', { href: address(`tasks/${submitted.task.id}`) }, submitted.task.id.slice(0, 8)));
  go(`tasks/${submitted.task.id}`);
}

/** What happens to a failed task that is retried with another input; undefined if the page may not change it. */
export function whatFollows({ takesOrdering }, task) {
  if (task.ordering_key !== undefined && !takesOrdering) return undefined;
  // Nobody may archive a task that keeps its line from running, and the new task waits in that line.
  if (stopsLine(task)) return { kind: 'cancel', label: 'Cancel the failed task, so that its line continues' };
  return { kind: 'archive', label: 'Archive the failed task' };
}

/** What is wrong with the values, if anything. On a bucket nobody else checks them. */
export function problemOf(values) {
  if (!isJson(values.input)) return 'the input is not valid JSON';
  if (payloadKey(values.input) !== undefined) return SEALED;
  if (depthOf(values.input) > JSON_MAX_DEPTH) return `the input is nested more than ${JSON_MAX_DEPTH} levels deep`;
  const tags = tagsOf(values.tags);
  if (tags.length > TAGS_MAX) return `a task has at most ${TAGS_MAX} tags`;
  const bad = tags.find((tag) => new TextEncoder().encode(tag).length > TAG_MAX_BYTES || /[\u0000-\u001f\u007f-\u009f]/.test(tag));
  return bad === undefined ? undefined : `a tag has at most ${TAG_MAX_BYTES} bytes and no control characters`;
}

/** How deeply a valid JSON text is nested. */
function depthOf(text) {
  let depth = 0;
  let deepest = 0;
  for (const [mark] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/gs)) {
    if (mark === '[' || mark === '{') depth += 1;
    else if (mark === ']' || mark === '}') depth -= 1;
    deepest = Math.max(deepest, depth);
  }
  return deepest;
}

const tagsOf = (text) => [...new Set(text.split(',').map((tag) => tag.trim()).filter(Boolean))];

/** A number that may be left out. */
const numberOf = (text) => (text.trim() === '' ? undefined : Number(text));

function requestOf(values, task) {
  return {
    task_type: values.task_type,
    queue: values.queue,
    priority: Number(values.priority),
    delay_ms: Math.round(Number(values.delay) * 1000),
    timeout_seconds: numberOf(values.timeout_seconds),
    max_retries: numberOf(values.max_retries),
    retry_policy: task.retry_policy ? retryPolicyText(task.retry_policy) : undefined,
    tags: tagsOf(values.tags),
    limit_key: values.limit_key || undefined,
    ordering_key: values.ordering_key || undefined,
    ordering_on_failure: values.ordering_key ? task.ordering_on_failure : undefined,
    fairness_group: values.group || undefined,
    input: values.input,
  };
}

/** A retry policy as JSON, with factors as floating-point numbers as the core writes them. */
function retryPolicyText(policy) {
  const float = (value) => (Number.isInteger(value) ? `${value}.0` : String(value));
  return `{"initial_interval_ms":${policy.initial_interval_ms},"max_interval_ms":${policy.max_interval_ms},"multiplier":${float(policy.multiplier)},"jitter_percent":${float(policy.jitter_percent)}}`;
}

// Webhooks, on the queues page: who is notified when tasks end. A server can also change and test them.

import { h } from '../dom.js';
import { address } from '../router.js';
import { button, copyButton, problem } from '../widgets/basics.js';
import { confirm, dialog } from '../widgets/dialog.js';
import { toast } from '../widgets/toast.js';

const EVENTS = ['completed', 'failed', 'cancelled'];

/** The section of webhooks. `source.putWebhook` exists if the source can change them. */
export function webhooksSection(app, webhooks) {
  const { source } = app;
  const mayChange = Boolean(source.putWebhook) && !source.readOnly;
  if (webhooks === undefined || (webhooks.length === 0 && !mayChange)) return undefined;
  return h('section', { class: 'stacked', 'aria-labelledby': 'webhooks' },
    h('div', { class: 'page-head' }, h('h2', { id: 'webhooks' }, 'Webhooks'),
      h('span', { class: 'note' },
        webhooks.length === 0 ? 'none: nobody is notified when tasks end' : h('a', { href: address('tasks', { q: 'queue:webhooks' }) }, 'notifications'),
        webhooks.some((webhook) => webhook.isHidden) && ' · only names: this session may not read them, and some may have been removed'),
      mayChange && button('Add a webhook…', () => add(app), { kind: 'small' })),
    webhooks.length > 0 && h('div', { class: 'card' },
      h('div', { class: 'scroll' }, h('table', { class: 'rows blocks' },
        h('thead', {}, h('tr', {}, ['Webhook', 'On', 'Of', 'URL'].map((name) => h('th', { scope: 'col' }, name)), h('th', { scope: 'col' }, h('span', { class: 'sr-only' }, 'Actions')))),
        h('tbody', {}, webhooks.map((webhook) => row(app, webhook, mayChange)))))));
}

function row(app, { name, url, events, queues = [], task_types: types = [], isHidden }, mayChange) {
  const orUnknown = (value) => (isHidden ? h('span', { class: 'faint' }, '–') : value);
  const of = [...queues.map((queue) => `queue ${queue}`), ...types.map((type) => `type ${type}`)].join(', ') || 'all tasks';
  return h('tr', { key: `webhook ${name}` },
    h('th', { scope: 'row' }, h('a', { href: address('tasks', { q: `queue:webhooks tag:webhook:${name}` }) }, name)),
    h('td', { 'data-label': 'On' }, orUnknown(events?.join(', '))),
    h('td', { 'data-label': 'Of' }, orUnknown(of)),
    h('td', { class: 'mono whole-cell', 'data-label': 'URL' }, orUnknown(url)),
    h('td', { class: 'actions' }, mayChange && [
      button('Test', () => test(app, name), { kind: 'small' }),
      button('Remove', () => remove(app, name), { kind: 'small danger-quiet' }),
    ]));
}

async function test(app, name) {
  await app.attempt(async () => {
    const id = await app.source.testWebhook(name);
    toast(`Submitted a test notification, ${id.slice(0, 8)}`);
  });
}

async function remove(app, name) {
  const sure = await confirm(`Remove webhook ${name}?`, ['It sends no more notifications, including those that wait.'], { action: 'Remove', destructive: true });
  if (!sure) return;
  await app.attempt(async () => {
    await app.source.removeWebhook(name);
    toast(`Removed ${name}`);
  });
}

/** Asks for a webhook, and shows its secret once. */
async function add(app) {
  const input = (id, attributes) => h('input', { id, type: 'text', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', ...attributes });
  const field = (label, control) => h('label', { class: 'field', for: control.id }, h('span', {}, label), control);
  const name = input('webhook-name', { maxlength: 64, autofocus: true, required: true });
  const url = input('webhook-url', { type: 'url', maxlength: 2048, required: true, placeholder: 'https://example.org/hooks/qo' });
  const queues = input('webhook-queues', { placeholder: 'all' });
  const boxes = EVENTS.map((event) => h('input', { type: 'checkbox', name: 'event', value: event, checked: event !== 'cancelled' }));
  const note = h('div', { role: 'alert' });
  await dialog('Add a webhook', (close) => {
    const body = h('form', {},
      h('div', { class: 'dialog-body' },
        h('p', {}, 'The URL gets a signed request for each task that ends this way. Run qo serve --webhooks or qo worker --webhooks to deliver the requests.'),
        field('Name', name), field('URL', url), field('Queues (optional, separated by commas)', queues),
        h('fieldset', { class: 'field' }, h('legend', {}, 'When tasks have'), boxes.map((box, index) => h('label', {}, box, ` ${EVENTS[index]}`))),
        note),
      h('footer', {}, h('button', { type: 'button', on: { click: () => close() } }, 'Go back'), h('button', { type: 'submit', class: 'primary' }, 'Add')));
    body.addEventListener('submit', async (event) => {
      event.preventDefault();
      const events = boxes.filter((box) => box.checked).map((box) => box.value);
      const of = queues.value.split(',').map((queue) => queue.trim()).filter(Boolean);
      try {
        const { secret } = await app.source.putWebhook(name.value.trim(), { url: url.value.trim(), events, ...(of.length > 0 && { queues: of }) });
        body.replaceChildren(...shown(name.value.trim(), secret, close));
        app.refresh({ force: true });
      } catch (error) {
        note.replaceChildren(problem(error));
      }
    });
    return [body];
  });
}

/** The secret of a new webhook. */
function shown(name, secret, close) {
  return [
    h('div', { class: 'dialog-body' },
      h('p', {}, secret ? `The receiver of ${name} verifies notifications with this secret. It is not shown again.` : `${name} is changed, and keeps its secret.`),
      secret && h('p', { class: 'mono secret' }, h('code', {}, secret), ' ', copyButton(() => secret, 'the secret'))),
    h('footer', {}, h('button', { type: 'button', class: 'primary', autofocus: true, on: { click: () => close() } }, 'Close')),
  ];
}

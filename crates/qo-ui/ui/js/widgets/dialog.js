// Modal dialogs. The native dialog element traps and restores the focus.

import { h, icon } from '../dom.js';

/**
 * Shows a dialog and waits until it is closed.
 * @param {(close: (answer?: unknown) => void) => Node[]} content
 */
export function dialog(title, content, { wide = false } = {}) {
  return new Promise((resolve) => {
    let answer;
    const element = h('dialog', { class: wide ? 'wide' : '', 'aria-labelledby': 'dialog-title' });
    const close = (value) => {
      answer = value;
      element.close();
    };
    element.append(
      h('header', {}, h('h2', { id: 'dialog-title' }, title),
        h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close', on: { click: () => close() } }, icon('close'))),
      ...content(close));
    element.addEventListener('close', () => {
      element.remove();
      resolve(answer);
    });
    document.body.append(element);
    element.showModal();
  });
}

/** Asks for confirmation. */
export async function confirm(title, lines, { action, destructive = false, reasonLabel } = {}) {
  const reason = reasonLabel && h('input', { id: 'confirm-reason', type: 'text', maxlength: 1000, autocomplete: 'off' });
  const confirmed = await dialog(title, (close) => [
    h('form', { method: 'dialog', on: { submit: (event) => { event.preventDefault(); close(true); } } },
      lines.map((line) => (typeof line === 'string' ? h('p', {}, line) : line)),
      reason && h('label', { class: 'field', for: 'confirm-reason' }, h('span', {}, reasonLabel), reason),
      h('footer', {},
        h('button', { type: 'button', on: { click: () => close() } }, 'Go back'),
        h('button', { type: 'submit', class: destructive ? 'danger' : 'primary' }, action))),
  ]);
  return confirmed ? { reason: reason?.value.trim() || undefined } : undefined;
}

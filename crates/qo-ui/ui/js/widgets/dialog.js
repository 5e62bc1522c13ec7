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

/**
 * Asks for confirmation.
 *
 * The button that goes back has the focus, and Enter in a field does nothing, so that a hasty key press never confirms.
 */
export async function confirm(title, lines, { action, destructive = false, reasonLabel, back = 'Go back' } = {}) {
  const reason = reasonLabel && h('input', { id: 'confirm-reason', type: 'text', maxlength: 1000, autocomplete: 'off' });
  const confirmed = await dialog(title, (close) => [
    h('div', { class: 'dialog-body' },
      lines.map((line) => (typeof line === 'string' ? h('p', {}, line) : line)),
      reason && h('label', { class: 'field', for: 'confirm-reason' }, h('span', {}, reasonLabel), reason)),
    h('footer', {},
      h('button', { type: 'button', autofocus: true, on: { click: () => close() } }, back),
      h('button', { type: 'button', class: destructive ? 'danger' : 'primary', on: { click: () => close(true) } }, action)),
  ]);
  return confirmed ? { reason: reason?.value.trim() || undefined } : undefined;
}

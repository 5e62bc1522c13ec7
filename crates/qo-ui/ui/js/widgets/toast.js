// Short messages that disappear after a while, announced to screen readers.

import { h } from '../dom.js';

const SHOWN_MS = 6000;

export function toast(message, kind = 'good', ...more) {
  const element = h('div', { class: `toast ${kind}` }, h('span', {}, message), more);
  document.getElementById('toasts').append(element);
  setTimeout(() => element.remove(), kind === 'bad' ? SHOWN_MS * 2 : SHOWN_MS);
}

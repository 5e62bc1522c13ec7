// JSON as a collapsible tree, built from its text: numbers keep their digits and fields their order. Nodes are built when opened, so
// large payloads are cheap.

import { h } from '../dom.js';
import { bytes, plural } from '../format.js';
import { elements, fields, isJson, kindOf } from '../json/scan.js';

const SHOWN_MAX = 200;
const OPEN_CHILDREN_MAX = 20;
const TEXT_MAX = 2000;

/** @param {string} text JSON; any other text is shown unchanged */
export function jsonTree(text) {
  if (!isJson(text)) return h('pre', { class: 'json' }, text);
  return h('div', { class: 'json' }, node(undefined, text, 0, true));
}

function node(label, text, depth, mayBeOpen) {
  const kind = kindOf(text);
  if (kind !== 'object' && kind !== 'array') return h('div', { class: 'json-leaf' }, name(label), leaf(kind, text));
  const children = kind === 'object' ? fields(text) : elements(text).map((element, index) => [index, element]);
  const [open, close] = kind === 'object' ? ['{', '}'] : ['[', ']'];
  if (children.length === 0) return h('div', { class: 'json-leaf' }, name(label), h('span', { class: 'json-mark' }, open + close));
  // Nodes with many siblings start closed.
  const isOpen = depth === 0 || (mayBeOpen && depth < 3 && children.length <= OPEN_CHILDREN_MAX);
  const body = h('div', { class: 'json-body' });
  const build = () => {
    if (body.childNodes.length === 0) more(body, children, 0, depth);
  };
  if (isOpen) build();
  const noun = kind === 'object' ? plural(children.length, 'field') : plural(children.length, 'item');
  return h('details', { class: 'json-node', open: isOpen, on: { toggle: build } },
    h('summary', {}, name(label), h('span', { class: 'json-mark' }, open), h('span', { class: 'json-count' }, noun), h('span', { class: 'json-mark' }, close)),
    body);
}

function more(body, children, from, depth) {
  const until = Math.min(from + SHOWN_MAX, children.length);
  const mayBeOpen = children.length <= OPEN_CHILDREN_MAX;
  for (const [label, text] of children.slice(from, until)) body.append(node(label, text, depth + 1, mayBeOpen));
  if (until < children.length) {
    const rest = h('button', { type: 'button', class: 'link' }, `Show ${Math.min(SHOWN_MAX, children.length - until)} more of ${children.length}`);
    rest.onclick = () => {
      rest.remove();
      more(body, children, until, depth);
    };
    body.append(rest);
  }
}

function name(label) {
  return label === undefined ? undefined : h('span', { class: typeof label === 'number' ? 'json-index' : 'json-name' }, String(label));
}

function leaf(kind, text) {
  if (kind !== 'string') return h('span', { class: `json-${kind}` }, text.trim());
  const value = JSON.parse(text);
  if (value.length <= TEXT_MAX) return h('span', { class: 'json-string' }, JSON.stringify(value));
  const shown = h('span', { class: 'json-string' }, JSON.stringify(value.slice(0, TEXT_MAX)));
  const rest = h('button', { type: 'button', class: 'link' }, `… show all ${bytes(value.length)}`);
  rest.onclick = () => {
    shown.textContent = JSON.stringify(value);
    rest.remove();
  };
  return h('span', {}, shown, rest);
}

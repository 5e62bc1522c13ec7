// Creating and updating elements. Every value becomes a text node or an attribute, never markup, so the content of a task cannot
// inject anything into the page.

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Creates an element. Properties: `class`, `key` (identifies an element across updates), `style` (an object), `on` (event handlers by
 * event name), `keep` (updates leave an element with the same `keep` unchanged), and attributes.
 */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Creates an SVG element. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'on') {
      element.qoHandlers = value;
      for (const [event, handler] of Object.entries(value)) element[`on${event}`] = handler;
    } else if (name === 'style') {
      for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    } else if (name === 'key') {
      element.qoKey = String(value);
    } else if (name === 'keep') {
      element.qoKeep = String(value);
    } else if (name === 'value' || name === 'checked' || name === 'indeterminate' || name === 'selected') {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** Updates the content of `container` to match `wanted` with minimal changes, so that focus and scroll position are kept. */
export function patch(container, wanted) {
  patchChildren(container, [wanted].flat().filter(Boolean));
}

function patchChildren(parent, wanted) {
  const byKey = new Map();
  for (const child of parent.childNodes) if (child.qoKey) byKey.set(child.qoKey, child);
  let at = parent.firstChild;
  for (const next of wanted) {
    let current = at;
    if (next.qoKey && at?.qoKey !== next.qoKey) {
      current = byKey.get(next.qoKey);
      if (current) parent.insertBefore(current, at);
    }
    if (current && isSameKind(current, next)) {
      if (current === at) at = at.nextSibling;
      patchNode(current, next);
    } else {
      parent.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function isSameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.qoKey === b.qoKey && a.qoKeep === b.qoKeep;
}

function patchNode(current, wanted) {
  if (current.nodeType === Node.TEXT_NODE) {
    if (current.data !== wanted.data) current.data = wanted.data;
    return;
  }
  if (wanted.qoKeep) return;
  for (const event of Object.keys(current.qoHandlers ?? {})) current[`on${event}`] = null;
  for (const [event, handler] of Object.entries(wanted.qoHandlers ?? {})) current[`on${event}`] = handler;
  current.qoHandlers = wanted.qoHandlers;
  for (const { name } of [...current.attributes]) {
    // The user decides whether a section is open.
    if (!wanted.hasAttribute(name) && !(name === 'open' && current.nodeName === 'DETAILS')) current.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (name === 'open' && current.nodeName === 'DETAILS') continue;
    if (current.getAttribute(name) === value) continue;
    // The content security policy forbids the attribute, but not the property.
    if (name === 'style') current.style.cssText = value;
    else current.setAttribute(name, value);
  }
  if ('checked' in wanted && current.checked !== wanted.checked) current.checked = wanted.checked;
  if ('indeterminate' in wanted && current.indeterminate !== wanted.indeterminate) current.indeterminate = wanted.indeterminate;
  patchChildren(current, [...wanted.childNodes]);
  const isField = ['INPUT', 'TEXTAREA', 'SELECT'].includes(current.nodeName);
  if (isField && current !== document.activeElement && current.value !== wanted.value) current.value = wanted.value;
}

const ICONS = {
  overview: 'M3 13h6V3H3zM11 17h6V9h-6zM3 17h6v-2H3zM11 3v4h6V3z',
  tasks: 'M3 5h2M3 10h2M3 15h2M8 5h9M8 10h9M8 15h9',
  workers: 'M4 4h12v8H4zM7 16h6M10 12v4',
  errors: 'M10 3l8 14H2zM10 8v4M10 14.5v.5',
  queues: 'M3 6l7-3 7 3-7 3zM3 10l7 3 7-3M3 14l7 3 7-3',
  schedules: 'M10 3a7 7 0 1 0 0 14a7 7 0 0 0 0-14zM10 6v4l3 2',
  settings: 'M3 6h8M15 6h2M3 14h2M9 14h8M13 4v4M7 12v4',
  copy: 'M7 7h9v9H7zM4 13V4h9',
  refresh: 'M16 10a6 6 0 1 1-2-4.5M16 3v3.5h-3.5',
  back: 'M12 4l-6 6 6 6',
  search: 'M9 3a6 6 0 1 0 0 12A6 6 0 0 0 9 3zM13.5 13.5L17 17',
  close: 'M5 5l10 10M15 5L5 15',
  lock: 'M5 9h10v8H5zM7 9V6a3 3 0 0 1 6 0v3',
};

/** A decorative icon, hidden from screen readers. */
export function icon(name) {
  return svg('svg', { class: 'icon', viewBox: '0 0 20 20', 'aria-hidden': 'true', focusable: 'false' }, svg('path', { d: ICONS[name] }));
}

// Small widgets used by all pages.

import { h, icon } from '../dom.js';
import { absolute, fullTime, relative, zone } from '../format.js';
import { address } from '../router.js';
import { changeSettings, getSettings } from '../settings.js';
import { toast } from './toast.js';

/** The displayed status of a task. Pending tasks are due or scheduled. */
export function statusWord(task, now) {
  if (task.status !== 'pending') return task.status;
  return task.available_at <= now ? 'due' : 'scheduled';
}

export function badge(word) {
  return h('span', { class: `badge ${word}` }, word);
}

/** A time, relative or absolute as the user chose, that `tickTimes` keeps up to date. A click or tap on any time switches all. */
export function timeOf(time, source) {
  if (time === undefined) return h('span', { class: 'faint' }, '–');
  return h('time', { 'data-time': time, datetime: new Date(time).toISOString(), title: `${fullTime(time)} ${zone(time)}` }, timeText(time, source.now()));
}

/** A time both ways, where there is room for it. */
export function timeBothWays(time, source) {
  return [h('time', { 'data-time': time, 'data-both': true, datetime: new Date(time).toISOString(), title: `${fullTime(time)} ${zone(time)}` }, relative(time, source.now())), h('span', { class: 'absolute' }, absolute(time))];
}

function timeText(time, now) {
  return getSettings().times === 'absolute' ? absolute(time) : relative(time, now);
}

/** Updates all times on the page. */
export function tickTimes(source) {
  const now = source.now();
  for (const element of document.querySelectorAll('time[data-time]')) {
    const time = Number(element.dataset.time);
    const text = element.dataset.both === undefined ? timeText(time, now) : relative(time, now);
    if (element.textContent !== text) element.textContent = text;
  }
}

/** Switches all times between relative and absolute. */
export function switchTimes(source) {
  changeSettings({ times: getSettings().times === 'absolute' ? 'relative' : 'absolute' });
  tickTimes(source);
}

export function taskLink(id, label = id) {
  return h('a', { href: address(`tasks/${id}`), class: 'mono' }, label);
}

export function copyButton(text, what) {
  return h('button', {
    type: 'button', class: 'quiet', title: `Copy ${what}`, 'aria-label': `Copy ${what}`,
    on: {
      click: async (event) => {
        event.stopPropagation();
        try {
          await navigator.clipboard.writeText(typeof text === 'function' ? text() : text);
          toast(`Copied ${what}`);
        } catch {
          toast('The browser does not allow copying', 'bad');
        }
      },
    },
  }, icon('copy'));
}

export function button(label, click, { kind = '', disabled = false, title, key } = {}) {
  return h('button', { type: 'button', class: kind, disabled, title, key, on: { click } }, label);
}

/** A choice among named values. */
export function select(label, value, options, choose) {
  return h('label', { class: 'select' }, h('span', { class: 'sr-only' }, label),
    h('select', { 'aria-label': label, value, on: { change: (event) => choose(event.target.value) } },
      options.map(([key, text]) => h('option', { key, value: key, selected: key === value }, text))));
}

/** What is shown instead of something that the server refuses to this token, such as one that is limited to a queue. */
export function notVisible(what) {
  return empty(`${what} not visible to this token`, 'The token may be limited to some queues or types.');
}

/** A placeholder that says why there is nothing and what to do. */
export function empty(title, ...more) {
  return h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, title), more.map((line) => (typeof line === 'string' ? h('p', {}, line) : line)));
}

/** An error with its hint and command. */
export function problem(error, { retry } = {}) {
  return h('div', { class: 'problem', role: 'alert' },
    h('p', { class: 'problem-title' }, sentence(error.message)),
    error.hint && h('p', {}, error.hint),
    error.command && commandLine(error.command),
    retry && h('p', {}, button('Try again', retry)));
}

export function commandLine(command) {
  return h('div', { class: 'command' }, h('code', {}, command), copyButton(command, 'the command'));
}

export function sentence(text) {
  const upper = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(upper) ? upper : `${upper}.`;
}

export function panel(title, { note, tools, class: name = '' } = {}, ...content) {
  return h('section', { class: `panel ${name}` },
    h('header', {}, h('h2', {}, title), note && h('span', { class: 'note' }, note), tools && h('span', { class: 'tools' }, tools)),
    content);
}

/** A list of names and values. */
export function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(Boolean).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

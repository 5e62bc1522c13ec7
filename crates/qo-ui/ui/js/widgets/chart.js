// Bar charts without a library. Each bar is a column of boxes with the numbers in its title; a label describes the chart to screen
// readers.

import { h } from '../dom.js';
import { clockTime, duration, number } from '../format.js';

/**
 * @param {{at: number}[]} bars
 * @param {string[]} series the series, from bottom to top
 */
export function barChart(bars, series, { label, width, span }) {
  const totals = bars.map((bar) => series.reduce((sum, name) => sum + bar[name], 0));
  const top = niceTop(Math.max(...totals, 1));
  const columns = bars.map((bar, index) => h('div', {
    class: 'bar',
    title: `${clockTime(bar.at, span)} to ${clockTime(bar.at + width, span)}: ${series.map((name) => `${number(bar[name])} ${name}`).join(', ')}`,
  }, [...series].reverse().map((name) => bar[name] > 0
    && h('div', { class: `segment ${name}`, style: { height: `${(bar[name] / top) * 100}%` } })), totals[index] === 0 && h('div', { class: 'segment none' })));
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => h('span', {}, clockTime(bars[0].at + share * span, span)));
  return h('figure', { class: 'chart', role: 'img', 'aria-label': label },
    h('div', { class: 'chart-area', 'aria-hidden': 'true' },
      h('div', { class: 'chart-scale' }, h('span', {}, number(top)), h('span', {}, top % 2 === 0 ? number(top / 2) : ''), h('span', {}, '0')),
      h('div', { class: 'chart-bars' }, columns)),
    h('div', { class: 'chart-axis', 'aria-hidden': 'true' }, marks));
}

/**
 * Percentiles over time: a column for each step, from zero to the 95th percentile, with marks at the 50th and 99th.
 * @param {{at: number, latencies: object}[]} bars
 */
export function percentileChart(bars, phase, { label, width, span }) {
  const found = bars.map((bar) => bar.latencies[phase]);
  const top = niceTop(Math.max(...found.map((one) => one?.p99 ?? 0), 1));
  const height = (value) => `${Math.min((value / top) * 100, 100)}%`;
  const columns = bars.map((bar, index) => {
    const one = found[index];
    const when = `${clockTime(bar.at, span)} to ${clockTime(bar.at + width, span)}`;
    if (!one) return h('div', { class: 'bar', title: `${when}: nothing measured` }, h('div', { class: 'segment none' }));
    return h('div', { class: 'bar percentiles', title: `${when}: p50 ${duration(one.p50)}, p95 ${duration(one.p95)}, p99 ${duration(one.p99)}, of ${number(one.count)}` },
      h('div', { class: 'percentile p95', style: { height: height(one.p95) } }),
      h('div', { class: 'percentile p50', style: { height: height(one.p50) } }),
      h('div', { class: 'percentile p99', style: { bottom: height(one.p99) } }));
  });
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => h('span', {}, clockTime(bars[0].at + share * span, span)));
  return h('figure', { class: 'chart', role: 'img', 'aria-label': label },
    h('div', { class: 'chart-area', 'aria-hidden': 'true' },
      h('div', { class: 'chart-scale' }, h('span', {}, duration(top)), h('span', {}, duration(top / 2)), h('span', {}, '0')),
      h('div', { class: 'chart-bars' }, columns)),
    h('div', { class: 'chart-axis', 'aria-hidden': 'true' }, marks));
}

/** A table of names, bars and numbers. */
export function shareBars(rows, { label }) {
  const top = Math.max(...rows.map((row) => row.value), 1);
  return h('table', { class: 'shares', 'aria-label': label },
    h('tbody', {}, rows.map((row) => h('tr', { key: row.name },
      h('th', { scope: 'row' }, row.href ? h('a', { href: row.href }, row.name) : row.name),
      h('td', { class: 'share-bar' }, h('div', { class: 'share', style: { width: `${(row.value / top) * 100}%` } },
        row.bad > 0 && h('div', { class: 'share-bad', style: { width: `${(row.bad / row.value) * 100}%` } }))),
      h('td', { class: 'number' }, row.text)))));
}

function niceTop(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((factor) => Math.ceil(factor * unit)).find((top) => top >= value) ?? value;
}

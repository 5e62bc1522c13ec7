// Failures grouped by their error.
//
// Errors of the same cause often differ in numbers, ids and quoted values. These are replaced before errors are compared.

import { shownError } from './record/sealed.js';

const REPLACED = [
  [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi, '‹id›'],
  [/\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?/g, '‹time›'],
  [/\b(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{8,}\b/gi, '‹hex›'],
  [/\d+(?:[.,]\d+)*/g, '‹n›'],
];
const LENGTH_MAX = 200;

/** The part of an error that failures of the same cause share. */
export function errorPattern(error) {
  // What is encrypted has nothing in common but its key.
  const shown = shownError(error);
  if (shown !== error) return shown;
  const line = (error ?? '').trim().split('\n', 1)[0].slice(0, 1000);
  const pattern = REPLACED.reduce((text, [found, put]) => text.replaceAll(found, put), line).slice(0, LENGTH_MAX);
  return pattern || 'no error text';
}

/** @returns {{pattern: string, example: string, tasks: object[], types: string[], first: number, last: number}[]} largest first */
export function groupFailures(tasks) {
  const groups = new Map();
  for (const task of tasks) {
    const pattern = errorPattern(task.last_error);
    const group = groups.get(pattern) ?? { pattern, example: shownError(task.last_error) ?? '', tasks: [], types: new Map(), first: Infinity, last: -Infinity };
    group.tasks.push(task);
    group.types.set(task.task_type, (group.types.get(task.task_type) ?? 0) + 1);
    group.first = Math.min(group.first, task.updated_at);
    if (task.updated_at >= group.last) {
      group.last = task.updated_at;
      group.example = shownError(task.last_error) ?? '';
    }
    groups.set(pattern, group);
  }
  const list = [...groups.values()].map((group) => ({ ...group, types: [...group.types].sort((a, b) => b[1] - a[1]) }));
  return list.sort((a, b) => b.tasks.length - a.tasks.length || b.last - a.last);
}

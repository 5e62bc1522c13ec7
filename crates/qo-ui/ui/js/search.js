// Parsing of the search field.

import { STATUSES } from './record/record.js';

/** The tabs of the task list. Pending tasks are either due or scheduled. */
export const TABS = ['all', 'due', 'scheduled', 'running', 'completed', 'failed', 'cancelled', 'archived'];
const STATUS_WORDS = [...STATUSES, 'due', 'scheduled'];
const QUALIFIERS = ['type', 'queue', 'tag', 'worker', 'status', 'id', 'shard', 'text'];
const TEXT_MAX_BYTES = 256;

/**
 * Parses a search.
 *
 * A part that is not understood is a problem and never ignored: a search with fewer conditions matches more tasks, and bulk actions
 * apply to everything that matches.
 * @returns {{query: object, problems: string[]}} the query, and messages about invalid parts
 */
export function parseSearch(text) {
  const query = { statuses: [] };
  const problems = [];
  const given = new Set();
  for (const [part, qualifier, quoted, plain, bare] of text.matchAll(/(?:([a-z_]+):)(?:"([^"]*)"|(\S*))|(\S+)/gi)) {
    const value = quoted ?? plain ?? bare;
    const name = qualifier?.toLowerCase() ?? 'id';
    if (part.startsWith('-')) {
      problems.push(`${part} is not supported: a search cannot exclude tasks`);
      continue;
    }
    if (QUALIFIERS.includes(name) && given.has(name)) {
      problems.push(name === 'status' ? 'status: is given twice; separate several statuses with commas' : `${name}: is given twice; a search has one value for it`);
      continue;
    }
    given.add(name);
    if (!QUALIFIERS.includes(name)) {
      problems.push(`unknown qualifier ${name}:; use ${QUALIFIERS.map((known) => `${known}:`).join(' ')}`);
    } else if (value === '') {
      problems.push(`${name}: needs a value`);
    } else if (quoted === undefined && value.includes('"')) {
      problems.push(`${part} has a quotation mark without its counterpart`);
    } else if (name === 'id') {
      const id = value.toLowerCase();
      if (/^[0-9a-f][0-9a-f-]{0,35}$/.test(id)) query.id = id;
      else problems.push(`${value} is not a prefix of an id; use type:, queue:, tag:, worker: or status:`);
    } else if (name === 'status') {
      for (const status of value.toLowerCase().split(',')) {
        if (STATUS_WORDS.includes(status)) query.statuses.push(status);
        else problems.push(`${status} is not a status; use ${STATUS_WORDS.join(', ')}`);
      }
    } else if (name === 'shard' && !/^[0-9a-f]$/.test(value)) {
      problems.push('a shard is one hexadecimal digit');
    } else if (name === 'text' && new TextEncoder().encode(value).length > TEXT_MAX_BYTES) {
      problems.push(`a text to search for has at most ${TEXT_MAX_BYTES} bytes`);
    } else {
      query[name] = value;
    }
  }
  if (query.id && query.shard && !query.id.startsWith(query.shard)) problems.push(`no id that starts with ${query.id} is in shard ${query.shard}`);
  return { query, problems };
}

/** Combines a tab, a shard and a search. A status in the search overrides the tab. */
export function combine(tab, shard, searched, sort) {
  const statuses = searched.statuses.length > 0 ? searched.statuses : tab === 'all' ? [] : [tab];
  return { ...searched, statuses, shard: searched.shard ?? (shard || undefined), sort };
}

/** A query in words, as it was understood: "failed tasks of type resize in queue bulk". */
export function describe(query) {
  const statuses = [...new Set(query.statuses ?? [])];
  const conditions = [
    query.type && `of type ${query.type}`,
    query.queue && `in queue ${query.queue}`,
    query.tag && `with tag ${query.tag}`,
    query.worker && `last run by worker ${query.worker}`,
    query.shard && `in shard ${query.shard}`,
    query.id && `with an id that starts with ${query.id}`,
    query.text && `with "${query.text}" in the error or input`,
  ].filter(Boolean);
  if (statuses.length === 0 && conditions.length === 0) return 'all tasks of every status';
  const first = statuses.length > 0 ? `${statuses.join(' or ')} tasks` : 'tasks of every status';
  return [first, ...conditions].join(' ');
}

/** Whether a task matches a query. */
export function matches(query, task, now) {
  const is = (status) => {
    if (status === 'due') return task.status === 'pending' && task.available_at <= now + 1000;
    if (status === 'scheduled') return task.status === 'pending' && task.available_at > now - 1000;
    return task.status === status;
  };
  return (!query.statuses?.length || query.statuses.some(is))
    && (!query.type || task.task_type === query.type)
    && (!query.queue || task.queue === query.queue)
    && (!query.tag || task.tags.includes(query.tag))
    && (!query.worker || task.worker_id === query.worker)
    && (!query.shard || task.shard === query.shard)
    && (!query.id || task.id.startsWith(query.id))
    && (!query.text || [task.last_error, task.input].some((found) => typeof found === 'string' && found.toLowerCase().includes(query.text.toLowerCase())));
}

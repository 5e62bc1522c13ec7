// The search field: its language, which is that of the server (`crates/qo-engine/src/search`). A server gets the search as text. On a bucket,
// where there is no server, it is applied here. Both are tested with `tests/vectors/searches.json`.

import { STATUSES } from './record/record.js';

/** The tabs of the task list. Pending tasks are either due or scheduled. */
export const TABS = ['all', 'due', 'scheduled', 'running', 'completed', 'failed', 'cancelled', 'archived'];
const STATUS_WORDS = [...STATUSES, 'due', 'scheduled'];
const QUALIFIERS = ['type', 'queue', 'tag', 'worker', 'status', 'id', 'shard', 'text', 'since', 'until'];
/** Qualifiers with names. They accept several names, separated by commas, and prefixes with a star. */
const NAMES = ['type', 'queue', 'tag', 'worker'];
const TEXT_MAX_BYTES = 256;
const SEARCH_MAX_BYTES = 1024;
const ALTERNATIVES_MAX = 16;
const UNITS_MS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/**
 * Parses a search.
 *
 * A part that is not understood is a problem and never ignored: a search with fewer conditions matches more tasks, and bulk actions
 * apply to everything that matches.
 *
 * One plain name is a condition of its own, such as `query.type`, which sources can use. Alternatives and prefixes are in `query.any`, and
 * exclusions in `query.none`: lists of names and prefixes (`mail*`) by qualifier. Whole searches with `or` between them are in
 * `query.alternatives`, and `query.statuses` has the statuses of all of them.
 * @returns {{query: object, problems: string[]}} the query, and messages about invalid parts
 */
export function parseSearch(text, now = Date.now()) {
  const problems = [];
  if (new TextEncoder().encode(text).length > SEARCH_MAX_BYTES) problems.push(`a search has at most ${SEARCH_MAX_BYTES} bytes`);
  const groups = [[]];
  for (const part of text.matchAll(/(?:(-)?([a-z_]+):)(?:"([^"]*)"(?=\s|$)|(\S*))|(\S+)/gi)) {
    if (part[5]?.toLowerCase() === 'or') groups.push([]);
    else groups.at(-1).push(part);
  }
  if (groups.length === 1) return { query: conditionsOf(groups[0], problems, now), problems };
  if (groups.some((parts) => parts.length === 0)) problems.push('or needs a condition before and after it');
  if (groups.length > ALTERNATIVES_MAX) problems.push(`a search has at most ${ALTERNATIVES_MAX} alternatives`);
  const alternatives = groups.map((parts) => conditionsOf(parts, problems, now));
  const statuses = [...new Set(alternatives.flatMap((one) => one.statuses))];
  if (statuses.length > 0 && alternatives.some((one) => one.statuses.length === 0)) problems.push('status: must be in every alternative, or in none');
  return { query: { statuses, alternatives }, problems };
}

/** The conditions of one alternative. */
function conditionsOf(parts, problems, now) {
  const query = { statuses: [] };
  const given = new Set();
  for (const [part, minus, qualifier, quoted, plain, bare] of parts) {
    const value = quoted ?? plain ?? bare;
    const name = qualifier?.toLowerCase() ?? 'id';
    const known = minus ? `-${name}` : name;
    if (minus && !NAMES.includes(name) && name !== 'status') {
      problems.push(`${part} is not supported: a search can exclude only ${[...NAMES, 'status'].map((one) => `${one}:`).join(' ')}`);
      continue;
    }
    if (QUALIFIERS.includes(name) && given.has(known)) {
      const isList = NAMES.includes(name) || name === 'status';
      problems.push(isList ? `${known}: is given twice; separate several values with commas` : `${known}: is given twice; a search has one value for it`);
      continue;
    }
    given.add(known);
    if (!QUALIFIERS.includes(name)) {
      problems.push(`unknown qualifier ${name}:; use ${QUALIFIERS.map((one) => `${one}:`).join(' ')}`);
    } else if (value === '') {
      problems.push(`${known}: needs a value`);
    } else if (quoted === undefined && value.includes('"')) {
      problems.push(`${part} has a quotation mark without its counterpart`);
    } else if (name === 'id') {
      const id = value.toLowerCase();
      if (/^[0-9a-f][0-9a-f-]{0,35}$/.test(id)) query.id = id;
      else problems.push(`${value} is not a prefix of an id; use type:, queue:, tag:, worker: or status:`);
    } else if (name === 'status') {
      addStatuses(query, problems, value.toLowerCase().split(','), Boolean(minus));
    } else if (name === 'shard' && !/^[0-9a-f]$/.test(value)) {
      problems.push('a shard is one hexadecimal digit');
    } else if (name === 'text' && new TextEncoder().encode(value).length > TEXT_MAX_BYTES) {
      problems.push(`a text to search for has at most ${TEXT_MAX_BYTES} bytes`);
    } else if (name === 'since' || name === 'until') {
      const at = timeOf(value, now);
      if (at === undefined) problems.push(`${value} is not a time; use a time ago, such as 30m, 2h or 3d, or a date such as 2026-11-18 or 2026-11-18T09:30Z`);
      else query[name] = at;
    } else if (NAMES.includes(name)) {
      addNames(query, problems, name, quoted === undefined ? value.split(',') : [value], { minus, isQuoted: quoted !== undefined });
    } else {
      query[name] = value;
    }
  }
  if (query.id && query.shard && !query.id.startsWith(query.shard)) problems.push(`no id that starts with ${query.id} is in shard ${query.shard}`);
  if (query.since !== undefined && query.until !== undefined && query.since >= query.until) problems.push('since: must be before until:');
  return query;
}

function addStatuses(query, problems, words, isExcluded) {
  const unknown = words.filter((status) => !STATUS_WORDS.includes(status));
  for (const status of unknown) problems.push(`${status} is not a status; use ${STATUS_WORDS.join(', ')}`);
  if (unknown.length > 0) return;
  if (!isExcluded) {
    query.statuses.push(...words);
    return;
  }
  query.none = { ...query.none, status: words };
}

function addNames(query, problems, name, names, { minus, isQuoted }) {
  const stars = isQuoted ? [] : names.filter((one) => one.includes('*'));
  const wrong = stars.find((one) => one.indexOf('*') !== one.length - 1 || one === '*') ?? names.find((one) => one === '');
  if (wrong !== undefined) {
    problems.push(wrong === '' ? `${name}: has an empty name` : `${wrong} is not supported: a star is allowed only at the end of a name, as in mail*`);
    return;
  }
  const patterns = names.map((one) => (isQuoted ? { is: one } : one.endsWith('*') ? { starts: one.slice(0, -1) } : { is: one }));
  if (minus) query.none = { ...query.none, [name]: patterns };
  else if (patterns.length === 1 && patterns[0].is !== undefined) query[name] = patterns[0].is;
  else query.any = { ...query.any, [name]: patterns };
}

/** A time ago, or a date, in milliseconds. A date without a time is midnight UTC. */
function timeOf(text, now) {
  const [, many, unit] = /^(\d{1,6})([smhdw])$/i.exec(text) ?? [];
  if (unit) return now - Number(many) * UNITS_MS[unit.toLowerCase()];
  // A time without a zone would be local to whoever looks at it.
  if (!/^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/i.test(text)) return undefined;
  const at = Date.parse(text);
  return Number.isFinite(at) ? at : undefined;
}

/** Combines a tab, a shard and a search. A status in the search overrides the tab. */
export function combine(tab, shard, searched, sort) {
  const statuses = searched.statuses.length > 0 ? searched.statuses : tab === 'all' ? [] : [tab];
  return { ...searched, statuses, shard: searched.shard ?? (shard || undefined), sort };
}

const WORDS = { type: 'of type', queue: 'in queue', tag: 'with tag', worker: 'last run by worker' };
const shown = ({ is, starts }) => is ?? `${starts}…`;

/** The conditions of a query in words. */
function wordsOf(query) {
  return [
    query.type && `of type ${query.type}`,
    query.queue && `in queue ${query.queue}`,
    query.tag && `with tag ${query.tag}`,
    query.worker && `last run by worker ${query.worker}`,
    query.shard && `in shard ${query.shard}`,
    query.id && `with an id that starts with ${query.id}`,
    query.text && `with "${query.text}" in the error or input`,
    ...NAMES.map((name) => query.any?.[name] && `${WORDS[name]} ${query.any[name].map(shown).join(' or ')}`),
    ...NAMES.map((name) => query.none?.[name] && `not ${WORDS[name]} ${query.none[name].map(shown).join(' or ')}`),
    query.none?.status && `not ${query.none.status.join(' or ')}`,
    query.since !== undefined && `submitted since ${new Date(query.since).toISOString()}`,
    query.until !== undefined && `submitted before ${new Date(query.until).toISOString()}`,
    query.alternatives && `(${query.alternatives.map((one) => (one.statuses.length > 0 ? describe(one) : wordsOf(one).join(' '))).join(', or ')})`,
  ].filter(Boolean);
}

/** A query in words, as it was understood: "failed tasks of type resize in queue bulk". */
export function describe(query) {
  const statuses = [...new Set(query.statuses ?? [])];
  const conditions = wordsOf(query);
  if (statuses.length === 0 && conditions.length === 0) return 'all tasks of every status';
  const first = statuses.length > 0 ? `${statuses.join(' or ')} tasks` : 'tasks of every status';
  return [first, ...conditions].join(' ');
}

/** The conditions of a query that a server takes as parameters of their own. */
const PARAMETERS = ['type', 'queue', 'tag', 'shard', 'text', 'since', 'until'];
const quote = (value) => (/[\s,*]/.test(value) ? `"${value}"` : value);
const written = (patterns) => patterns.map(({ is, starts }) => (is === undefined ? `${starts}*` : quote(is))).join(',');

/** The search that a server must apply besides the parameters that a list has for single conditions; empty if there is nothing left to say. */
export function serverSearch(query) {
  const isSplit = (status) => status === 'due' || status === 'scheduled';
  const status = query.statuses?.some(isSplit) ? [`status:${[...new Set(query.statuses)].join(',')}`] : [];
  if (!query.alternatives) return [...status, ...rest(query)].join(' ');
  return query.alternatives.map((one) => [
    ...(one.statuses.length > 0 ? [`status:${one.statuses.join(',')}`] : status),
    ...PARAMETERS.filter((name) => one[name] !== undefined).map((name) => `${name}:${typeof one[name] === 'number' ? new Date(one[name]).toISOString() : quote(one[name])}`),
    ...rest(one),
  ].join(' ')).join(' or ');
}

function rest({ worker, id, any = {}, none = {} }) {
  return [
    worker && `worker:${quote(worker)}`,
    id && `id:${id}`,
    ...NAMES.map((name) => any[name] && `${name}:${written(any[name])}`),
    ...NAMES.map((name) => none[name] && `-${name}:${written(none[name])}`),
    none.status && `-status:${none.status.join(',')}`,
  ].filter(Boolean);
}

/** Whether a task matches a query. */
export function matches(query, task, now) {
  const is = (status) => {
    if (status === 'due') return task.status === 'pending' && task.available_at <= now + 1000;
    if (status === 'scheduled') return task.status === 'pending' && task.available_at > now - 1000;
    return task.status === status;
  };
  const valuesOf = { type: [task.task_type], queue: [task.queue], tag: task.tags, worker: [task.worker_id] };
  const fits = (value, pattern) => value !== undefined && (pattern.is === undefined ? value.startsWith(pattern.starts) : value === pattern.is);
  const hasOne = (name, patterns) => valuesOf[name].some((value) => patterns.some((pattern) => fits(value, pattern)));
  return (!query.statuses?.length || query.statuses.some(is))
    && (!query.alternatives || query.alternatives.some((one) => matches(one, task, now)))
    && !query.none?.status?.some(is)
    && NAMES.every((name) => !query.any?.[name] || hasOne(name, query.any[name]))
    && NAMES.every((name) => !query.none?.[name] || !hasOne(name, query.none[name]))
    && (query.since === undefined || task.created_at >= query.since)
    && (query.until === undefined || task.created_at < query.until)
    && (!query.type || task.task_type === query.type)
    && (!query.queue || task.queue === query.queue)
    && (!query.tag || task.tags.includes(query.tag))
    && (!query.worker || task.worker_id === query.worker)
    && (!query.shard || task.shard === query.shard)
    && (!query.id || task.id.startsWith(query.id))
    && (!query.text || [task.last_error, task.input].some((found) => typeof found === 'string' && found.toLowerCase().includes(query.text.toLowerCase())));
}

// The page and the servers have the same search language: both pass the same vectors.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { fields } from '../../js/json/scan.js';
import { TaskRecord } from '../../js/record/record.js';
import { describe, matches, parseSearch, serverSearch } from '../../js/search.js';

const vectors = JSON.parse(readFileSync(new URL('../vectors/searches.json', import.meta.url), 'utf8'));
const now = Date.parse(vectors.now);
const tasks = Object.entries(vectors.tasks).map(([name, task]) => [name, new TaskRecord(new Map(fields(JSON.stringify(task)))).view()]);
const found = (query) => tasks.filter(([, task]) => matches(query, task, now)).map(([name]) => name).sort();

test('searches select the tasks of the vectors', () => {
  assert.ok(vectors.searches.length > 80);
  for (const { search, matches: expected } of vectors.searches) {
    const { query, problems } = parseSearch(search, now);
    // An empty field is no search; a server wants a condition.
    if (search.trim() === '') continue;
    assert.equal(problems.length === 0, expected !== null, `${search}: ${problems}`);
    if (expected !== null) assert.deepEqual(found(query), [...expected].sort(), search);
  }
});

test('what the page sends to a server says the same', () => {
  for (const { search, matches: expected } of vectors.searches) {
    if (expected === null) continue;
    const { query } = parseSearch(search, now);
    const { type, queue, tag, shard, text, since, until } = query;
    // The parameters of a list, in which due and scheduled tasks are pending.
    const parameters = { type, queue, tag, shard, text, since, until, statuses: query.statuses.map((status) => (['due', 'scheduled'].includes(status) ? 'pending' : status)) };
    const sent = serverSearch(query);
    const { query: read, problems } = parseSearch(sent, now);
    assert.deepEqual(problems, [], `${search}: ${sent}`);
    const names = found(parameters).filter((name) => found(read).includes(name));
    assert.deepEqual(names, [...expected].sort(), `${search}: ${sent}`);
  }
  assert.equal(serverSearch(parseSearch('type:a queue:b since:2h', now).query), '', 'plain conditions are parameters of their own');
  assert.equal(serverSearch({ ...parseSearch('type:a or queue:"b c"', now).query, statuses: ['due'] }), 'status:due type:a or status:due queue:"b c"', 'a tab holds for every alternative');
});

test('alternatives are restated in words', () => {
  const words = (text) => describe(parseSearch(text, now).query);
  assert.equal(words('type:a or queue:b -tag:c'), 'tasks of every status (of type a, or in queue b not with tag c)');
  assert.equal(words('status:failed or status:due type:a'), 'failed or due tasks (failed tasks, or due tasks of type a)');
});

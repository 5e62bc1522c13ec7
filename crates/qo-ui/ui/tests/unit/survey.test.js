// The survey of a bucket whose ids contain their creation time.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { keyFromTime, SHARDS, taskIdOf } from '../../js/record/keys.js';
import { Survey } from '../../js/s3/survey.js';

const NOW = Date.UTC(2026, 10, 17);

/** A bucket in memory with tasks at equal distances in time, the newest one a second old. */
function bucket(many, distanceMs) {
  const entries = Array.from({ length: many }, (_, index) => {
    const created = NOW - 1000 - index * distanceMs;
    const shard = SHARDS[index % 16];
    const key = `${keyFromTime(shard, created)}-8000-8000-${String(index).padStart(12, '0')}.json`;
    return { key, modified: created, task: { id: taskIdOf(key), status: index % 10 === 0 ? 'failed' : 'completed', task_type: 't', queue: 'q', created_at: created, available_at: created, started_at: created, completed_at: created, updated_at: created, events: [] } };
  }).sort((a, b) => (a.key < b.key ? -1 : 1));
  let lists = 0;
  return {
    lists: () => lists,
    client: {
      clock: { now: () => NOW },
      list: async (prefix, { after = '' } = {}) => {
        lists += 1;
        const found = entries.filter(({ key }) => key.startsWith(prefix) && key > after);
        return { entries: found.slice(0, 1000), truncated: found.length > 1000 };
      },
    },
    cache: { ofEntries: async (wanted) => wanted.map(({ task }) => task), ofIds: async () => [] },
  };
}

test('a large bucket is not mistaken for a larger one, and its newest tasks are seen', async () => {
  const { client, cache, lists } = bucket(40_000, 10_000);
  const survey = await new Survey(client, cache).take();
  assert.equal(survey.total.how, 'at least');
  assert.ok(survey.total.value <= 40_000 && survey.total.value >= 16_000, `${survey.total.value} of 40,000`);
  const { bars, rate } = survey.activity;
  assert.ok(bars.at(-1).completed + bars.at(-1).failed > 0, 'tasks of the last minutes are in the chart');
  assert.ok(Math.abs(rate - 6) < 1, `${rate} a minute, of 6`);
  assert.ok(Math.abs(survey.counts.failed.value / survey.total.value - 0.1) < 0.06);
  assert.ok(lists() <= 16 + 3 + 16 + 4, `${lists()} LIST`);
});

test('a bucket whose shards are listed completely is counted exactly', async () => {
  const { client, cache, lists } = bucket(8000, 10_000);
  const survey = await new Survey(client, cache).take();
  assert.deepEqual([survey.total, lists()], [{ value: 8000, how: 'exact' }, 19]);
});

// What a page on a bucket keeps of objects that are gone: nothing.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { taskKey } from '../../js/record/keys.js';
import { TaskCache } from '../../js/s3/cache.js';
import { keepListed } from '../../js/s3/source.js';
import { SourceError } from '../../js/source.js';

const ID = '550e8400-e29b-41d4-a716-446655440000';

test('a damaged task that was deleted is not reported as unreadable any more', async (t) => {
  t.mock.method(console, 'warn', () => undefined);
  let text = '{"id": broken';
  const cache = new TaskCache({
    async get() {
      if (text === undefined) throw new SourceError('not_found', 'gone');
      return { text, etag: 'e' };
    },
  });
  const entries = [{ key: taskKey(ID), etag: 'e' }];
  assert.deepEqual([await cache.ofEntries(entries), cache.isUnreadable(ID)], [[], true]);
  // The list was read before the task was deleted.
  text = undefined;
  assert.deepEqual([await cache.ofEntries(entries), cache.isUnreadable(ID)], [[], false]);
});

test('records that are not listed any more are forgotten', () => {
  const records = new Map([['workers/a.json', 1], ['workers/b.json', 2]]);
  keepListed(records, { entries: [{ key: 'workers/b.json' }, { key: 'workers/c.json' }] });
  assert.deepEqual([...records], [['workers/b.json', 2]]);
});

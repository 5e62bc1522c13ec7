// A bulk action on a server that works in the background, and then refuses to.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { HttpSource } from '../../js/http/source.js';

const { fetch } = globalThis;
afterEach(() => { globalThis.fetch = fetch; });

const TASKS = Array.from({ length: 50_450 }, (_, index) => ({ id: `task-${index}` }));
const REPORT = { failed: 0, failures: [] };

/** A server that refuses some of the requests to work in the background. `sent` are the bulk requests that it has accepted. */
function serve(refuses) {
  const sent = [];
  const asked = [];
  globalThis.fetch = async (url, { body }) => {
    const { background, filter: { ids } } = JSON.parse(body);
    if (background) asked.push(ids.length);
    if (background && refuses(asked.length)) return Response.json({ title: 'no' }, { status: refuses(asked.length) });
    sent.push({ background: Boolean(background), ids });
    const result = { ...REPORT, done: ids.length, matched: ids.length };
    return Response.json(background ? { id: 'job', state: 'finished', result } : result);
  };
  return { source: new HttpSource({ url: 'http://qo.test' }), sent, asked };
}

test('a bulk action continues in small requests where the server stopped to work in the background', async () => {
  const { source, sent, asked } = serve((request) => (request === 2 ? 503 : 0));
  const progress = [];
  const report = await source.actOnAll('archive', TASKS, { onProgress: ({ finished }) => progress.push(finished) });
  assert.deepEqual(report, { ...REPORT, done: TASKS.length, left: 0 });
  assert.deepEqual(sent.flatMap(({ ids }) => ids), TASKS.map(({ id }) => id), 'each task once, in order');
  assert.deepEqual(sent.map(({ background, ids }) => [background, ids.length]), [[true, 50_000], [false, 200], [false, 200], [false, 50]]);
  assert.ok(progress.every((many, index) => index === 0 || many >= progress[index - 1]), String(progress));
  // The server had no room then; it may have now.
  await source.actOnAll('archive', TASKS.slice(0, 5000), {});
  assert.deepEqual(asked, [50_000, 450, 5000]);
  assert.equal(sent.at(-1).background, true);
});

test('a server that cannot work in the background is not asked again', async () => {
  const { source, sent, asked } = serve(() => 400);
  for (let time = 0; time < 2; time += 1) await source.actOnAll('archive', TASKS.slice(0, 5000), {});
  assert.deepEqual([asked, sent.length], [[5000], 50]);
});

test('a bulk action that is stopped reports what is left', async () => {
  const { source } = serve(() => 400);
  const stop = new AbortController();
  const onProgress = ({ finished }) => { if (finished === 400) stop.abort(); };
  const report = await source.actOnAll('archive', TASKS.slice(0, 5000), { signal: stop.signal, onProgress });
  assert.deepEqual(report, { ...REPORT, done: 400, left: 4600 });
});

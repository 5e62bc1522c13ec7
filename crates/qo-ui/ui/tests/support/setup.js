// Sets up a test: a browser, and a bucket with sample data and the dashboard, or a server.

import { openDashboard } from './browser.js';
import { story } from './programs.js';
import { serveQo } from './serve.js';
import { startS3 } from './server.js';
import { deploy, startBrowser, uniqueName } from './stage.js';

export async function setUp(hint, { versioned = true, objects } = {}) {
  const { s3, shell, stop } = await startS3();
  const bucket = uniqueName(hint);
  await s3.createBucket(bucket, { versioned });
  const stored = objects ?? (await story());
  // States of the same task are written in order, everything else in any order.
  const keys = new Map();
  for (const { key } of stored) keys.set(key, (keys.get(key) ?? 0) + 1);
  await s3.putMany(bucket, stored.filter(({ key }) => keys.get(key) === 1));
  await s3.putMany(bucket, stored.filter(({ key }) => keys.get(key) > 1), 1);
  const url = await deploy(s3, bucket);
  const browser = await startBrowser();
  const tasks = new Map(stored.filter(({ key }) => key.startsWith('tasks/')).map(({ body }) => [JSON.parse(body).id, JSON.parse(body)]));
  return {
    s3, shell, bucket, url, browser,
    tasks: [...tasks.values()],
    /** The first task of the sample data with these fields. */
    task: (like) => [...tasks.values()].find((task) => Object.entries(like).every(([name, value]) => task[name] === value)),
    /** The stored record of a task. */
    stored: async (id) => JSON.parse(await s3.get(bucket, `tasks/${id[0]}/${id}.json`)),
    async close() {
      await browser.close();
      s3.close();
      stop();
    },
  };
}

/** A server with an empty queue in memory, and a browser. */
export async function setUpServer() {
  const browser = await startBrowser();
  const server = await serveQo({ store: 'memory:?engine=slate' });
  return {
    browser,
    server,
    open: (hash) => openDashboard({ browser, url: `${server.url}/ui/${hash}` }, { plain: true }),
    async close() {
      server.stop();
      await browser.close();
    },
  };
}

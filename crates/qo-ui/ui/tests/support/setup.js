// Sets up a test: a browser, and a bucket with sample data and the dashboard, or a server.

import { openDashboard } from './browser.js';
import { gateBefore } from './gate.js';
import { story } from './programs.js';
import { serveQo } from './serve.js';
import { startS3 } from './server.js';
import { deploy, startBrowser, uniqueName } from './stage.js';

/** The environment of `qo` for a bucket. */
const environment = (s3, bucket, endpoint = s3.endpoint) => ({ PATH: process.env.PATH, HOME: '/nonexistent', QO_STORE: `s3://${bucket}`, S3_ENDPOINT: endpoint, S3_REGION: 'us-east-1', AWS_ACCESS_KEY_ID: s3.accessKey, AWS_SECRET_ACCESS_KEY: s3.secretKey });

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
    env: environment(s3, bucket),
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
export async function setUpServer(settings = { store: 'memory:?engine=slate' }) {
  const browser = await startBrowser();
  const server = await serveQo(settings);
  return {
    browser,
    server,
    open: (hash) => openDashboard({ browser, url: `${server.url}/ui/${hash}` }, { plain: true }),
    async close() {
      await server.stop();
      await browser.close();
    },
  };
}

/** A server whose queue is in a bucket behind a gate, so that a test can hold its writes, and a browser. */
export async function setUpGatedServer() {
  const { s3, stop } = await startS3();
  const bucket = uniqueName('gated');
  await s3.createBucket(bucket);
  const gate = await gateBefore(s3.endpoint);
  const stage = await setUpServer({ store: `s3://${bucket}?engine=slate`, env: environment(s3, bucket, gate.url) });
  return {
    ...stage,
    /** Lets the server commit some groups of changes, and holds those after them until `release`. */
    holdAfter: (commits) => gate.holdAfter(commits, ({ method, url }) => method === 'PUT' && url.includes('/slate/wal/')),
    release: () => gate.release(),
    async close() {
      gate.release();
      await stage.close();
      gate.stop();
      s3.close();
      stop();
    },
  };
}

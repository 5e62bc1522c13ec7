// A stage with a story on it, and how to leave it.

import { story } from './programs.js';
import { startS3 } from './server.js';
import { deploy, startBrowser, uniqueName } from './stage.js';

export async function setUp(hint, { versioned = true, objects } = {}) {
  const { s3, shell, stop } = await startS3();
  const bucket = uniqueName(hint);
  await s3.createBucket(bucket, { versioned });
  const told = objects ?? (await story());
  // States of one task are written in their order; the rest in any.
  const keys = new Map();
  for (const { key } of told) keys.set(key, (keys.get(key) ?? 0) + 1);
  await s3.putMany(bucket, told.filter(({ key }) => keys.get(key) === 1));
  await s3.putMany(bucket, told.filter(({ key }) => keys.get(key) > 1), 1);
  const url = await deploy(s3, bucket);
  const browser = await startBrowser();
  const tasks = new Map(told.filter(({ key }) => key.startsWith('tasks/')).map(({ body }) => [JSON.parse(body).id, JSON.parse(body)]));
  return {
    s3, shell, bucket, url, browser, told,
    tasks: [...tasks.values()],
    /** The first task of the story that is like this. */
    task: (like) => [...tasks.values()].find((task) => Object.entries(like).every(([name, value]) => task[name] === value)),
    /** A task as it is stored now. */
    stored: async (id) => JSON.parse(await s3.get(bucket, `tasks/${id[0]}/${id}.json`)),
    async close() {
      await browser.close();
      s3.close();
      stop();
    },
  };
}

// What the tests of a file share: a bucket and a server, or a server alone, from the file's first test to its last.

import { execFile } from 'node:child_process';
import { after, before } from 'node:test';
import { promisify } from 'node:util';

import { openDashboard } from './browser.js';
import { programs } from './programs.js';
import { serveQo } from './serve.js';
import { setUp, setUpServer } from './setup.js';

const run = promisify(execFile);

/** Fills an object before the tests of the file. Tests are declared earlier than that, so they get the object itself. */
function useStage(stage, start) {
  before(async () => { Object.assign(stage, await start()); });
  after(async () => { await stage.close?.(); });
  return stage;
}

/**
 * A bucket and a server for the tests of a file. `SOURCES` opens the dashboard of either; `qo` runs a command on the bucket.
 * @param {object} options `store` is what the server serves: the same bucket, without recovering tasks of dead workers, unless it is given;
 *   `prepare` runs before the server starts, `fill` after
 */
export function useSources(hint, { store, args, prepare, fill, ...bucket } = {}) {
  const stage = {};
  stage.SOURCES = {
    bucket: (hash, context = {}) => openDashboard(stage, { go: hash, context }),
    server: (hash, context = {}) => openDashboard({ ...stage, url: `${stage.server.url}/ui/#/${hash}` }, { plain: true, context }),
  };
  return useStage(stage, async () => {
    const made = await setUp(hint, bucket);
    const env = { ...made.env, QO_ACTOR: 'ada@laptop' };
    const program = await programs.qo();
    const qo = async (...words) => (await run(program, words, { env })).stdout.trim();
    await prepare?.({ ...made, qo });
    const server = await serveQo(store ? { store, args } : { store: env.QO_STORE, env, args: args ?? ['--no-monitor'] });
    await fill?.({ ...made, qo, server });
    return {
      ...made, qo, server,
      async close() {
        await server.stop();
        await made.close();
      },
    };
  });
}

/** A server and a browser for the tests of a file. */
export function useServer(start = setUpServer) {
  return useStage({}, start);
}

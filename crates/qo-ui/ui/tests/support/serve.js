// `qo serve` for tests, on a store of its own.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { programs } from './programs.js';

/** Ports that are free at the moment. */
async function freePorts(count) {
  const servers = await Promise.all(Array.from({ length: count }, () => new Promise((done) => {
    const server = createServer().listen(0, '127.0.0.1', () => done(server));
  })));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

/** Starts a cluster of three nodes, and waits until one of them leads. It ends with this process. */
export async function serveCluster() {
  const ports = await freePorts(6);
  const folder = mkdtempSync(join(tmpdir(), 'qo-ui-cluster-'));
  const url = (node) => `http://127.0.0.1:${ports[node]}`;
  const members = [0, 1, 2].map((node) => `--member=${node + 1}@127.0.0.1:${ports[node + 3]}=${url(node)}`);
  const children = [];
  for (const node of [0, 1, 2]) {
    children.push(spawn(await programs.qo(), ['--json', 'serve', '--cluster=ui', `--node=${node + 1}`, `--data=${folder}/${node + 1}`, `--listen=127.0.0.1:${ports[node]}`, `--node-listen=127.0.0.1:${ports[node + 3]}`, ...members], {
      env: { PATH: process.env.PATH, HOME: '/nonexistent', QO_CLUSTER_SECRET: 'a secret of the browser tests' },
      stdio: ['ignore', 'ignore', 'inherit'],
    }));
  }
  const stop = () => {
    for (const child of children) child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  process.once('exit', stop);
  for (const child of children) child.unref();
  const until = Date.now() + 60_000;
  while (Date.now() < until) {
    for (const node of [0, 1, 2]) {
      const ready = await fetch(`${url(node)}/readyz`).then(({ ok }) => ok, () => false);
      if (ready) return { url: url(node), leader: node + 1, stop };
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  stop();
  throw new Error('no node leads');
}

/** Starts a server. It ends with this process. */
export async function serveQo({ store, env = {}, args = [] }) {
  const child = spawn(await programs.qo(), ['--json', '--store', store, 'serve', '--listen', '127.0.0.1:0', ...args], {
    env: { PATH: process.env.PATH, HOME: '/nonexistent', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const stop = () => new Promise((done) => {
    if (child.exitCode !== null || child.signalCode !== null || !child.kill('SIGTERM')) return done();
    child.ref();
    return child.once('exit', done);
  });
  process.once('exit', stop);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const { url } = JSON.parse((await lines.next()).value);
  // A test that fails before it stops its server must not keep this process alive.
  child.unref();
  child.stdout.unref();
  while (!(await fetch(`${url}/readyz`)).ok) await new Promise((done) => setTimeout(done, 50));
  return {
    url,
    /** Ends the server. Waiting for that is necessary only before its store goes away. */
    stop,
    /** Sends a request to the API and returns the parsed response. */
    async api(method, path, body, headers = {}) {
      const response = await fetch(url + path, { method, headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers }, body: body === undefined ? undefined : JSON.stringify(body) });
      const text = await response.text();
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 300)}`);
      return text ? JSON.parse(text) : undefined;
    },
    /** Submits many tasks, in requests of a thousand at most. */
    async submit(tasks, size = 1000) {
      const ids = [];
      for (let at = 0; at < tasks.length; at += size) {
        const results = await this.api('POST', '/v1/tasks', tasks.slice(at, at + size).map((task) => ({ omit_input: true, ...task })));
        for (const result of results) {
          if (!result.task) throw new Error(JSON.stringify(result));
          ids.push(result.task.id);
        }
      }
      return ids;
    },
    /** Claims tasks and ends each as told. Returns how many were claimed. */
    async work(many, outcome, claim = {}) {
      const { tasks } = await this.api('POST', '/v1/claim', { worker_id: 'tester', max: Math.min(many, 1000), ...claim });
      if (tasks.length > 0) await this.api('POST', '/v1/outcomes', tasks.map((task, index) => ({ id: task.id, ...withLease(outcome(task, index), task.lease_id) })));
      return tasks.length;
    },
  };
}

/** Puts the lease into the body of an outcome, such as `{ complete: {} }`. */
function withLease(outcome, lease) {
  const [[kind, body]] = Object.entries(outcome);
  return { [kind]: { lease_id: lease, ...body }, omit_input: true };
}

// `qo serve` for tests, on a store of its own.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

import { programs } from './programs.js';

/** Starts a server. It ends with this process. */
export async function serveQo({ store, env = {}, args = [] }) {
  const child = spawn(await programs.qo(), ['--json', '--store', store, 'serve', '--listen', '127.0.0.1:0', ...args], {
    env: { PATH: process.env.PATH, HOME: '/nonexistent', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const stop = () => child.kill('SIGTERM');
  process.once('exit', stop);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const { url } = JSON.parse((await lines.next()).value);
  // A test that fails before it stops its server must not keep this process alive.
  child.unref();
  child.stdout.unref();
  while (!(await fetch(`${url}/readyz`)).ok) await new Promise((done) => setTimeout(done, 50));
  return {
    url,
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

// `qo ui deploy` and `qo ui link`.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { TIMEOUT_MS, shows } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { serveQo } from '../support/serve.js';
import { setUp } from '../support/setup.js';
import { uniqueName } from '../support/stage.js';

const run = promisify(execFile);
let stage;
let bucket;
before(async () => {
  stage = await setUp('command', { versioned: false, objects: [] });
  bucket = uniqueName('deployed');
  await stage.s3.createBucket(bucket);
});
after(async () => { await stage?.close(); });

async function qo(...words) {
  return run(await programs.qo(), ['--store', `s3://${bucket}/some/prefix`, ...words], {
    env: { PATH: process.env.PATH, HOME: '/nonexistent', S3_ENDPOINT: stage.s3.endpoint, S3_REGION: 'us-east-1', AWS_ACCESS_KEY_ID: stage.s3.accessKey, AWS_SECRET_ACCESS_KEY: stage.s3.secretKey },
  });
}

test('the dashboard is deployed once, is public, and opens by a link', async () => {
  const { stdout } = await qo('ui', 'deploy', '--public', '--json');
  const report = JSON.parse(stdout);
  assert.deepEqual([report.written, report.public], [report.files, true]);
  assert.equal(report.url, `${stage.s3.endpoint}/${bucket}/some/prefix/ui/index.html`);
  const again = JSON.parse((await qo('ui', 'deploy', '--json')).stdout);
  assert.equal(again.written, 0, 'a second deployment writes nothing');
  const response = await fetch(report.url);
  assert.deepEqual([response.status, response.headers.get('content-type'), response.headers.get('cache-control')], [200, 'text/html; charset=utf-8', 'no-cache']);
  assert.equal((await fetch(`${stage.s3.endpoint}/${bucket}/some/prefix/meta/signal.json`)).status, 403, 'nothing else is public');

  await qo('submit', '--type', 'greet', '--input', '{"name": "Ada"}');
  await assert.rejects(qo('ui', 'link'), /keys are long-lived/, 'long-lived keys need consent');
  const link = await qo('ui', 'link', '--allow-long-lived', '--read-only', '--go', 'tasks');
  assert.match(link.stderr, /long-lived keys/);
  const page = await (await stage.browser.newContext()).newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  await page.goto(link.stdout.trim());
  await shows(page, 'greet', '.tasks-table');
  assert.equal(await page.locator('.selection').count(), 0, 'it is read-only');
  await page.context().close();
});

test('a link to a server contains a new token that expires', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'qo-link-'));
  const store = `sqlite:${folder}/queue.db`;
  const qo = async (QO_STORE, QO_TOKEN, ...words) => (await run(await programs.qo(), words, { env: { PATH: process.env.PATH, HOME: folder, QO_STORE, ...(QO_TOKEN && { QO_TOKEN }) } })).stdout;
  const tokenOf = async (scope) => JSON.parse(await qo(store, undefined, '--json', 'token', 'create', '--name', scope, '--scope', scope)).token;
  const [admin, read] = [await tokenOf('admin'), await tokenOf('read')];
  const server = await serveQo({ store });
  await qo(server.url, admin, 'submit', '--type', 'greet');
  await assert.rejects(qo(server.url, read, 'ui', 'link'), /cannot create a temporary token.*scope admin/s);
  const link = JSON.parse(await qo(server.url, admin, '--json', 'ui', 'link', '--read-only', '--for', '20m', '--go', 'tasks'));
  assert.ok(link.url.startsWith(`${server.url}/ui/#connect=`) && !link.url.includes(admin), link.url);
  const minutes = (Date.parse(link.expires_at) - Date.now()) / 60_000;
  assert.ok(minutes > 18 && minutes < 21, link.expires_at);
  const tokens = await server.api('GET', '/v1/tokens', undefined, { authorization: `Bearer ${admin}` });
  assert.deepEqual(tokens.find(({ name }) => name === 'link to the dashboard').scopes, ['read']);
  const page = await (await stage.browser.newContext()).newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  await page.goto(link.url);
  await shows(page, 'greet', '.tasks-table');
  assert.equal(await page.locator('.selection').count(), 0, 'it is read-only');
  assert.equal(await page.evaluate(() => location.hash), '#/tasks', 'the token is not in the address');
  await page.context().close();
  const plain = await qo(server.url, undefined, 'ui', 'link');
  assert.equal(plain.trim(), `${server.url}/ui/#/overview`);
  server.stop();
  rmSync(folder, { recursive: true, force: true });
});

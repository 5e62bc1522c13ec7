// The dashboard on a qo server, through the HTTP API.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createServer, request as httpRequest } from 'node:http';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { checkAccess, closePage, listens, openDashboard, screenshot, shows, until, visit } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { serveQo } from '../support/serve.js';
import { setUp } from '../support/setup.js';

let stage;
let open;
before(async () => {
  stage = await setUp('server', { versioned: true });
  open = await serve();
});
after(async () => {
  open?.stop();
  await stage?.close();
});

/** The environment of `qo` for the test bucket. */
function environment() {
  return { PATH: process.env.PATH, QO_STORE: `s3://${stage.bucket}`, S3_ENDPOINT: stage.s3.endpoint, S3_REGION: 'us-east-1', AWS_ACCESS_KEY_ID: stage.s3.accessKey, AWS_SECRET_ACCESS_KEY: stage.s3.secretKey };
}

/** `qo serve` on the test bucket. It does not recover tasks of dead workers, so that the sample data stays unchanged. */
const serve = () => serveQo({ store: `s3://${stage.bucket}`, env: environment(), args: ['--no-monitor'] });

/** Opens the dashboard of the server. */
async function openServed(server, hash = '#/overview', context = {}) {
  const page = await openDashboard({ ...stage, url: `${server.url}/ui/${hash}` }, { context, plain: true });
  return page;
}

test('the dashboard of a server connects automatically', async () => {
  const page = await openServed(open);
  await shows(page, `${stage.tasks.length} tasks in total`);
  const failed = stage.tasks.filter((task) => task.status === 'failed').length;
  assert.equal(await page.locator('.tile.failed .tile-value').innerText(), String(failed));
  await checkAccess(page, 'overview on a server');
  await screenshot(page, 'server-overview');
  const response = await fetch(`${open.url}/ui/`);
  assert.match(response.headers.get('content-security-policy'), /script-src 'self';.*frame-ancestors 'none'/);
  assert.equal((await fetch(`${open.url}/ui/js/app.js`, { headers: { 'if-none-match': (await fetch(`${open.url}/ui/js/app.js`)).headers.get('etag') } })).status, 304);
  await closePage(page);
});

/** A proxy that serves a server below `/queue` and passes the Host header on. */
async function proxyBelowPath(server) {
  const proxy = createServer((request, response) => {
    const path = /^\/queue(\/.*)$/.exec(request.url)?.[1];
    if (!path) {
      response.writeHead(404).end();
      return;
    }
    const passed = httpRequest(server.url + path, { method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    request.pipe(passed);
    response.on('close', () => passed.destroy());
    passed.on('error', () => response.destroy());
  });
  await new Promise((done) => { proxy.listen(0, '127.0.0.1', done); });
  return proxy;
}

test('the dashboard works behind a proxy that serves the server below a path', async () => {
  const proxy = await proxyBelowPath(open);
  try {
    // The root leads to the page.
    const page = await openDashboard({ ...stage, url: `http://127.0.0.1:${proxy.address().port}/queue/` }, { plain: true });
    await shows(page, `${stage.tasks.length} tasks in total`);
    assert.match(page.url(), /\/queue\/ui\//);
    // An action.
    const { id } = stage.tasks.findLast((task) => task.status === 'completed');
    await visit(page, `#/tasks/${id}`);
    await page.getByRole('button', { name: 'Archive', exact: true }).click();
    await shows(page, 'archived', '.task-head .badge');
    assert.equal((await stage.stored(id)).status, 'archived');
    await page.getByRole('button', { name: 'Unarchive', exact: true }).click();
    await shows(page, 'completed', '.task-head .badge');
    // An event: another client changes the task.
    await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
    await listens(page);
    await open.api('POST', `/v1/tasks/${id}/archive`);
    await shows(page, 'archived', '.task-head .badge');
    await open.api('POST', `/v1/tasks/${id}/unarchive`);
    await closePage(page);
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});

test('lists, searches and pages', async () => {
  const page = await openServed(open, '#/tasks?tab=failed');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  const ids = async () => (await page.locator('.id-cell').allInnerTexts()).sort();
  const expected = (choose) => stage.tasks.filter(choose).map((task) => task.id).sort();
  assert.deepEqual(await ids(), expected((task) => task.status === 'failed'));
  await visit(page, `#/tasks?q=${encodeURIComponent('worker:worker-eu-2')}`);
  await until('the worker', async () => JSON.stringify(await ids()) === JSON.stringify(expected((task) => task.worker_id === 'worker-eu-2')));
  const { id } = stage.task({ status: 'failed' });
  await visit(page, `#/tasks?q=${id.slice(0, 7)}`);
  await until('the start of an id', async () => JSON.stringify(await ids()) === JSON.stringify([id]));
  await visit(page, '#/tasks');
  await page.locator('.tasks-table tbody tr').nth(49).waitFor();
  await page.getByRole('button', { name: 'Next page' }).click();
  await shows(page, 'Page 2');
  await closePage(page);
});

test('a task, its payloads and its versions', async () => {
  const page = await openServed(open, `#/tasks/${stage.task({ task_type: 'nightly_backup' }).id}/versions`);
  for (const text of ['2.1 GiB needed', 'Attempt 2', '5 stored']) await shows(page, text);
  await shows(page, '"failed"', '.diff');
  await visit(page, `#/tasks/${stage.task({ task_type: 'import_rows' }).id}`);
  await page.getByRole('button', { name: /^Load / }).click();
  await shows(page, '4,000 items');
  await visit(page, `#/tasks/${stage.task({ task_type: 'render_page' }).id}`);
  await shows(page, '123456789012345678901234567890.10', '.json');
  await closePage(page);
});

test('actions on tasks and queues', async () => {
  const failed = stage.task({ status: 'failed', task_type: 'charge_card' });
  const page = await openServed(open, `#/tasks/${failed.id}`);
  await page.getByRole('button', { name: 'Replay', exact: true }).click();
  await shows(page, 'due', '.task-head .badge');
  assert.equal((await stage.stored(failed.id)).status, 'pending');
  const waiting = stage.tasks.find((task) => task.task_type === 'send_digest');
  await visit(page, `#/tasks/${waiting.id}`);
  await shows(page, waiting.id, '.id-line');
  await page.getByRole('button', { name: 'Run now', exact: true }).click();
  await shows(page, 'due', '.task-head .badge');
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.locator('dialog input').fill('not today');
  await page.locator('dialog footer').getByRole('button', { name: 'Cancel' }).click();
  await shows(page, 'cancelled', '.task-head .badge');
  assert.equal((await stage.stored(waiting.id)).last_error, 'not today');
  const done = stage.task({ status: 'completed' });
  await visit(page, `#/tasks/${done.id}`);
  await shows(page, done.id, '.id-line');
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  await fetch(`${open.url}/v1/tasks/${done.id}/archive`, { method: 'POST' });
  // Either the page has heard of it, and the button is gone, or the button shows why it came too late.
  const archive = page.getByRole('button', { name: 'Archive', exact: true });
  await Promise.race([archive.click({ timeout: 2000 }).catch(() => undefined), shows(page, 'archived', '.task-head .badge')]);
  await shows(page, 'archived', '.task-head .badge');
  await page.getByRole('button', { name: 'Duplicate…' }).click();
  await page.locator('dialog textarea').fill('{"n": 1.10}');
  await page.locator('dialog footer').getByRole('button', { name: 'Submit' }).click();
  await shows(page, '1.10', '.json');
  await visit(page, '#/queues');
  const row = page.locator('tr').filter({ hasText: 'billing' });
  await row.getByRole('button', { name: 'Pause' }).click();
  await page.getByLabel('Reason (optional)').fill('the provider is down');
  await page.locator('dialog footer').getByRole('button', { name: 'Pause' }).click();
  await row.getByRole('button', { name: 'Resume' }).waitFor();
  for (const text of ['by dashboard', 'the provider is down']) assert.ok((await row.textContent()).includes(text), text);
  await page.getByRole('button', { name: 'Pause a type…' }).click();
  await page.getByLabel('Type', { exact: true }).fill('sync_crm');
  await page.locator('dialog footer').getByRole('button', { name: 'Pause' }).click();
  const paused = page.getByRole('region', { name: 'Paused types' });
  await paused.getByRole('button', { name: 'Resume' }).click();
  await paused.waitFor({ state: 'detached' });
  await closePage(page);
});

test('changes made through the server appear at once', async () => {
  const page = await openServed(open, '#/tasks?q=type:just_now');
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  await listens(page);
  await shows(page, 'No task matches');
  await fetch(`${open.url}/v1/tasks`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"task_type": "just_now"}' });
  await shows(page, 'just_now', '.tasks-table');
  await closePage(page);
});

test('a server that is no node shows no nodes', async () => {
  const page = await openServed(open, '#/workers');
  await shows(page, 'worker-eu-2');
  assert.equal(await page.getByRole('region', { name: 'Nodes of the cluster' }).count(), 0);
  assert.ok(!page.requests.some(({ url }) => url.endsWith('/v1/cluster')));
  await closePage(page);
});

test('a server with tokens requires one, and a read token gives a read-only session', async () => {
  const { stdout } = await promisify(execFile)(await programs.qo(), ['token', 'create', '--name', 'reader', '--scope', 'read'], { env: environment() });
  await until('the server asks for a token', async () => (await fetch(`${open.url}/v1/stats`)).status === 401);
  const page = await openServed(open);
  await shows(page, 'Connect to a queue');
  assert.equal(await page.locator('input[name=url]').inputValue(), open.url);
  await screenshot(page, 'server-connect');
  await page.locator('input[name=token]').fill('qo_wrong');
  await page.getByRole('button', { name: 'Connect' }).click();
  await shows(page, 'Enter a valid token', '.problem');
  await page.locator('input[name=token]').fill(stdout.trim());
  await page.getByRole('button', { name: 'Connect' }).click();
  await shows(page, 'Throughput');
  await visit(page, `#/tasks/${stage.task({ status: 'failed' }).id}`);
  await shows(page, 'Read-only');
  await closePage(page);
  // The same below a path.
  const proxy = await proxyBelowPath(open);
  try {
    const base = `http://127.0.0.1:${proxy.address().port}/queue`;
    const below = await openDashboard({ ...stage, url: `${base}/ui/#/workers` }, { plain: true });
    await shows(below, 'Connect to a queue');
    assert.equal(await below.locator('input[name=url]').inputValue(), base);
    await below.locator('input[name=token]').fill(stdout.trim());
    await below.getByRole('button', { name: 'Connect' }).click();
    await shows(below, 'worker-eu-2', '#main');
    assert.ok(below.requests.every(({ url }) => url.startsWith(base)), 'every request goes through the proxy');
    await closePage(below);
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});

test('the page in a bucket shows a server that allows its origin', async () => {
  const { stdout } = await promisify(execFile)(await programs.qo(), ['token', 'create', '--name', 'page', '--scope', 'read'], { env: environment() });
  const origin = new URL(stage.url).origin;
  const allowing = await serveQo({ store: `s3://${stage.bucket}`, env: environment(), args: ['--no-monitor', '--allow-origin', origin] });
  const page = await openDashboard(stage, { plain: true });
  await shows(page, 'Connect to a queue');
  const connect = async (url) => {
    await page.getByText('qo server', { exact: true }).click();
    await page.locator('input[name=url]').fill(url);
    await page.locator('input[name=token]').fill(stdout.trim());
    await page.getByRole('button', { name: 'Connect' }).click();
  };
  // This one does not name the origin, so the browser does not let the page read its responses.
  await connect(open.url);
  await page.locator('.problem').first().waitFor();
  assert.ok(page.errors.splice(0).every((error) => /CORS/.test(error)));
  await connect(allowing.url);
  await shows(page, 'Throughput');
  await visit(page, `#/tasks/${stage.task({ status: 'completed' }).id}`);
  await shows(page, 'Read-only');
  assert.ok(page.url().startsWith(origin));
  await closePage(page);
  allowing.stop();
});

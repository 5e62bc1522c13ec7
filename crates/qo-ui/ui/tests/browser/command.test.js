// `qo ui deploy` and `qo ui link`.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { TIMEOUT_MS, shows } from '../support/browser.js';
import { programs } from '../support/programs.js';
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

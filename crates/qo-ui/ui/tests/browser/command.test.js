// The command puts the dashboard into a bucket and makes links that open it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { PATIENCE_MS, shows } from '../support/browser.js';
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
  return run(await programs.qo(), ['--store', `s3://${bucket}/some/place`, ...words], {
    env: { PATH: process.env.PATH, HOME: '/nonexistent', S3_ENDPOINT: stage.s3.endpoint, S3_REGION: 'us-east-1', AWS_ACCESS_KEY_ID: stage.s3.accessKey, AWS_SECRET_ACCESS_KEY: stage.s3.secretKey },
  });
}

test('it is deployed once, readable by everybody, and opened by a link', async () => {
  const { stdout } = await qo('ui', 'deploy', '--public', '--json');
  const report = JSON.parse(stdout);
  assert.deepEqual([report.written, report.public], [report.files, true]);
  assert.equal(report.url, `${stage.s3.endpoint}/${bucket}/some/place/ui/index.html`);
  const again = JSON.parse((await qo('ui', 'deploy', '--json')).stdout);
  assert.equal(again.written, 0, 'a second time writes nothing');
  const answer = await fetch(report.url);
  assert.deepEqual([answer.status, answer.headers.get('content-type'), answer.headers.get('cache-control')], [200, 'text/html; charset=utf-8', 'no-cache']);
  assert.equal((await fetch(`${stage.s3.endpoint}/${bucket}/some/place/meta/signal.json`)).status, 403, 'and nothing else is readable');

  await qo('submit', '--type', 'greet', '--input', '{"name": "Ada"}');
  await assert.rejects(qo('ui', 'link'), /do not end by themselves/, 'long-lived keys are not handed over by accident');
  const link = await qo('ui', 'link', '--allow-long-lived', '--read-only', '--go', 'tasks');
  assert.match(link.stderr, /keys that do not end by themselves/);
  const page = await (await stage.browser.newContext()).newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(link.stdout.trim());
  await shows(page, 'greet', '.tasks-table');
  assert.equal(await page.locator('.selection').count(), 0, 'it only looks');
  await page.context().close();
});

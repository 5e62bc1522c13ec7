// Encrypted tasks, on a bucket and on a server: neither has the key, so the pages name the key instead of showing the content.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';

import { checkAccess, closePage, screenshot, shows, visit } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { useSources } from '../support/sources.js';

const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), 'qo-ui-keys-'));
after(() => rmSync(folder, { recursive: true, force: true }));
let done;
let failed;
const stage = useSources('sealed', { versioned: true, objects: [], prepare });

/** Submits and runs tasks with a key that the server does not get. */
async function prepare({ env }) {
  const keys = join(folder, 'qo.keys');
  const program = await programs.qo();
  const qo = async (...words) => (await run(program, words, { env: { ...env, QO_ENCRYPTION_KEY_FILE: keys } })).stdout.trim();
  await run(program, ['key', 'generate', '--id', 'team-2026', '--out', keys], { env });
  done = await qo('submit', '--type', 'greet', '--input', '{"name": "Ada Lovelace"}');
  failed = await qo('submit', '--type', 'fail', '--input', '"Ada Lovelace"', '--retries', '0');
  await qo('worker', '--exec', 'greet=cat', '--exec', 'fail=sh -c "echo no such person: Ada Lovelace >&2; exit 1"', '--exit-when-idle', '1s');
  assert.equal(await qo('wait', done), '{"name": "Ada Lovelace"}', 'the command has the key');
}

const LABEL = 'encrypted with key team-2026';
const panel = (page, title) => page.locator('section').filter({ has: page.getByRole('heading', { name: title, exact: true }) });

for (const [kind, open] of Object.entries(stage.SOURCES)) {
  test(`encrypted inputs, outputs, errors and logs are named as such on a ${kind}`, async () => {
    const page = await open(`tasks/${done}`);
    await shows(page, LABEL, '#main');
    for (const title of ['Input', 'Output']) assert.match(await panel(page, title).innerText(), new RegExp(LABEL), title);
    assert.equal(await page.getByRole('button', { name: 'Duplicate…' }).count(), 0, 'a copy could not be decrypted');
    await checkAccess(page, `an encrypted task on a ${kind}`);
    await screenshot(page, `encrypted-${kind}`, { fullPage: true });
    await visit(page, `#/tasks/${failed}`);
    await page.locator('.error-block').filter({ hasText: LABEL }).waitFor();
    for (const title of ['Error', 'Logs']) assert.match(await panel(page, title).innerText(), new RegExp(LABEL), title);
    assert.equal(await page.getByRole('button', { name: 'Edit and retry…' }).count(), 0);
    assert.equal(await page.getByRole('button', { name: 'Replay', exact: true }).count(), 1, 'it can run again as it is');
    for (const hash of [`tasks/${failed}`, `tasks/${failed}/versions`, 'tasks?tab=failed', 'errors', 'overview']) {
      await visit(page, `#/${hash}`);
      await page.locator('main:not(.loading)').waitFor();
      await shows(page, hash === 'overview' ? 'Dead letters' : LABEL, '#main');
      assert.doesNotMatch(await page.locator('body').innerText(), /Lovelace|qo-encrypted:/, `${hash} shows neither the content nor the stored form`);
    }
    await closePage(page);
  });
}

// A session that may read less than the page asks for, such as one of a link that an older `qo ui link` made.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkAccess, closePage, openDashboard, screenshot, shows, visit } from '../support/browser.js';
import { useSources } from '../support/sources.js';

const SECRET = `whsec_${'A'.repeat(43)}=`;
const stage = useSources('link', { versioned: false, objects: [] });
const qo = (...words) => stage.qo(...words);
const submit = (...words) => qo('submit', '--input', '1', ...words);
const DENIED = { status: 403, contentType: 'application/xml', body: '<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>' };

/** Opens the page in a browser that gets 403 for requests for the keys that match. Returns the page and the keys that were refused. */
async function openDenied(hash, isDenied) {
  const refused = [];
  const browser = {
    async newContext(options) {
      const context = await stage.browser.newContext(options);
      await context.route((url) => url.pathname.startsWith(`/${stage.bucket}/`), (route) => {
        const key = decodeURIComponent(new URL(route.request().url()).pathname.slice(stage.bucket.length + 2));
        if (!key || !isDenied(key)) return route.continue();
        refused.push(key);
        return route.fulfill(DENIED);
      });
      return context;
    },
  };
  return { page: await openDashboard({ ...stage, browser }, { go: hash }), refused };
}

test('a task is shown by a session that may read neither its line, nor its limits, nor the pauses', async () => {
  const words = ['--type', 'charge', '--ordering-key', 'account-1', '--limit-key', 'stripe'];
  await qo('limit', 'set', 'hidden', '--key', 'stripe', '--concurrent', '3');
  await submit(...words);
  const id = await submit(...words);
  await qo('pause', 'default', '--reason', 'a secret reason');
  try {
    const { page, refused } = await openDenied(`tasks/${id}`, (key) => /^(order\/|limits\/|meta\/queues\.json$)/.test(key));
    await shows(page, 'account-1', '#main');
    await shows(page, 'stripe', '#main');
    assert.equal(await page.locator('.problem').count(), 0);
    assert.deepEqual([...new Set(refused.map((key) => key.split('/')[0]))].sort(), ['limits', 'meta', 'order']);
    await visit(page, '#/queues');
    await shows(page, 'pauses: not visible to this session', '#main');
    await shows(page, 'hidden', '#main');
    assert.equal(await page.locator('.problem').count(), 0);
    const row = page.locator('.queues-table tbody tr').filter({ hasText: 'default' });
    assert.ok(!(await row.locator('.state-cell').innerText()).includes('open'), 'nobody knows whether the queue is paused');
    await checkAccess(page, 'queues with hidden pauses');
    await screenshot(page, 'pauses-hidden');
    await closePage(page);
  } finally {
    await qo('resume', 'default');
  }
});

test('a limit that may not be read does not hide another one that a task waits for', async () => {
  await qo('limit', 'set', 'aaa-hidden', '--type', 'import', '--concurrent', '3');
  await qo('limit', 'set', 'aab-hidden', '--type', 'import', '--concurrent', '4');
  await qo('limit', 'set', 'hourly', '--type', 'import', '--starts', '1/1h');
  const ids = [await submit('--type', 'import'), await submit('--type', 'import')];
  await qo('worker', '--exec', 'import=cat', '--exit-when-idle', '1s');
  const statuses = await Promise.all(ids.map(async (id) => JSON.parse(await qo('status', id, '--json')).status));
  const waiting = ids[statuses.indexOf('pending')];
  const { page, refused } = await openDenied(`tasks/${waiting}`, (key) => key === 'limits/aaa-hidden.json' || key === 'meta/settings/limits/aab-hidden.json');
  await shows(page, 'limit hourly: 1 of 1 started', '#main');
  assert.deepEqual([...new Set(refused)].sort(), ['limits/aaa-hidden.json', 'meta/settings/limits/aab-hidden.json']);
  await closePage(page);
});

test('webhooks that may not be read are shown by name, without their URLs and secrets', async () => {
  const body = { url: 'https://example.org/hook', events: ['failed'], queues: ['mail'], secret: SECRET, created_at: '2026-01-01T00:00:00.000Z' };
  const document = { revision: 1, op_id: crypto.randomUUID(), updated_at: '2026-01-01T00:00:00.000Z', body };
  await stage.s3.put(stage.bucket, 'meta/settings/webhooks/billing.json', JSON.stringify(document));
  const { page, refused } = await openDenied('queues', (key) => key.startsWith('meta/settings/webhooks/'));
  const section = page.getByRole('region', { name: 'Webhooks' });
  await shows(page, 'only names: this session may not read them', 'section');
  assert.equal(await section.locator('tbody th').innerText(), 'billing');
  assert.ok(refused.includes('meta/settings/webhooks/billing.json'));
  assert.equal(await page.locator('.problem').count(), 0);
  await checkAccess(page, 'queues with hidden webhooks');
  await screenshot(page, 'webhooks-hidden');
  await closePage(page);
});

test('a session that may not write payloads says which inputs it can submit', async () => {
  const { page, refused } = await openDenied('tasks', (key) => key.startsWith('data/'));
  await page.getByRole('button', { name: 'Submit task…' }).click();
  const dialog = page.locator('dialog');
  await dialog.getByLabel('Type', { exact: true }).fill('upload');
  await dialog.getByLabel('Input').fill(JSON.stringify('x'.repeat(64 * 1024)));
  await dialog.locator('footer').getByRole('button', { name: 'Submit' }).click();
  await shows(page, 'cannot store inputs above 64 KiB, and nothing was submitted', 'body');
  await shows(page, 'qo submit --type upload --input', 'body');
  await screenshot(page, 'submit-too-large');
  assert.ok(refused.every((key) => key.startsWith('data/')) && refused.length > 0);
  assert.equal(await qo('list', '--type', 'upload', '--json'), '');
  await dialog.getByLabel('Input').fill(JSON.stringify('x'.repeat(64 * 1024 - 2)));
  await dialog.locator('footer').getByRole('button', { name: 'Submit' }).click();
  await page.waitForFunction(() => /tasks\/[0-9a-f-]{36}/.test(location.hash));
  assert.notEqual(await qo('list', '--type', 'upload', '--json'), '', 'the list would show such a task');
  await closePage(page);
});

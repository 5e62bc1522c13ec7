// Webhooks: added, tested and removed on a server, and shown on a bucket.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';

import { checkAccess, closePage, noDialog, openDashboard, screenshot, shows, until } from '../support/browser.js';
import { serveQo } from '../support/serve.js';
import { setUp } from '../support/setup.js';

const SECRET = `whsec_${'A'.repeat(43)}=`;
let stage;
let server;
let receiver;
const received = [];
/** What was received, each message once: a server may deliver it again. */
const messages = () => [...new Map(received.map((one) => [one.headers['webhook-id'], one])).values()];
before(async () => {
  const body = { url: 'https://example.org/hook', events: ['failed'], queues: ['mail'], secret: SECRET, created_at: '2026-01-01T00:00:00.000Z' };
  const document = { revision: 1, op_id: crypto.randomUUID(), updated_at: '2026-01-01T00:00:00.000Z', body };
  stage = await setUp('webhooks', { versioned: false, objects: [{ key: 'meta/settings/webhooks/billing.json', body: JSON.stringify(document) }] });
  server = await serveQo({ store: 'memory:?engine=slate', args: ['--webhooks', '--allow-private-addresses'] });
  receiver = createServer((request, response) => {
    let text = '';
    request.on('data', (part) => { text += part; });
    request.on('end', () => {
      received.push({ headers: request.headers, text });
      response.writeHead(204).end();
    });
  });
  await new Promise((done) => { receiver.listen(0, '127.0.0.1', done); });
});
after(async () => {
  receiver?.close();
  server?.stop();
  await stage?.close();
});

/** Whether a notification has the signature of its secret. */
function isSigned(secret, { headers, text }) {
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${text}`;
  return headers['webhook-signature'] === `v1,${createHmac('sha256', key).update(signed).digest('base64')}`;
}

test('a webhook is added, tested and removed on a server, and its secret is shown once', async () => {
  const page = await openDashboard({ ...stage, url: `${server.url}/ui/#/queues` }, { plain: true });
  await page.getByRole('button', { name: 'Add a webhook…' }).click();
  await page.locator('#webhook-name').fill('a/b');
  await page.locator('#webhook-url').fill('https://example.org/hook');
  await page.locator('dialog button[type=submit]').click();
  await page.locator('dialog .problem').waitFor();
  await page.locator('#webhook-name').fill('billing');
  await page.locator('#webhook-url').fill(`http://127.0.0.1:${receiver.address().port}/hook`);
  await page.getByRole('checkbox', { name: 'cancelled' }).check();
  await checkAccess(page, 'the form of a webhook');
  await screenshot(page, 'webhook-form');
  await page.locator('dialog button[type=submit]').click();
  const secret = await page.locator('dialog .secret code').innerText();
  assert.match(secret, /^whsec_/);
  await page.locator('dialog footer').getByRole('button', { name: 'Close' }).click();
  await noDialog(page);
  await shows(page, 'completed, failed, cancelled', '#main');
  assert.ok(!(await page.content()).includes(secret), 'the secret is gone');
  await checkAccess(page, 'queues with webhooks');
  await screenshot(page, 'webhooks');

  await page.getByRole('button', { name: 'Test', exact: true }).click();
  await until('the test arrives', () => messages().length > 0);
  const [id] = await server.submit([{ task_type: 't' }]);
  await server.api('POST', `/v1/tasks/${id}/cancel`);
  await until('the notification arrives', () => messages().length > 1);
  const notifications = messages().map((one) => ({ ...JSON.parse(one.text), signed: isSigned(secret, one) }));
  assert.deepEqual(notifications.map(({ type, signed }) => [type, signed]), [['webhook.test', true], ['task.cancelled', true]]);
  assert.equal(notifications[1].data.id, id);

  await page.locator('tr', { hasText: 'billing' }).getByRole('button', { name: 'Remove' }).click();
  await page.locator('dialog footer button').last().click();
  await shows(page, 'nobody is notified', '#main');
  await closePage(page);
});

test('a bucket shows its webhooks without their secrets', async () => {
  const page = await openDashboard(stage, { go: 'queues' });
  await shows(page, 'https://example.org/hook', '#main');
  await shows(page, 'queue mail', '#main');
  assert.ok(!(await page.content()).includes('whsec_'), 'the page shows no secret');
  assert.equal(await page.getByRole('button', { name: 'Add a webhook…' }).count(), 0);
  await closePage(page);
});

// What operators do on a server: lists with the newest first, the history of who acted, and the reference of the API.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { checkAccess, closePage, openDashboard, screenshot, shows, until } from '../support/browser.js';
import { programs } from '../support/programs.js';
import { serveQo } from '../support/serve.js';
import { useServer } from '../support/sources.js';
import { SCREENSHOTS } from '../support/stage.js';

const run = promisify(execFile);
const stage = useServer();

test('the page of tasks shows the newest first, also among thousands of others', async () => {
  const { server } = stage;
  await server.submit(Array.from({ length: 1500 }, () => ({ task_type: 'old', max_retries: 0 })));
  await server.work(300, () => ({ fail: { error: 'old failure', kind: 'permanent' } }), { types: ['old'] });
  await new Promise((done) => setTimeout(done, 20));
  const [newest] = await server.submit([{ task_type: 'fresh', max_retries: 0 }]);
  await server.work(1, () => ({ fail: { error: 'fresh failure', kind: 'permanent' } }), { types: ['fresh'] });
  for (const hash of ['#/tasks', '#/tasks?tab=failed']) {
    const page = await stage.open(hash);
    const first = page.locator('.tasks-table tbody tr').first();
    await first.waitFor();
    assert.equal(await first.locator('.id-cell').innerText(), newest, hash);
    await closePage(page);
  }
  const page = await stage.open('#/overview');
  await shows(page, 'fresh failure', '.letters tbody tr:first-child');
  await closePage(page);
});

test('the history of a task names who acted', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'qo-audit-'));
  const env = { PATH: process.env.PATH, HOME: directory, QO_STORE: `sqlite:${directory}/queue.db` };
  const qo = async (...words) => (await run(await programs.qo(), words, { env: { ...env, QO_ACTOR: 'ada@laptop' } })).stdout.trim();
  const { token } = JSON.parse(await qo('--json', 'token', 'create', '--name', 'night shift', '--scope', 'admin'));
  const id = await qo('submit', '--type', 'mail');
  await qo('cancel', id, '--reason', 'not needed');
  const guarded = await serveQo({ store: env.QO_STORE });
  const page = await openDashboard({ ...stage, url: `${guarded.url}/ui/#/tasks/${id}` }, { plain: true });
  await page.locator('input[type=password]').fill(token);
  await page.getByRole('button', { name: 'Connect' }).click();
  await shows(page, id, '.id-line');
  await shows(page, 'by ada@laptop', '.timeline');
  await page.getByRole('button', { name: 'Replay', exact: true }).click();
  await shows(page, 'by token night shift: dashboard', '.timeline');
  await checkAccess(page, 'a task with authors');
  await screenshot(page, 'server-audit');
  await closePage(page);
  const history = await qo('history', id);
  assert.match(history, /BY/);
  assert.match(history, /token night shift: dashboard/);
  guarded.stop();
  rmSync(directory, { recursive: true, force: true });
});

test('the reference of the API can be read in light and dark, and on a phone', async () => {
  for (const colorScheme of ['light', 'dark']) {
    for (const width of [1280, 375]) {
      const context = await stage.browser.newContext({ colorScheme, viewport: { width, height: 800 } });
      const page = await context.newPage();
      await page.goto(`${stage.server.url}/docs`);
      await until('the routes are shown', async () => (await page.locator('article').count()) > 20);
      await checkAccess(page, `/docs, ${colorScheme}, ${width}`);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(overflow <= 0, `${width} px, ${colorScheme}: ${overflow} px too wide`);
      await page.screenshot({ path: join(SCREENSHOTS, `docs-${width}-${colorScheme}.png`) });
      await context.close();
    }
  }
});

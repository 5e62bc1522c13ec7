// The dashboard of a cluster.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { checkAccess, closePage, openDashboard, screenshot, shows, until } from '../support/browser.js';
import { serveCluster } from '../support/serve.js';
import { startBrowser } from '../support/stage.js';

let browser;
let cluster;
before(async () => {
  cluster = await serveCluster();
  browser = await startBrowser();
});
after(async () => {
  cluster?.stop();
  await browser?.close();
});

test('the workers page shows the nodes', async () => {
  const page = await openDashboard({ browser, url: `${cluster.url}/ui/#/workers` }, { plain: true });
  await shows(page, 'Nodes of ui');
  const nodes = page.getByRole('region', { name: 'Nodes of the cluster' });
  await until('all nodes are up to date', async () => (await nodes.locator('tbody tr').allInnerTexts()).filter((row) => row.includes('0 entries')).length === 3);
  const rows = await nodes.locator('tbody tr').allInnerTexts();
  assert.deepEqual(rows.map((row) => (row.includes('leader') ? 'leader' : row.includes('follower') ? 'follower' : row)).sort(), ['follower', 'follower', 'leader']);
  assert.match(rows[cluster.leader - 1], /leader/);
  assert.match(await nodes.innerText(), /term \d+ · log [\d.]+ \w+ on node \d/);
  await checkAccess(page, 'the nodes of a cluster');
  await screenshot(page, 'cluster-nodes');
  await closePage(page);
});

// Every page on a bucket: content, request counts, keyboard use, accessibility and screenshots.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { checkAccess, closePage, openDashboard, quiet, screenshot, shows, until, visit } from '../support/browser.js';
import { story } from '../support/programs.js';
import { setUp } from '../support/setup.js';

let stage;
before(async () => { stage = await setUp('views'); });
after(async () => { await stage?.close(); });

const footer = (page) => page.locator('#requests').getAttribute('title');
const requestCounts = async (page) => Object.fromEntries((await footer(page)).split(', ').map((part) => part.split(' ').reverse()).map(([kind, many]) => [kind, Number(many)]));

test('the credentials of a link are removed from the address and stored nowhere', async () => {
  const page = await openDashboard(stage);
  await shows(page, 'Throughput');
  const address = await page.evaluate(() => location.href);
  assert.ok(!address.includes('connect=') && address.endsWith('#/overview'), address);
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  assert.ok(!kept.includes(stage.s3.secretKey) && !kept.includes(stage.s3.accessKey), 'credentials are in memory only');
  await closePage(page);
});

test('the overview shows exact counts of few tasks', async () => {
  const page = await openDashboard(stage);
  await shows(page, `${stage.tasks.length} tasks in total`);
  const count = (status) => stage.tasks.filter((task) => task.status === status).length;
  for (const status of ['running', 'completed', 'failed', 'cancelled', 'archived']) {
    assert.equal(await page.locator(`.tile.${status} .tile-value`).innerText(), String(count(status)), status);
  }
  const pending = await page.locator('.tile.due .tile-value, .tile.scheduled .tile-value').allInnerTexts();
  assert.equal(pending.reduce((sum, text) => sum + Number(text), 0), count('pending'));
  for (const text of ['Latency', 'Dead letters', 'Busiest types', 'oldest due', 'slots busy']) await shows(page, text);
  await checkAccess(page, 'overview');
  await screenshot(page, 'overview');
  await closePage(page);
});

test('a page of 50 tasks costs at most one LIST and 50 GETs, and less when refreshed', async () => {
  const page = await openDashboard(stage, { go: 'tasks' });
  await page.locator('.tasks-table tbody tr').nth(49).waitFor();
  assert.equal(await page.locator('.tasks-table tbody tr').count(), 50);
  // A refresh by itself would be counted, too.
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  // One LIST checked the connection.
  const first = await requestCounts(page);
  assert.ok(first.LIST - 1 <= 1 && first.GET <= 50, JSON.stringify(first));
  await page.getByRole('button', { name: 'Refresh' }).click();
  await until('the refresh is over', async () => (await requestCounts(page)).LIST === first.LIST + 1);
  assert.equal((await requestCounts(page)).GET, first.GET, 'unchanged tasks are not read again');
  assert.match(await page.locator('#requests').innerText(), /requests in this session · \$0\.000\d+/);
  await page.getByRole('button', { name: 'Next page' }).click();
  await shows(page, 'Page 2');
  await page.locator('.tasks-table tbody tr').nth(49).waitFor();
  const second = await requestCounts(page);
  assert.equal(second.LIST, first.LIST + 1, 'paging does not list again');
  await page.getByRole('button', { name: 'Previous page' }).click();
  await shows(page, 'Page 1');
  await screenshot(page, 'tasks');
  await checkAccess(page, 'tasks');
  await closePage(page);
});

test('tabs, search, shards and order select tasks', async () => {
  const page = await openDashboard(stage, { go: 'tasks' });
  const rows = page.locator('.tasks-table tbody tr');
  const ids = async () => (await page.locator('.id-cell').allInnerTexts()).sort();
  const expected = (choose) => stage.tasks.filter(choose).map((task) => task.id).sort();
  const sees = async (what, choose) => until(what, async () => JSON.stringify(await ids()) === JSON.stringify(expected(choose)));
  const now = Date.now();

  for (const [tab, choose] of [
    ['failed', (task) => task.status === 'failed'],
    ['running', (task) => task.status === 'running'],
    ['scheduled', (task) => task.status === 'pending' && Date.parse(task.available_at) > now],
    ['due', (task) => task.status === 'pending' && Date.parse(task.available_at) <= now],
    ['archived', (task) => task.status === 'archived'],
    ['cancelled', (task) => task.status === 'cancelled'],
  ]) {
    await page.getByRole('navigation', { name: 'Tasks by status' }).getByRole('link', { name: new RegExp(`^${tab}`, 'i') }).click();
    await sees(tab, choose);
  }
  await screenshot(page, 'tasks-cancelled');
  await visit(page, '#/tasks');
  const search = async (text) => {
    await page.locator('#search').fill(text);
    await page.locator('#search').press('Enter');
  };
  await search('type:charge_card tag:vip');
  await sees('the search', (task) => task.task_type === 'charge_card' && task.tags?.includes('vip'));
  await search('worker:worker-eu-2');
  await sees('the worker', (task) => task.worker_id === 'worker-eu-2');
  await search('status:failed,cancelled queue:default');
  await sees('two statuses', (task) => ['failed', 'cancelled'].includes(task.status) && task.queue === 'default');
  const { id } = stage.task({ status: 'failed' });
  await search(id.slice(0, 6));
  await sees('the start of an id', (task) => task.id.startsWith(id.slice(0, 6)));
  await search(id);
  await sees('an id', (task) => task.id === id);
  await search('colour:red');
  await shows(page, 'Unknown qualifier colour:');
  await search('type:nothing_like_it');
  await shows(page, 'No task matches');
  await screenshot(page, 'tasks-none');
  await visit(page, '#/tasks?shard=a');
  await sees('a shard', (task) => task.id[0] === 'a');
  await visit(page, '#/tasks?sort=type&tab=failed');
  await sees('the failed ones', (task) => task.status === 'failed');
  const types = await page.locator('.type-cell').evaluateAll((cells) => cells.map((cell) => cell.firstChild.textContent));
  assert.deepEqual(types, [...types].sort());
  assert.ok(await rows.count() > 0);
  await closePage(page);
});

test('the tabs show counts once the tasks are counted, and none for a search', async () => {
  const page = await openDashboard(stage, { go: 'tasks' });
  const shown = () => page.locator('.tabs a').evaluateAll((tabs) => Object.fromEntries(tabs.filter((tab) => tab.querySelector('.tab-count')).map((tab) => [tab.firstChild.textContent === 'All' ? 'all' : tab.childNodes[1].textContent, Number(tab.querySelector('.tab-count').textContent)])));
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.deepEqual(await shown(), {}, 'counting costs requests, so it is not done unasked');
  await page.getByRole('button', { name: 'Count', exact: true }).click();
  await page.locator('.tab-count').first().waitFor();
  const counts = await shown();
  const count = (status) => stage.tasks.filter((task) => task.status === status).length;
  assert.equal(counts.all, stage.tasks.length);
  for (const status of ['running', 'completed', 'failed', 'cancelled', 'archived']) assert.equal(counts[status], count(status), status);
  assert.equal(counts.due + counts.scheduled, count('pending'));
  await visit(page, '#/tasks?q=type:sync_crm');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.deepEqual(await shown(), {}, 'counts of all tasks would be wrong here');
  await closePage(page);
});

test('the task that changed last comes first', async () => {
  // The oldest failure fails again.
  const [oldest] = stage.tasks.filter((task) => task.status === 'failed' && task.task_type !== 'nightly_backup').sort((a, b) => Date.parse(a.updated_at) - Date.parse(b.updated_at));
  const now = new Date().toISOString();
  const again = { ...oldest, revision: oldest.revision + 1, updated_at: now, completed_at: now };
  await stage.s3.put(stage.bucket, `tasks/${oldest.id[0]}/${oldest.id}.json`, JSON.stringify(again));
  const page = await openDashboard(stage, { go: 'tasks' });
  for (const hash of ['#/tasks', '#/tasks?tab=failed']) {
    await visit(page, hash);
    const first = page.locator('.tasks-table tbody tr').first();
    await first.waitFor();
    assert.equal(await first.locator('.id-cell').innerText(), oldest.id, hash);
    await shows(page, 'most recently changed first', '.pager');
  }
  await visit(page, '#/overview');
  await shows(page, oldest.id.slice(0, 8), '.letters tbody tr:first-child');
  await closePage(page);
});

test('relative times update without a refresh', async () => {
  const page = await openDashboard(stage, { go: 'tasks?tab=running' });
  await shows(page, 'lease');
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  const { id } = stage.task({ status: 'running' });
  await visit(page, `#/tasks/${id}`);
  const time = page.locator('.facts time').first();
  const before = await time.innerText();
  await until('the time has changed', async () => (await time.innerText()) !== before || /min|h/.test(before));
  await closePage(page);
});

test('a task shows its attempts, errors, payloads and versions', async () => {
  const task = stage.task({ task_type: 'nightly_backup' });
  const page = await openDashboard(stage, { go: `tasks/${task.id}` });
  for (const text of ['2.1 GiB needed', 'Attempt 2', 'Attempt 1', 'Submitted', 'worker-eu-1', 'incremental']) await shows(page, text);
  await page.getByRole('button', { name: 'Copy the input' }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), '{"database":"orders","incremental":true}');
  await page.getByRole('button', { name: 'Show versions' }).click();
  await shows(page, '5 stored');
  await shows(page, '"failed"', '.diff');
  assert.match(await page.locator('.diff').innerText(), /status\s+"running"\s+"failed"/);
  const from = page.locator('input[name="version-a"]');
  await from.nth(4).check();
  await until('the oldest is compared', async () => /revision\s+1\s+5/.test(await page.locator('.diff').innerText()));
  const address = await page.evaluate(() => location.hash);
  assert.match(address, /\/versions\?a=.+&b=.+/, 'the comparison has a URL');
  await screenshot(page, 'task', { fullPage: true });
  await checkAccess(page, 'task');
  await closePage(page);
});

test('a running task shows its progress, and a large input is loaded on demand', async () => {
  const running = stage.task({ status: 'running' });
  const page = await openDashboard(stage, { go: `tasks/${running.id}` });
  await shows(page, running.worker_id);
  await shows(page, 'lease expires');
  await screenshot(page, 'task-running');
  const large = stage.task({ task_type: 'import_rows' });
  await visit(page, `#/tasks/${large.id}`);
  await shows(page, 'Stored in a separate object');
  await page.getByRole('button', { name: /^Load / }).click();
  await shows(page, '4,000 items');
  await page.getByRole('button', { name: /Show 200 more/ }).click();
  await page.locator('.json-index').filter({ hasText: /^300$/ }).click();
  await shows(page, 'customer 300', '.json');
  await screenshot(page, 'task-large');
  await closePage(page);
});

test('scripts and markup in a task are shown as text', async () => {
  const nasty = stage.task({ task_type: 'render_page' });
  const page = await openDashboard(stage, { go: `tasks/${nasty.id}` });
  await shows(page, '<script>window.qoHacked=1</script>', '.error-block');
  await shows(page, '<b>bold</b>', '.facts');
  await shows(page, '123456789012345678901234567890.10', '.json');
  await shows(page, '<img src=x onerror=', '.json');
  await screenshot(page, 'task-markup');
  for (const route of ['#/overview', '#/tasks?tab=failed', '#/tasks?q=' + encodeURIComponent('tag:"<b>bold</b>"')]) {
    await visit(page, route);
    await shows(page, nasty.id.slice(0, 8));
  }
  assert.equal(await page.locator('main img, main script').count(), 0);
  await closePage(page);
});

test('workers, queues and settings', async () => {
  // The workers may have become stale during the other tests, so their heartbeats are renewed.
  await stage.s3.putMany(stage.bucket, (await story()).filter(({ key }) => key.startsWith('workers/')));
  const page = await openDashboard(stage, { go: 'workers' });
  for (const text of ['worker-eu-1', 'ip-10-0-3-17', 'active', 'stale', 'dead', '1,204', '96 %', '88.0 MiB']) await shows(page, text);
  await checkAccess(page, 'workers');
  await screenshot(page, 'workers');
  await visit(page, '#/queues');
  for (const text of ['billing', 'paused', 'generate_report']) await shows(page, text);
  await checkAccess(page, 'queues');
  await screenshot(page, 'queues');
  await visit(page, '#/settings');
  await shows(page, stage.bucket);
  await checkAccess(page, 'settings');
  await screenshot(page, 'settings');
  await page.getByText('Dark', { exact: true }).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await checkAccess(page, 'settings in dark');
  for (const name of ['overview', 'tasks', 'queues', 'workers']) {
    await visit(page, `#/${name}`);
    await page.locator('main:not(.loading)').waitFor();
    await shows(page, name === 'overview' ? 'Throughput' : name === 'tasks' ? 'Page 1' : 'billing');
    await checkAccess(page, `${name} in dark`);
  }
  await closePage(page);
});

test('every page has an icon, and the names of all pages fit a phone', async () => {
  const page = await openDashboard(stage, { go: 'workers' });
  await shows(page, 'worker-eu-1');
  const shapes = await page.locator('.pages svg path').evaluateAll((paths) => paths.map((path) => path.getAttribute('d') ?? ''));
  assert.equal(shapes.length, 7);
  for (const shape of shapes) assert.match(shape, /^M\d/);
  const [quiet, stop] = await Promise.all(['Quiet', 'Stop'].map((name) => page.getByRole('button', { name, exact: true }).first().boundingBox()));
  assert.ok(stop.x - (quiet.x + quiet.width) >= 4, 'the buttons do not touch');
  await page.setViewportSize({ width: 390, height: 800 });
  assert.equal(await page.locator('.pages').evaluate((nav) => nav.scrollWidth - nav.clientWidth), 0, 'no name of a page is cut');
  await closePage(page);
});

test('keyboard shortcuts reach every page', async () => {
  const page = await openDashboard(stage);
  await shows(page, 'Throughput');
  for (const [keys, title] of [['gt', 'Tasks'], ['gw', 'Workers'], ['gq', 'Queues'], ['gs', 'Settings'], ['go', 'Overview']]) {
    // The second key must follow soon, which a busy machine may miss.
    await until(title, async () => {
      for (const key of keys) await page.keyboard.press(key);
      return (await page.title()).startsWith(title);
    });
  }
  await page.keyboard.press('?');
  await shows(page, 'Select or deselect task', 'dialog');
  await checkAccess(page, 'help');
  await screenshot(page, 'keys');
  await page.keyboard.press('Escape');
  await page.locator('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('/');
  await until('the search field has the focus', () => page.evaluate(() => document.activeElement.id === 'search'));
  await page.keyboard.press('Escape');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  await page.keyboard.press('x');
  await shows(page, '1 task selected');
  const id = await page.locator('.tasks-table tbody tr.at .id-cell').innerText();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), id, 'the focus follows');
  await screenshot(page, 'tasks-selected');
  await page.keyboard.press('Enter');
  await shows(page, id, '.id-line');
  await page.keyboard.press('u');
  await until('back at the list', async () => (await page.title()).startsWith('Tasks'));
  await closePage(page);
});

test('a hidden tab sends no requests', async () => {
  const page = await openDashboard(stage);
  await shows(page, 'Throughput');
  const hide = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await page.locator('select[aria-label="Refresh interval"]').selectOption('5');
  await hide(true);
  await quiet(page);
  const before = page.requests.length;
  await page.waitForTimeout(6000);
  assert.equal(page.requests.length, before, 'no request was sent');
  await hide(false);
  await until('it refreshes when it becomes visible', async () => page.requests.length > before);
  await closePage(page);
});

// The figures of a server: exact where the server counts, marked where they are estimated, and cheap.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { closePage, openDashboard, screenshot, shows, until, visit } from '../support/browser.js';
import { serveQo } from '../support/serve.js';
import { startBrowser } from '../support/stage.js';

const TASKS = 20_000;
const ARCHIVED = 150;
let browser;
let server;
let startedAt;
/** What the page must show, counted while the tasks are generated. */
const model = { pending: 0, completed: 0, failed: 0, cancelled: 0, running: 0, archived: 0, finished: 0, queues: {} };

before(async () => {
  browser = await startBrowser();
  startedAt = Date.now();
  server = await serveQo({ store: 'memory:?engine=slate' });
  const queues = ['alpha', 'beta', 'gamma'];
  await server.submit(Array.from({ length: TASKS }, (_, index) => ({
    task_type: `type_${index % 7}`, queue: queues[index % 3], max_retries: 0, ...(index % 4 === 3 ? { delay_ms: 3_600_000 } : {}),
  })));
  for (let index = 0; index < TASKS; index += 1) {
    const queue = (model.queues[queues[index % 3]] ??= { pending: 0, scheduled: 0 });
    queue.pending += 1;
    if (index % 4 === 3) queue.scheduled += 1;
  }
  model.pending = TASKS;
  // A part of alpha and beta is run: 2 % of it fails.
  for (const queue of ['alpha', 'beta']) {
    for (let round = 0; round < 4; round += 1) {
      const worked = await server.work(1000, (_, index) => (index % 50 === 0 ? { fail: { error: `no route to host 10.0.0.${index}`, kind: 'permanent' } } : { complete: {} }), { queues: [queue] });
      const failed = Math.ceil(worked / 50);
      model.failed += failed;
      model.completed += worked - failed;
      model.pending -= worked;
      model.finished += worked;
      model.queues[queue].pending -= worked;
    }
  }
  // Some are archived, which does not undo that they finished.
  const { tasks } = await server.api('GET', `/v1/tasks?status=completed&limit=${ARCHIVED}&fields=id`);
  await server.api('POST', '/v1/bulk', { operation: 'archive', filter: { ids: tasks.map(({ id }) => id) } });
  model.archived = ARCHIVED;
  model.completed -= ARCHIVED;
});
after(async () => {
  server?.stop();
  await browser?.close();
});

const openAt = (hash) => openDashboard({ browser, url: `${server.url}/ui/${hash}` }, { plain: true });
/** Waits until the dialog has found all tasks that match, which takes a while on a busy machine. */
const finds = (page, many) => until(`${many} tasks are found`, async () => (await page.locator('dialog').innerText()).includes(`${many.toLocaleString('en')} tasks match`));
/** The rate and the share of failures that the overview shows. */
const figures = async (page) => (await page.locator('.panel').filter({ hasText: 'Throughput' }).locator('.figure').allInnerTexts()).map((text) => text.replace(/\s+/g, ' '));
const plain = (text) => Number(text.replaceAll(',', ''));

test('the overview equals a model of 20,000 tasks', async () => {
  const page = await openAt('#/overview');
  await shows(page, '20,000 tasks in total');
  for (const status of ['running', 'completed', 'failed', 'cancelled', 'archived']) {
    assert.equal(plain(await page.locator(`.tile.${status} .tile-value`).innerText()), model[status], status);
  }
  const [rate, failures] = await figures(page);
  // All of them finished since the server started, which is counted as a minute at least. The last minute may have just begun.
  const minutes = Math.max((Date.now() - startedAt) / 60_000, 1) + 1;
  assert.match(rate, /^[\d,]+ finished per minute$/);
  const perMinute = plain(rate.split(' ')[0]);
  assert.ok(perMinute <= model.finished && perMinute >= Math.floor(model.finished / minutes), `${rate}, of ${model.finished} in less than ${minutes} minutes`);
  assert.equal(failures, `${((100 * model.failed) / model.finished).toFixed(1)} % failed`);
  await shows(page, `of ${model.finished.toLocaleString('en')} finished tasks`);
  await shows(page, `${model.pending.toLocaleString('en')} pending; due and scheduled tasks are told apart among 1,000 of them`);
  // Only a part of the pending tasks was listed, so these are lower bounds and say so.
  for (const tab of ['due', 'scheduled']) assert.match(await page.locator(`.tile.${tab} .tile-value`).innerText(), /^[\d,]+\+$/);
  const types = await page.locator('.shares tr').allInnerTexts();
  const total = types.reduce((sum, text) => sum + plain(/\t?\s*([\d,]+)(?: \(|$)/.exec(text.split('\t').at(-1))[1]), 0);
  assert.equal(total, TASKS, 'the types add up to all tasks');
  await screenshot(page, 'server-overview-many');
  await closePage(page);
});

test('queues above a thousand pending tasks have exact depths', async () => {
  const page = await openAt('#/queues');
  await shows(page, 'gamma');
  for (const [name, { pending, scheduled }] of Object.entries(model.queues)) {
    const row = page.locator('.queues-table tbody tr').filter({ hasText: name });
    assert.equal(plain(await row.locator('td[data-label=Pending]').innerText()), pending, name);
    const listed = await row.locator('td[data-label=Scheduled]').innerText();
    assert.ok(listed.endsWith('+') && plain(listed.slice(0, -1)) <= scheduled, `${name}: ${listed} of ${scheduled}`);
    const types = (await row.locator('.types-cell').innerText()).match(/type_\d [\d,]+/g);
    assert.ok(types.length === 3 && types.every((text) => !text.endsWith('+')), 'pending types are exact');
  }
  await screenshot(page, 'server-queues');
  await closePage(page);
});

test('tabs show exact counts, of a queue if the search names one, and none for other searches', async () => {
  const page = await openAt('#/tasks');
  const tab = (name) => page.getByRole('navigation', { name: 'Tasks by status' }).getByRole('link', { name: new RegExp(`^${name}`, 'i') });
  const shown = async (name) => (await tab(name).locator('.tab-count').count()) && plain(await tab(name).locator('.tab-count').innerText());
  await until('the counts are shown', async () => (await shown('all')) === TASKS);
  assert.deepEqual([await shown('completed'), await shown('failed')], [model.completed, model.failed]);
  await visit(page, '#/tasks?q=queue:gamma');
  await until('the counts of the queue', async () => (await shown('all')) === model.queues.gamma.pending);
  assert.equal(await shown('completed'), 0);
  await visit(page, '#/tasks?q=type:type_1');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  assert.equal(await page.locator('.tab-count').count(), 0, 'counts of all tasks would be wrong here');
  await closePage(page);
});

test('rate, failures and latency are counted by the server, over an hour, a day and a week', async () => {
  const small = await serveQo({ store: 'memory:?engine=slate' });
  await small.submit(Array.from({ length: 900 }, () => ({ task_type: 'small', max_retries: 0 })));
  await small.work(900, (_, index) => (index % 50 === 0 ? { fail: { error: 'no', kind: 'permanent' } } : { complete: {} }));
  const page = await openDashboard({ browser, url: `${small.url}/ui/#/overview` }, { plain: true });
  await shows(page, 'when this server began to serve');
  const throughput = page.locator('.panel').filter({ hasText: 'Throughput' });
  for (const [name, span] of [['1 h', '1 h'], ['24 h', '1 d'], ['7 d', '7 d']]) {
    await throughput.getByRole('link', { name, exact: true }).click();
    await shows(page, `last ${span}`);
    const [rate, failed] = await throughput.locator('.figure').allInnerTexts();
    // The server has run for less than some minutes.
    const perMinute = plain(/^[\d,.]+/.exec(rate)[0]);
    assert.ok(perMinute > 200 && perMinute <= 900, rate);
    assert.match(failed.replace(/\s+/g, ' '), /^2\.0 % failed$/);
    await shows(page, 'of 900 finished tasks');
  }
  await screenshot(page, 'server-overview-week');
  await closePage(page);
  small.stop();
});

test('a server in direct mode counts 3,000 tasks exactly, and marks rates and failures as estimates', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'qo-figures-'));
  const direct = await serveQo({ store: `sqlite:${join(folder, 'qo.db')}`, args: ['--no-monitor'] });
  try {
    // As many as one page lists: those submitted within the last hour.
    await direct.submit(Array.from({ length: 900 }, () => ({ task_type: 'early', max_retries: 0 })), 300);
    let finished = 0;
    let failed = 0;
    await until('600 tasks are finished', async () => {
      const worked = await direct.work(100, (_, index) => (index % 25 === 0 ? { fail: { error: 'no', kind: 'permanent' } } : { complete: {} }));
      finished += worked;
      failed += Math.ceil(worked / 25);
      return finished >= 600;
    });
    const page = await openDashboard({ browser, url: `${direct.url}/ui/#/overview` }, { plain: true });
    const tile = async (status) => plain(await page.locator(`.tile.${status} .tile-value`).innerText());
    await shows(page, '900 tasks in total');
    assert.deepEqual([await tile('completed'), await tile('failed'), await tile('due')], [finished - failed, failed, 900 - finished]);
    // Other processes may change tasks, too, so the server cannot count what it does itself.
    const [rate, failures] = await figures(page);
    const near = (text, value) => assert.ok(/^~[\d,.]+ /.test(text) && Math.abs(plain(/[\d,.]+/.exec(text)[0]) / value - 1) < 0.1, `${text}, not ${value}`);
    near(rate, finished / 60);
    near(failures, (100 * failed) / finished);
    await shows(page, 'Of the tasks that were submitted within this time.');
    // With more tasks than one page lists, the counts stay exact.
    await direct.submit(Array.from({ length: 2100 }, () => ({ task_type: 'late', delay_ms: 3_600_000 })), 300);
    await until('all are counted', async () => (await page.locator('#main').innerText()).includes('3,000 tasks in total'));
    assert.deepEqual([await tile('completed'), await tile('failed')], [finished - failed, failed]);
    await closePage(page);
  } finally {
    await direct.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

test('one refresh with 3,000 tasks of 40 KB takes less than 300 KB', async (t) => {
  const large = await serveQo({ store: 'memory:?engine=slate' });
  // Random digits do not compress well, so only lists without inputs can be this small.
  const input = () => Array.from({ length: 2500 }, () => Math.random().toString(36).slice(2, 18)).join('');
  await large.submit(Array.from({ length: 3000 }, (_, index) => ({ task_type: `large_${index % 5}`, input: input() })), 200);
  const page = await openDashboard({ browser, url: `${large.url}/ui/#/settings` }, { plain: true });
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  const session = await page.context().newCDPSession(page);
  await session.send('Network.enable');
  let received = 0;
  let receivedAt = 0;
  session.on('Network.loadingFinished', ({ encodedDataLength }) => {
    received += encodedDataLength;
    receivedAt = Date.now();
  });
  for (const [hash, text] of [['#/overview', '3,000 tasks in total'], ['#/tasks', 'Page 1'], ['#/queues', 'default'], ['#/errors', 'No failed tasks']]) {
    received = 0;
    await visit(page, hash);
    await shows(page, text);
    await until('the refresh is over', async () => received > 0 && Date.now() - receivedAt > 700);
    t.diagnostic(`${hash}: ${Math.round(received / 1000)} KB`);
    assert.ok(received > 0 && received < 300_000, `${hash}: ${received} bytes`);
  }
  await closePage(page);
  large.stop();
});

test('a column sorts the newest thousand tasks, and says that more match', async () => {
  const page = await openAt('#/tasks?q=queue:gamma');
  await page.locator('.tasks-table tbody tr').first().waitFor();
  await page.locator('.tasks-table thead').getByRole('button', { name: 'Type' }).click();
  await shows(page, 'the first by type among the newest 1,000; more match, and there is no index for this order', '.pager');
  const types = () => page.locator('.tasks-table .type-cell').allInnerTexts();
  // Fifty rows would show several types if only the page were sorted.
  assert.deepEqual(new Set(await types()), new Set(['type_0']));
  await page.locator('.tasks-table thead').getByRole('button', { name: 'Type' }).click();
  await until('the order is turned around', async () => new Set(await types()).has('type_6'));
  assert.deepEqual(new Set(await types()), new Set(['type_6']));
  assert.equal(await page.getByRole('button', { name: 'Next page' }).isDisabled(), true);
  // A bulk action still finds everything that matches.
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  await finds(page, model.queues.gamma.pending);
  await page.keyboard.press('Escape');
  await closePage(page);
});

test('a search has alternatives, prefixes and exclusions, and an action hits only what they leave', async () => {
  const page = await openAt(`#/tasks?q=${encodeURIComponent('type:type_1,type_2 -queue:alpha,bet* since:1h')}`);
  await page.locator('.tasks-table tbody tr').nth(49).waitFor();
  assert.deepEqual(new Set(await page.locator('.tasks-table .queue-cell').allInnerTexts()), new Set(['gamma']));
  assert.deepEqual(new Set(await page.locator('.tasks-table .type-cell').allInnerTexts()), new Set(['type_1', 'type_2']));
  await page.getByRole('button', { name: 'Cancel all…' }).click();
  const expected = Array.from({ length: TASKS }, (_, index) => index).filter((index) => index % 3 === 2 && [1, 2].includes(index % 7)).length;
  await finds(page, expected);
  await shows(page, 'not in queue alpha or bet…', 'dialog');
  await page.keyboard.press('Escape');
  await closePage(page);
});

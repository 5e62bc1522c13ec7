// Charts of one queue or one type on a server, against a model of the tasks that were submitted and run.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { checkAccess, closePage, screenshot, shows, until } from '../support/browser.js';
import { setUpServer } from '../support/setup.js';

/** How many tasks of each queue and type complete and fail. */
const MODEL = [
  { queue: 'mail', task_type: 'welcome', completed: 40, failed: 4 },
  { queue: 'mail', task_type: 'digest', completed: 25, failed: 0 },
  { queue: 'media', task_type: 'resize', completed: 12, failed: 3 },
  { queue: 'media', task_type: 'welcome', completed: 7, failed: 1 },
];
const EVERYTHING = {};
let stage;

before(async () => {
  stage = await setUpServer();
  const { server } = stage;
  for (const { queue, task_type, completed, failed } of MODEL) {
    await server.submit(Array.from({ length: completed + failed }, () => ({ queue, task_type, max_retries: 0 })));
    const worked = await server.work(completed + failed, (_, index) => (index < failed ? { fail: { error: 'no', kind: 'permanent' } } : { complete: {} }), { queues: [queue] });
    assert.equal(worked, completed + failed);
  }
});
after(() => stage?.close());

const wanted = ({ queue, type }) => MODEL.filter((one) => (!queue || one.queue === queue) && (!type || one.task_type === type));
const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
const panel = (page, title) => page.locator('.panel').filter({ has: page.getByRole('heading', { name: title, exact: true }) });

/** What the bars of the throughput chart add up to. */
async function charted(page) {
  const titles = await panel(page, 'Throughput').locator('.bar').evaluateAll((bars) => bars.map((bar) => bar.title));
  const total = (name) => titles.reduce((so, title) => so + Number(new RegExp(`([\\d,]+) ${name}`).exec(title)[1].replaceAll(',', '')), 0);
  return titles.length > 0 ? { completed: total('completed'), failed: total('failed') } : undefined;
}

/** The bars are as high as their numbers, also after an update in place. */
async function isDrawn(page) {
  const bars = await panel(page, 'Throughput').locator('.bar').evaluateAll((found) => found.map((bar) => ({
    title: bar.title, heights: Object.fromEntries(['completed', 'failed'].map((name) => [name, parseFloat(bar.querySelector(`.segment.${name}`)?.style.height ?? '0')])),
  })));
  const units = bars.flatMap(({ title, heights }) => Object.entries(heights).map(([name, height]) => [height, Number(new RegExp(`(\\d+) ${name}`).exec(title)[1])]));
  const drawn = units.filter(([height, many]) => height > 0 || many > 0).map(([height, many]) => height / many);
  assert.ok(drawn.length > 0 && drawn.every((unit) => Math.abs(unit - drawn[0]) < 0.01), JSON.stringify(drawn));
}

async function equalsModel(page, filter) {
  const rows = wanted(filter);
  const expected = { completed: sum(rows, 'completed'), failed: sum(rows, 'failed') };
  const total = expected.completed + expected.failed;
  await until(`the chart of ${JSON.stringify(filter)} equals the model`, async () => JSON.stringify(await charted(page)) === JSON.stringify(expected));
  await shows(page, `of ${total} finished tasks`);
  await isDrawn(page);
}

test('the chart of a queue, of a type, and of both equals the model, and the address keeps the choice', async () => {
  const page = await stage.open('#/overview');
  await equalsModel(page, EVERYTHING);
  const queue = page.getByLabel('Queue', { exact: true });
  const type = page.getByLabel('Type', { exact: true });
  assert.deepEqual(await queue.locator('option').allInnerTexts(), ['All queues', 'mail', 'media']);
  assert.deepEqual(await type.locator('option').allInnerTexts(), ['All types', 'digest', 'resize', 'welcome']);
  await queue.focus();
  await queue.selectOption('mail');
  await equalsModel(page, { queue: 'mail' });
  assert.equal(await queue.evaluate((element) => element === document.activeElement), true, 'the focus stays where it was');
  assert.deepEqual(await queue.locator('option').allInnerTexts(), ['All queues', 'mail', 'media'], 'the other queues can still be chosen');
  assert.deepEqual(await type.locator('option').allInnerTexts(), ['All types', 'digest', 'welcome'], 'only types of the queue');
  await type.selectOption('welcome');
  await equalsModel(page, { queue: 'mail', type: 'welcome' });
  assert.match(page.url(), /#\/overview\?queue=mail&type=welcome$/);
  await checkAccess(page, 'a chart of one queue and type');
  await screenshot(page, 'chart-of-a-queue');
  await panel(page, 'Throughput').getByRole('link', { name: '24 h', exact: true }).click();
  await shows(page, 'last 1 d');
  assert.match(page.url(), /period=day/);
  await equalsModel(page, { queue: 'mail', type: 'welcome' });
  await page.reload();
  await equalsModel(page, { queue: 'mail', type: 'welcome' });
  await queue.selectOption('');
  await equalsModel(page, { type: 'welcome' });
  await closePage(page);
});

test('latency over time shows the median and the 95th percentile of the chosen tasks', async () => {
  const page = await stage.open('#/overview?queue=media&type=resize');
  await equalsModel(page, { queue: 'media', type: 'resize' });
  const latency = panel(page, 'Latency over time');
  await latency.waitFor();
  const label = await latency.locator('figure').first().getAttribute('aria-label');
  assert.match(label, /most recently p50 .+, p95 .+, p99 /);
  const bars = await latency.locator('.percentile-chart').first().locator('.bar.percentiles').evaluateAll((found) => found.map((bar) => bar.title));
  const measured = bars.reduce((total, title) => total + Number(/of ([\d,]+)$/.exec(title)[1]), 0);
  assert.equal(measured, 15, 'only tasks of the chosen queue and type are measured');
  assert.ok(bars.every((title) => /p50 .+, p95 /.test(title)));
  assert.deepEqual(await latency.locator('.legend').innerText().then((text) => text.match(/p\d+/g)), ['p50', 'p95', 'p99']);
  await closePage(page);
});

test('a queue without tasks has an empty chart, and a name that cannot exist is ignored', async () => {
  const page = await stage.open('#/overview?queue=nobody');
  await shows(page, 'No task finished in the last 1 h');
  assert.equal(await page.getByLabel('Queue', { exact: true }).inputValue(), 'nobody');
  await page.getByLabel('Queue', { exact: true }).selectOption('');
  await equalsModel(page, EVERYTHING);
  const other = await stage.open('#/overview?queue=a%2Fb');
  await equalsModel(other, EVERYTHING);
  await closePage(other);
  await closePage(page);
});

test('the charts do not name a queue whose figures the server refuses', async () => {
  const page = await stage.open('#/overview');
  await equalsModel(page, EVERYTHING);
  let refused = 0;
  await page.route((url) => url.pathname.endsWith('/v1/activity') && url.searchParams.has('queue'), (route) => {
    refused += 1;
    return route.fulfill({ status: 403, contentType: 'application/problem+json', body: '{"title": "forbidden"}' });
  });
  await page.getByLabel('Queue', { exact: true }).selectOption('media');
  const types = () => page.getByLabel('Type', { exact: true }).locator('option').allInnerTexts();
  await until('the page shows what it got', async () => refused > 0 && JSON.stringify(await types()) === JSON.stringify(['All types', 'resize', 'welcome']));
  await equalsModel(page, EVERYTHING);
  assert.ok(!(await panel(page, 'Throughput').locator('.note').first().innerText()).includes('media'), 'these are the figures of all queues');
  await closePage(page);
});

test('a choice that has the focus stays what it is when other names appear before it', async () => {
  const page = await stage.open('#/overview?queue=media&type=resize');
  await equalsModel(page, { queue: 'media', type: 'resize' });
  const type = page.getByLabel('Type', { exact: true });
  await type.focus();
  await stage.server.submit([{ queue: 'media', task_type: 'archive', max_retries: 0 }]);
  assert.equal(await stage.server.work(1, () => ({ complete: {} }), { queues: ['media'] }), 1);
  await until('the new type can be chosen', async () => JSON.stringify(await type.locator('option').allInnerTexts()) === JSON.stringify(['All types', 'archive', 'resize', 'welcome']));
  assert.deepEqual([await type.inputValue(), await type.locator('option').evaluateAll((options) => options.map((option) => option.value))], ['resize', ['', 'archive', 'resize', 'welcome']]);
  assert.equal(await type.evaluate((element) => element === document.activeElement), true);
  await equalsModel(page, { queue: 'media', type: 'resize' });
  await closePage(page);
});

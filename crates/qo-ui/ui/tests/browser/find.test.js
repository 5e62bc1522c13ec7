// Finding and acting: errors by group, sorting, saved views, submit forms, times, and phones. On a bucket and on a server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { timeOfId } from '../../js/record/keys.js';
import { checkAccess, closePage, screenshot, shows, until, visit } from '../support/browser.js';
import { useSources } from '../support/sources.js';

const PHONE = { viewport: { width: 390, height: 800 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };
const stage = useSources('find', { versioned: false, store: 'memory:?engine=slate', fill });
const { SOURCES } = stage;

async function fill({ server }) {
  const tasks = Array.from({ length: 60 }, (_, index) => ({ task_type: index % 2 === 0 ? 'charge' : 'notify', queue: 'failing', max_retries: 0, input: { order: index } }));
  await server.submit(tasks.slice(0, 30));
  // The second half is submitted at another time than the first, for the searches for times.
  const firstHalfAt = Date.now();
  await until('the clock goes on', () => Date.now() > firstHalfAt);
  await server.submit(tasks.slice(30));
  await server.work(60, (task) => ({ fail: { error: task.task_type === 'charge' ? `card ${task.input.order} declined after ${task.input.order * 7} ms` : 'connection refused', kind: 'permanent' } }), { queues: ['failing'] });
}
const inDialog = (page, name) => page.locator('dialog footer').getByRole('button', { name }).click();
const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

// First, because later tests change the failed tasks.
for (const [name, open] of Object.entries(SOURCES)) {
  test(`a search has alternatives, exclusions, beginnings of names and times on a ${name}`, async () => {
    const page = await open('tasks');
    const list = async () => (name === 'bucket' ? Promise.all(stage.tasks.map(({ id }) => stage.stored(id))) : (await stage.server.api('GET', '/v1/tasks?limit=1000&status=pending,running,completed,failed,cancelled,archived')).tasks);
    const ids = async () => (await page.locator('.id-cell').allInnerTexts()).sort();
    const sees = async (search, choose) => {
      const before = page.requests.length;
      await page.locator('#search').fill(search);
      await page.locator('#search').press('Enter');
      const expected = (await list()).filter(choose).map((task) => task.id).sort();
      assert.ok(expected.length > 0 && expected.length <= 50, `${search}: ${expected.length} tasks fit on a page`);
      await until(search, async () => JSON.stringify(await ids()) === JSON.stringify(expected));
      const asked = page.requests.slice(before).some(({ url }) => new URL(url).searchParams.has('search'));
      assert.equal(asked, name === 'server', 'a server searches itself');
    };
    const [one, two] = name === 'bucket' ? ['charge_card', 'resize_image'] : ['charge', 'notify'];
    await page.locator('#search').waitFor();
    const first = (await list()).find((task) => task.task_type === two && task.status === 'failed').id.slice(0, 8);
    await sees(`type:${one} status:failed or id:${first} type:${two.slice(0, 4)}* status:failed -tag:none`, (task) => task.status === 'failed' && (task.task_type === one || (task.task_type === two && task.id.startsWith(first))));
    await sees(`type:${one.slice(0, 5)}* -status:completed,pending,cancelled,archived,running`, (task) => task.task_type === one && task.status === 'failed');
    await sees(`status:failed -queue:nothing -type:${two} since:3000d until:0s`, (task) => task.status === 'failed' && task.task_type !== two);
    await shows(page, `Failed tasks not of type ${two} not in queue nothing submitted since`, '.selection');
    // Times that exclude some of the tasks: that of one in the middle, which is not before its own time.
    const timeOf = (task) => Date.parse(task.created_at);
    const failed = (await list()).filter((task) => task.status === 'failed').sort((a, b) => timeOf(a) - timeOf(b));
    const { created_at: middle } = failed[failed.length / 2 | 0];
    const isBefore = (task) => timeOf(task) < Date.parse(middle);
    await sees(`status:failed -tag:none until:${middle}`, (task) => task.status === 'failed' && isBefore(task));
    await shows(page, `submitted before ${new Date(middle).toISOString()}`, '.selection');
    await sees(`status:failed -tag:none since:${middle}`, (task) => task.status === 'failed' && !isBefore(task));
    await sees(`type:${one} status:failed until:${middle} or type:${two} status:failed since:${middle}`, (task) => task.status === 'failed' && ((task.task_type === one && isBefore(task)) || (task.task_type === two && !isBefore(task))));
    if (name === 'bucket') {
      // Minutes are between these tasks, so it does not matter how long the searches take.
      const [older, younger] = failed.slice(failed.length / 2 - 1).map(timeOf);
      assert.ok(younger - older > 60_000, 'there is time between the tasks');
      const age = `${Math.round((Date.now() - (older + younger) / 2) / 1000)}s`;
      await sees(`status:failed since:${age}`, (task) => task.status === 'failed' && timeOf(task) >= younger);
      await sees(`status:failed until:${age}`, (task) => task.status === 'failed' && timeOf(task) <= older);
    }
    for (const wrong of ['type:a or', 'or', 'type:a status:failed or type:b']) {
      await page.locator('#search').fill(wrong);
      await page.locator('#search').press('Enter');
      await shows(page, 'No tasks are shown and no action is offered');
      assert.equal(await page.getByRole('button', { name: /all…$/ }).count(), 0, wrong);
    }
    await closePage(page);
  });

  test(`a text is found in errors and inputs on a ${name}`, async () => {
    const page = await open('tasks');
    const [inError, inInput] = name === 'bucket'
      ? [['2.1 gib needed', (task) => task.task_type === 'nightly_backup'], ['Incremental', (task) => task.task_type === 'nightly_backup']]
      : [['Declined after 28 ms', (task) => task.input.order === 4], [':41}', (task) => task.input.order === 41]];
    const all = name === 'bucket' ? stage.tasks : (await stage.server.api('GET', '/v1/tasks?limit=1000')).tasks;
    for (const [text, choose] of [inError, inInput]) {
      await page.locator('#search').fill(`text:"${text}"`);
      await page.locator('#search').press('Enter');
      const expected = all.filter(choose).map(({ id }) => id).sort();
      assert.ok(expected.length > 0, text);
      await until(text, async () => JSON.stringify((await page.locator('.id-cell').allInnerTexts()).sort()) === JSON.stringify(expected));
      await shows(page, `with "${text}" in the error or input`, '.selection');
      // Both have fewer tasks than are read for one page.
      await shows(page, `the search read ${all.length} tasks`, '.pager');
      assert.ok(!(await page.locator('.pager').innerText()).includes('not complete'));
    }
    await page.locator('#search').fill('text:nowhere_at_all');
    await page.locator('#search').press('Enter');
    await shows(page, 'No task matches');
    await shows(page, `the search read ${all.length} tasks`, '.pager');
    await screenshot(page, `search-cost-${name}`);
    await visit(page, `#/errors?q=${encodeURIComponent(`text:"${inError[0]}"`)}`);
    await shows(page, /the search read \d+ tasks/, '.page-head');
    await closePage(page);
  });
}

test('failures are grouped by error on a bucket', async () => {
  const failed = stage.tasks.filter((task) => task.status === 'failed');
  const page = await SOURCES.bucket('errors');
  await shows(page, `from all ${failed.length} failed tasks`);
  const counts = (await page.locator('.group-count').allInnerTexts()).map(Number);
  assert.equal(counts.reduce((sum, many) => sum + many, 0), failed.length, 'every failure is in one group');
  assert.deepEqual(counts, [...counts].sort((a, b) => b - a), 'the largest group is first');
  for (const text of ['first ', 'last ', 'for example']) await shows(page, text, '.group .note');
  await checkAccess(page, 'errors');
  await screenshot(page, 'errors');
  const first = page.locator('.group').first();
  const many = Number(await first.locator('.group-count').innerText());
  await first.getByRole('button', { name: 'Replay…' }).click();
  await shows(page, `the ${many} listed failed task`, 'dialog');
  await page.locator('dialog footer button').last().click();
  await shows(page, `Replayed ${many} task`, 'dialog');
  await inDialog(page, 'Close');
  await shows(page, `from all ${failed.length - many} failed tasks`);
  await closePage(page);
});

test('failures are grouped by error on a server, and a group is archived', async () => {
  const page = await SOURCES.server('errors');
  await shows(page, 'from all 60 failed tasks');
  assert.deepEqual((await page.locator('.group-error').allInnerTexts()).sort(), ['card ‹n› declined after ‹n› ms', 'connection refused']);
  assert.deepEqual(await page.locator('.group-count').allInnerTexts(), ['30', '30']);
  await page.locator('.group').filter({ hasText: 'connection refused' }).getByRole('button', { name: 'Archive…' }).click();
  await shows(page, 'with the error “connection refused”', 'dialog .filter-words');
  await inDialog(page, 'Archive 30 tasks');
  await shows(page, 'Archived 30 tasks', 'dialog');
  await inDialog(page, 'Close');
  await shows(page, 'from all 30 failed tasks');
  const { statuses } = (await stage.server.api('GET', '/v1/stats')).queues.failing;
  assert.deepEqual([statuses.failed, statuses.archived], [30, 30]);
  await closePage(page);
});

for (const [name, open] of Object.entries(SOURCES)) {
  test(`a column sorts the rows, and the address keeps the view, on a ${name}`, async () => {
    const filter = name === 'bucket' ? 'tab=failed' : 'q=queue%3Afailing';
    const page = await open(`tasks?${filter}`);
    const types = () => page.locator('.type-cell').evaluateAll((cells) => cells.map((cell) => cell.firstChild.textContent));
    await page.getByRole('button', { name: 'Type', exact: true }).click();
    await until('sorted', async () => {
      const shown = await types();
      return shown.length > 1 && JSON.stringify(shown) === JSON.stringify([...shown].sort());
    });
    assert.equal(await page.locator('th[aria-sort]').getAttribute('aria-sort'), 'ascending');
    await page.getByRole('button', { name: 'Type', exact: true }).click();
    await until('reversed', async () => (await page.locator('th[aria-sort=descending]').count()) === 1);
    assert.deepEqual(await types(), [...await types()].sort().reverse());
    const hash = await page.evaluate(() => location.hash);
    assert.ok(decodeURIComponent(hash).includes(decodeURIComponent(filter)), hash);
    assert.match(hash, /sort=type/);
    assert.match(hash, /dir=desc/);
    await page.getByRole('button', { name: 'Copy a link to this view' }).click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await page.evaluate(() => location.href));
    await checkAccess(page, `sorted tasks on a ${name}`);
    await closePage(page);
  });
}

for (const [name, open] of Object.entries(SOURCES)) {
  test(`filters and the page of the list survive a visit to a task on a ${name}`, async () => {
    // A server sorts all tasks that match, so only its unsorted list has a second page.
    const filter = name === 'bucket' ? 'tab=completed&sort=type' : 'q=queue:failing';
    const page = await open(`tasks?${filter}`);
    await page.getByRole('button', { name: 'Next page' }).click();
    await shows(page, 'Page 2');
    await page.locator('.tasks-table tbody tr .id-cell a').first().click();
    await page.locator('.id-line').waitFor();
    await page.locator('a.back').click();
    await shows(page, 'Page 2');
    assert.ok(decodeURIComponent(await page.evaluate(() => location.hash)).endsWith(filter));
    await page.locator('.tasks-table tbody tr .id-cell a').first().click();
    await page.locator('.id-line').waitFor();
    await page.keyboard.press('u');
    await shows(page, 'Page 2');
    await closePage(page);
  });
}

for (const [name, open] of Object.entries(SOURCES)) {
  test(`a task is submitted with the form on a ${name}`, async () => {
    const page = await open('tasks');
    // Pages that come over plain HTTP from another machine do not have it.
    if (name === 'server') await page.evaluate(() => { delete Crypto.prototype.randomUUID; });
    await page.getByRole('button', { name: 'Submit task…' }).click();
    await page.locator('dialog input[name=task_type]').fill('by_hand');
    await page.locator('dialog input[name=queue]').fill('manual');
    await page.locator('dialog input[name=tags]').fill('vip, from the form');
    await page.locator('dialog input[name=max_retries]').fill('7');
    await page.locator('dialog textarea').fill('{"n": 1.10}');
    // On a bucket nobody ranks a task in its group, so the form does not ask for one.
    assert.equal(await page.locator('dialog input[name=group]').count(), name === 'server' ? 1 : 0);
    if (name === 'server') await page.locator('dialog input[name=group]').fill('tenant-7');
    await checkAccess(page, 'the submit form');
    await screenshot(page, `submit-${name}`);
    await inDialog(page, 'Submit');
    await shows(page, 'by_hand', '.task-head');
    await shows(page, '1.10', '.json');
    const id = (await page.evaluate(() => location.hash)).split('/').at(-1);
    const task = name === 'bucket' ? await stage.stored(id) : await stage.server.api('GET', `/v1/tasks/${id}`);
    assert.deepEqual([task.queue, task.max_retries, task.tags], ['manual', 7, ['vip', 'from the form']]);
    assert.equal(task.fairness_group, name === 'server' ? 'tenant-7' : undefined);
    // In direct mode the id decides where lists show the task.
    assert.ok(Math.abs(timeOfId(id) - Date.parse(task.created_at)) < 60_000, `the time in ${id}`);
    if (name === 'server') {
      await shows(page, 'tenant-7', '.facts');
      await page.getByRole('button', { name: 'Duplicate…' }).click();
      assert.equal(await page.locator('dialog input[name=group]').inputValue(), 'tenant-7', 'a copy stays in the group');
      await inDialog(page, 'Cancel');
    }
    await closePage(page);
  });

  test(`a failed task is edited and retried on a ${name}`, async () => {
    const failed = name === 'bucket' ? stage.tasks.find((task) => task.status === 'failed' && task.task_type === 'resize_image') : (await stage.server.api('GET', '/v1/tasks?status=failed&limit=1')).tasks[0];
    const page = await open(`tasks/${failed.id}`);
    await page.getByRole('button', { name: 'Edit and retry…' }).click();
    await page.locator('dialog textarea').fill('{"fixed": true}');
    await inDialog(page, 'Submit');
    await shows(page, 'fixed', '.json');
    const id = (await page.evaluate(() => location.hash)).split('/').at(-1);
    const read = async (which) => (name === 'bucket' ? stage.stored(which) : stage.server.api('GET', `/v1/tasks/${which}`));
    assert.deepEqual([(await read(id)).status, (await read(failed.id)).status], ['pending', 'archived']);
    await closePage(page);
  });
}

for (const [name, open] of Object.entries(SOURCES)) {
  test(`a tap on a time shows the absolute time with its zone on a ${name}`, async () => {
    const page = await open('tasks?tab=failed', { ...PHONE, timezoneId: 'Asia/Kolkata' });
    const time = page.locator('.tasks-table time').first();
    assert.match(await time.innerText(), /ago$/);
    await time.tap();
    assert.match(await time.innerText(), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\+05:30$/);
    assert.match(await page.title(), /^Tasks/, 'the tap did not open the task');
    await time.tap();
    assert.match(await time.innerText(), /ago$/);
    await page.locator('.tasks-table tbody tr .id-cell a').first().tap();
    await shows(page, 'UTC+05:30', '.facts');
    await closePage(page);
  });
}

for (const [name, open] of Object.entries(SOURCES)) {
  test(`the age of the data is shown on a ${name}`, async () => {
    const page = await open('workers');
    await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
    await until('the age grows', async () => /^\d+ s old$/.test(await page.locator('#as-of').innerText()));
    await page.getByRole('button', { name: 'Refresh', exact: true }).click();
    // This is shown for two seconds only.
    await page.waitForFunction(() => document.getElementById('as-of').textContent === 'up to date');
    await closePage(page);
  });
}

for (const [name, open] of Object.entries(SOURCES)) {
  test(`every page fits a phone on a ${name}`, async () => {
    const failed = name === 'bucket' ? stage.tasks.find((task) => task.status === 'failed').id : (await stage.server.api('GET', '/v1/tasks?limit=1')).tasks[0].id;
    const page = await open('overview', PHONE);
    for (const [hash, selector] of [
      ['overview', '.tiles'], ['tasks', '.tasks-table'], ['tasks?tab=failed', '.tasks-table'], ['errors', '.group'],
      ['queues', '.queues-table'], ['workers', 'main:not(.loading) h1'], ['settings', '.choices'], [`tasks/${failed}`, '.timeline'],
    ]) {
      await visit(page, `#/${hash}`);
      await page.locator(selector).first().waitFor();
      assert.equal(await overflow(page), 0, `${hash} overflows`);
      for (const current of await page.locator('.pages [aria-current], .tabs [aria-current]').all()) {
        const { x, width } = await current.boundingBox();
        assert.ok(x >= 0 && x + width <= PHONE.viewport.width + 1, `the current tab of ${hash} is visible`);
      }
      // Nothing has to be scrolled sideways to read a failed task or a queue.
      for (const table of await page.locator('.tasks-table, .blocks').all()) {
        assert.ok(await table.evaluate((element) => element.scrollWidth <= element.parentElement.clientWidth), `the table of ${hash}`);
      }
      await screenshot(page, `phone-${name}-${hash.replaceAll(/\W+/g, '-').slice(0, 20)}`, { fullPage: true });
      await checkAccess(page, `${hash} on a phone`);
    }
    await closePage(page);
  });
}

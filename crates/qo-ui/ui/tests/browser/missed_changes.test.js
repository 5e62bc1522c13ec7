// Changes that happen while the page does not listen to the events of its server yet, or no longer.

import { test } from 'node:test';

import { closePage, quiet, shows, until } from '../support/browser.js';
import { useServer } from '../support/sources.js';

const stage = useServer();

/** Opens the list of tasks without periodic refreshes, and leaves what happens to the event streams of the next load to `onStream`. */
async function openWithStreams(onStream) {
  const page = await stage.open('#/tasks');
  await page.locator('select[aria-label="Refresh interval"]').selectOption('0');
  await page.route('**/v1/events', onStream);
  await page.reload();
  return page;
}

/** Waits until the page is loaded, submits a task, and lets the server respond to the request for events. */
async function submitBefore(page, stream, type) {
  await page.locator('#as-of').filter({ hasText: /./ }).waitFor();
  await until('the page asks for events', async () => stream.held);
  await quiet(page);
  await stage.server.submit([{ task_type: type, input: 1 }]);
  await stream.held.continue();
  await shows(page, type, '.tasks-table');
}

test('a change between the first load and the opening of the event stream is shown', async () => {
  const stream = {};
  const page = await openWithStreams((route) => { stream.held = route; });
  await submitBefore(page, stream, 'before-the-stream');
  await closePage(page);
});

test('a change before a broken event stream is open again is shown', async () => {
  const stream = { many: 0 };
  const page = await openWithStreams((route) => {
    stream.many += 1;
    // The first stream ends at once.
    if (stream.many === 1) return route.fulfill({ status: 200, contentType: 'text/event-stream', body: ': alive\n\n' });
    stream.held = route;
    return undefined;
  });
  await submitBefore(page, stream, 'before-the-second-stream');
  await closePage(page);
});

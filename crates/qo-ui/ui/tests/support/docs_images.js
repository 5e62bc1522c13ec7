// Takes the pictures of the documentation: `node support/docs_images.js`, in this folder. They go to `docs/images`; reduce their colours to a
// palette before they are committed, so that they stay small.

import { join } from 'node:path';

import { closePage, openDashboard, shows } from './browser.js';
import { ROOT, story } from './programs.js';
import { setUp } from './setup.js';

const WIDE = { viewport: { width: 1180, height: 800 } };
const PHONE = { viewport: { width: 390, height: 800 }, deviceScaleFactor: 2, colorScheme: 'dark' };
// The task whose texts are scripts and markup is for tests.
const objects = await story();
const hidden = objects.filter(({ key, body }) => key.startsWith('tasks/') && JSON.parse(body).task_type === 'render_page').map(({ body }) => JSON.parse(body).id);
const stage = await setUp('demo', { objects: objects.filter(({ key }) => !hidden.some((id) => key.includes(id))) });
const failed = stage.task({ status: 'failed', task_type: 'nightly_backup' });

/** Each picture: where it is taken, what must be visible, and what is done first. */
const PICTURES = {
  'dashboard-overview': { go: 'overview', text: 'Dead letters' },
  'dashboard-tasks': { go: 'tasks?q=status%3Afailed%20-type%3Aresize_image%20or%20status%3Arunning', text: 'card declined' },
  'dashboard-task': {
    go: `tasks/${failed.id}`,
    text: 'Before the first attempt',
    async first(page) {
      await page.getByRole('button', { name: 'Show versions' }).click();
      await shows(page, 'completed_at', '.diff');
    },
    fullPage: true,
  },
  'dashboard-errors': { go: 'errors', text: 'for example' },
  'dashboard-phone': { go: 'tasks', text: 'cancel requested', context: PHONE },
};

for (const [name, { go, text, first, fullPage = false, context = WIDE }] of Object.entries(PICTURES)) {
  const page = await openDashboard(stage, { go, context });
  await shows(page, text);
  await first?.(page);
  await page.mouse.move(0, 0);
  await page.evaluate(() => window.scrollTo(0, 0));
  await page.screenshot({ path: join(ROOT, 'docs/images', `${name}.png`), fullPage, animations: 'disabled' });
  await closePage(page);
}
await stage.close();

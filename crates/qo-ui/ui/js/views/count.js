// Counts all tasks by reading each one, after showing the cost.

import { Counter } from '../counter.js';
import { h } from '../dom.js';
import { about, dollars, number } from '../format.js';
import { dialog } from '../widgets/dialog.js';
import { problem } from '../widgets/basics.js';
import { toast } from '../widgets/toast.js';

export async function countExactly(app, total) {
  const cost = Counter.estimate({ get: total.value, list: Math.ceil(total.value / 1000) });
  const stop = new AbortController();
  await dialog('Count all tasks', (close) => {
    const line = h('p', {}, `This reads ${about(total)} tasks, except those already cached, and costs up to ${dollars(cost)} at S3 prices.`);
    const start = h('button', { type: 'button', class: 'primary' }, 'Count');
    start.onclick = async () => {
      start.disabled = true;
      try {
        const counted = await app.source.countAll({
          signal: stop.signal,
          onProgress: ({ examined }) => { line.textContent = `${number(examined)} tasks so far…`; },
        });
        toast(`Counted ${number(counted.total)} tasks`);
        close(true);
        app.refresh({ force: true });
      } catch (error) {
        if (error.name === 'AbortError') return;
        line.replaceWith(problem(error));
      }
    };
    return [line, h('footer', {}, h('button', { type: 'button', on: { click: () => close() } }, 'Stop'), start)];
  });
  stop.abort();
}

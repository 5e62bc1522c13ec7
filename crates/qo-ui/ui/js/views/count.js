// Counting all tasks, which reads each of them: said before it is done.

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
    const line = h('p', {}, `This reads ${about(total)} tasks: roughly ${dollars(cost)} at S3's prices, less what this visit has read already.`);
    const start = h('button', { type: 'button', class: 'primary' }, 'Count');
    start.onclick = async () => {
      start.disabled = true;
      try {
        const counted = await app.source.countAll({
          signal: stop.signal,
          onProgress: ({ looked }) => { line.textContent = `${number(looked)} tasks so far…`; },
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

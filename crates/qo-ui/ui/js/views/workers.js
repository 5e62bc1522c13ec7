// The workers page, with the nodes of a cluster, and requests to workers. Correctness does not depend on worker records.

import { h } from '../dom.js';
import { bytes, number } from '../format.js';
import { badge, button, empty, notVisible, taskLink, timeOf } from '../widgets/basics.js';
import { confirm } from '../widgets/dialog.js';
import { toast } from '../widgets/toast.js';

const STALE_MS = 60_000;
const DEAD_MS = 300_000;
const TASKS_SHOWN = 4;
export const HEALTHS = ['active', 'stale', 'dead'];

/** Workers send a heartbeat every 10 to 30 s. After a minute without one a worker is stale, after five minutes dead. */
export function healthOf(worker, now) {
  const age = now - worker.last_heartbeat;
  return age <= STALE_MS ? 'active' : age <= DEAD_MS ? 'stale' : 'dead';
}

export class WorkersView {
  title = 'Workers';

  constructor({ app }) {
    this.app = app;
    this.source = app.source;
  }

  async load() {
    [this.workers, this.cluster] = await Promise.all([this.source.workers(), this.source.cluster()]);
  }

  render() {
    if (!this.workers) return h('main', { id: 'main', class: 'loading', tabindex: '-1' }, h('h1', {}, 'Workers'), h('p', { class: 'faint' }, 'Loading…'));
    const now = this.source.now();
    const rank = (worker) => HEALTHS.indexOf(healthOf(worker, now));
    const workers = [...this.workers].sort((a, b) => rank(a) - rank(b) || a.worker_id.localeCompare(b.worker_id));
    return h('main', { id: 'main', tabindex: '-1' },
      h('div', { class: 'page-head' }, h('h1', {}, 'Workers'),
        h('span', { class: 'note' }, 'active: heartbeat within a minute · stale: within five minutes · dead: older; its tasks are recovered when their leases expire')),
      this.source.hidden.has('workers') ? notVisible('Workers are') : workers.length === 0
        ? empty('No workers', h('p', {}, 'Start one with ', h('code', {}, 'qo worker')), 'Tasks wait until a worker is started.')
            : h('div', { class: 'card' },
          h('div', { class: 'scroll' }, h('table', { class: 'rows blocks' },
            h('thead', {}, h('tr', {}, ['Worker', 'Health', 'Heartbeat', 'Host'].map(column), column('CPU', 'number'), column('Memory', 'number'), ['Queues', 'Types'].map(column), column('Slots', 'number'), column('Running now'), column('Completed', 'number'), column('Failed', 'number'), column('Started'), !this.source.readOnly && column('Actions'))),
            h('tbody', {}, workers.map((worker) => this.#row(worker, now)))))),
      this.cluster && this.#nodes(this.cluster));
  }

  /** The nodes as the one knows them that serves this page. It leads, so it knows how far the others are behind. */
  #nodes(cluster) {
    const facts = [
      `term ${number(cluster.term)}`,
      `log ${bytes(cluster.log_bytes)} on node ${cluster.node}`,
      `applied up to entry ${cluster.applied === null ? '–' : number(cluster.applied)}`,
      `last sync ${cluster.sync_ms.toFixed(1)} ms`,
    ];
    return h('section', { 'aria-label': 'Nodes of the cluster' },
      h('div', { class: 'page-head' }, h('h2', {}, `Nodes of ${cluster.cluster}`), h('span', { class: 'note' }, facts.join(' · '))),
      cluster.disk_full && h('p', { role: 'alert', class: 'error-text' }, `The disk of node ${cluster.node} is full: it accepts no changes until there is room.`),
      h('div', { class: 'card' }, h('div', { class: 'scroll' }, h('table', { class: 'rows blocks' },
        h('thead', {}, h('tr', {}, column('Node'), column('Role'), column('Behind', 'number'), column('Log up to', 'number'), column('Address'), column('URL'))),
        h('tbody', {}, cluster.members.map((member) => h('tr', { key: `node-${member.node}` },
          h('th', { scope: 'row', class: 'mono' }, String(member.node)),
          h('td', { 'data-label': 'Role' }, roleOf(member, cluster)),
          h('td', { class: 'number', 'data-label': 'Behind' }, member.lag === undefined ? '–' : `${number(member.lag)} entries`),
          h('td', { class: 'number', 'data-label': 'Log up to' }, member.matched === undefined ? '–' : number(member.matched)),
          h('td', { class: 'mono half-cell', 'data-label': 'Address' }, member.address),
          h('td', { class: 'mono whole-cell', 'data-label': 'URL' }, member.url))))))));
  }

  #row(worker, now) {
    const tasks = worker.current_tasks.length > 0 ? worker.current_tasks : worker.current_task ? [worker.current_task] : [];
    return h('tr', { key: worker.worker_id },
      h('th', { scope: 'row', class: 'mono' }, worker.worker_id),
      h('td', { class: 'state-cell' }, badge(healthOf(worker, now)),
        worker.request && h('span', { class: 'faint', title: askedBy(worker.request) }, worker.request.action === 'stop' ? ' stopping' : ' quiet')),
      h('td', { class: 'when', 'data-label': 'Heartbeat' }, timeOf(worker.last_heartbeat, this.source)),
      h('td', { 'data-label': 'Host' }, worker.host ?? h('span', { class: 'faint' }, '–')),
      h('td', { class: 'number', 'data-label': 'CPU', title: 'CPU time between the last two heartbeats, in percent of one core' }, worker.cpu_percent === undefined ? h('span', { class: 'faint' }, '–') : `${number(worker.cpu_percent)} %`),
      h('td', { class: 'number', 'data-label': 'Memory' }, worker.memory_bytes === undefined ? h('span', { class: 'faint' }, '–') : bytes(worker.memory_bytes)),
      h('td', { 'data-label': 'Queues' }, list(worker.queues)),
      h('td', { 'data-label': 'Types' }, list(worker.types)),
      h('td', { class: 'number', 'data-label': 'Slots' }, `${tasks.length} / ${worker.slots}`),
      h('td', { 'data-label': 'Running now' }, tasks.length === 0 ? h('span', { class: 'faint' }, 'idle') : tasks.slice(0, TASKS_SHOWN).map((id) => [taskLink(id, id.slice(0, 8)), ' ']),
        tasks.length > TASKS_SHOWN && h('span', { class: 'faint' }, `+${tasks.length - TASKS_SHOWN}`)),
      h('td', { class: 'number', 'data-label': 'Completed' }, number(worker.tasks_completed)),
      h('td', { class: 'number', 'data-label': 'Failed' }, number(worker.tasks_failed)),
      h('td', { class: 'when', 'data-label': 'Started' }, timeOf(worker.started_at, this.source)),
      !this.source.readOnly && h('td', { class: 'actions-cell' }, this.#requests(worker, now)));
  }

  /** The requests that make sense for a worker. A dead one would not learn of them. */
  #requests(worker, now) {
    if (healthOf(worker, now) === 'dead') return undefined;
    const action = worker.request?.action;
    const offered = [action !== 'quiet' && action !== 'stop' && 'quiet', action !== 'stop' && 'stop', action && 'resume'].filter(Boolean);
    return offered.map((kind) => button(LABELS[kind], () => this.#ask(worker, kind), { key: kind, kind: `small ${kind === 'stop' ? 'danger-quiet' : ''}` }));
  }

  async #ask(worker, kind) {
    const lines = {
      quiet: 'It claims no more tasks and finishes those that it runs. It sees the request with its next heartbeat, within about 15 seconds.',
      stop: 'It claims no more tasks, finishes those that it runs, and exits. Tasks that still run at its shutdown deadline are released. It sees the request with its next heartbeat, within about 15 seconds.',
    };
    if (lines[kind] && !await confirm(`${LABELS[kind]} ${worker.worker_id}?`, [lines[kind]], { action: `${LABELS[kind]} the worker`, destructive: kind === 'stop' })) return;
    await this.app.attempt(async () => {
      await this.source.askWorker(worker.worker_id, kind);
      toast(kind === 'resume' ? `${worker.worker_id} may claim tasks again` : `Asked ${worker.worker_id} to ${kind === 'stop' ? 'finish and exit' : 'claim no more tasks'}`);
      await this.app.refresh({ force: true });
    });
  }
}

const LABELS = { quiet: 'Quiet', stop: 'Stop', resume: 'Resume' };
const askedBy = ({ by, at }) => `asked${by ? ` by ${by}` : ''} at ${at}`;
/** Learners receive the log and do not vote. */
const roleOf = (member, cluster) => (member.node === cluster.leader ? 'leader' : member.voter ? 'follower' : 'learner');
const column = (name, kind) => h('th', { scope: 'col', class: kind === 'number' ? 'number' : '' }, name);
const list = (names) => (names.length === 0 ? h('span', { class: 'faint' }, 'all') : names.join(', '));

// The interface of sources, and definitions shared by sources and pages.
//
// A source provides the tasks: a bucket that the browser reads directly (`s3/source.js`), or a server with the HTTP API
// (`http/source.js`). Pages use only this interface:
//
//   kind                     's3' or 'http'
//   title, detail            labels
//   readOnly                 whether actions are disabled
//   mayWrite                 whether the credentials allow actions
//   actions                  the kinds of actions that it supports
//   counter                  the requests of this session
//   hidden                   what the server refused to this token: workers, activity, settings, limits, schedules, cluster; on a bucket,
//                            what the store refused to this session: pauses
//   now()                    the queue's clock, in milliseconds
//   open()                   checks the connection
//   checkScopes()            asks again what the credentials allow, if they can change; fails if they are not valid any more
//   page(query, cursor)      { tasks, next, examined, note, order }: some tasks, and the cursor of the next page
//   failures(query, cursor)  a page of failed tasks, to be grouped by error
//   overview(options)        counts, activity (of one queue or type, if the source can and the options say so), queues and workers
//   tabCounts(queue)         the number of tasks by status, if that is cheap
//   get(id)                  one task
//   waitsFor(task)           what a pending task waits for besides its due time and a worker
//   payload(task, field)     the text of an input or output
//   versions(id)             the stored versions, oldest first, without content
//   version(id, version)     the content of a version
//   workers()                the workers
//   askWorker(id, action)    asks a worker to be `quiet` or to `stop`, or takes that back with `resume`
//   cluster()                the state of the cluster, if the source is a node of one
//   act(kind, id, options)   replay, redrive, archive, unarchive, cancel, run_now or purge; returns the changed task
//   actOnAll(kind, tasks, o) the same for many tasks: { done, failed, failures, left }; `o` also has a signal and onProgress
//   submit(request)          submits a task and returns it
//   takesGroups              whether a submitted task can have a group
//   takesOrdering            whether a submitted task can have an ordering key
//   setPaused(target, paused, reason)  pauses or resumes `{ queue }` or `{ type }`
//   queueSettings()          the settings of queues that have some, by name
//   schedules()              the schedules, ordered by name
//   limits()                 the limits, ordered by name
//   webhooks()               the webhooks, ordered by name, without their secrets; undefined if the source does not show them
//   setSchedulePaused(name, paused)  pauses or resumes a schedule
//   triggerSchedule(name)    submits one task of a schedule now, and returns its id
//   matching(query, options) all matching tasks, for bulk actions
//   live(listener, refused)  notifies of changes, if supported; returns a function that stops it
//
// Counts are `{ value, how }`: exact, an estimate, or at least.

/** Who acts, for the history of tasks: a bucket does not know who uses its page. */
export const ACTOR = 'dashboard';

/** An error of a source: its kind, a message, and optionally a hint and a command to fix it. */
export class SourceError extends Error {
  /**
   * @param {'denied'|'expired'|'not_found'|'conflict'|'exists'|'cors'|'network'|'throttled'|'unavailable'|'insecure'|
   *   'no_bucket'|'not_versioned'|'read_only'|'unreadable'|'in_doubt'|'bad_request'|'too_large'|'unknown'} kind
   */
  constructor(kind, message, { hint, command, cause } = {}) {
    super(message, { cause });
    this.name = 'SourceError';
    this.kind = kind;
    this.hint = hint;
    this.command = command;
  }
}

/** Runs `work` for each item with limited concurrency. Returns the results in the order of the items. */
export async function mapConcurrently(items, limit, work) {
  const results = new Array(items.length);
  let next = 0;
  const lane = async () => {
    while (next < items.length) {
      const index = next;
      next += 1;
      results[index] = await work(items[index], index);
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane));
  return results;
}

const CONCURRENCY = 8;

/** Applies an action to many tasks, one request each. */
export async function actOneByOne(source, kind, tasks, { signal, onProgress, ...options } = {}) {
  const report = { done: 0, failed: 0, failures: [], left: 0 };
  await mapConcurrently(tasks, CONCURRENCY, async ({ id }) => {
    if (signal?.aborted) {
      report.left += 1;
      return;
    }
    try {
      await source.act(kind, id, options);
      report.done += 1;
    } catch (error) {
      report.failed += 1;
      report.failures.push({ id, message: error.message });
    }
    onProgress?.({ finished: report.done + report.failed });
  });
  return report;
}

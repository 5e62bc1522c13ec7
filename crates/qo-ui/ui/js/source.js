// The interface of sources, and definitions shared by sources and pages.
//
// A source provides the tasks: a bucket that the browser reads directly (`s3/source.js`), or a server with the HTTP API
// (`http/source.js`). Pages use only this interface:
//
//   kind                     's3' or 'http'
//   title, detail            labels
//   readOnly                 whether actions are disabled
//   counter                  the requests of this session
//   now()                    the queue's clock, in milliseconds
//   open()                   checks the connection
//   page(query, cursor)      { tasks, next, examined, note, order }: some tasks, and the cursor of the next page
//   overview(options)        counts, activity and workers
//   get(id)                  one task
//   payload(task, field)     the text of an input or output
//   versions(id)             the stored versions, oldest first, without content
//   version(id, version)     the content of a version
//   workers()                the workers
//   act(kind, id, options)   replay, archive, unarchive, cancel or run_now; returns the changed task
//   submit(request)          submits a task and returns it
//   setPaused(queue, paused) pauses or resumes a queue
//   matching(query, options) all matching tasks, for bulk actions
//   live(listener)           notifies of changes, if supported; returns a function that stops it

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

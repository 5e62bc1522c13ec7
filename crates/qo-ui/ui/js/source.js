// What every source of the dashboard can do, and the words that sources and pages share.
//
// A source is where the tasks come from: a bucket that the browser asks by itself (`s3/source.js`), or a server with the HTTP
// API (`http/source.js`). The pages know this interface and nothing below it:
//
//   kind                     's3' or 'http'
//   title, detail            what to show of it
//   readOnly                 whether it refuses every action
//   counter                  the requests of this visit
//   now()                    the time by which the queue judges, in milliseconds
//   open()                   makes sure that it can be used
//   page(query, cursor)      { tasks, next, looked, note, order }: some tasks, and where to go on
//   overview(options)        counts, activity and workers, each with how it was found
//   get(id)                  one task
//   payload(task, field)     the text of an input or output, wherever it is kept
//   versions(id)             the stored versions, oldest first, without their content
//   version(id, version)     the content of one
//   workers(), queues()      what there is
//   act(kind, id, options)   replay, archive, unarchive, cancel or run_now; gives the task as it is then
//   submit(request)          a new task; gives it
//   setPaused(queue, paused) pauses a queue or lets it go on
//   matching(query, options) all ids that match, found page by page, for bulk actions
//   live(listener)           tells of changes as they come, where the source can; gives how to stop

/** What a source could not do: one kind per condition, a sentence, and what to do next. */
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

/** Runs work for each item, a few at a time, and gives the results in the order of the items. */
export async function eachAtOnce(items, limit, work) {
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

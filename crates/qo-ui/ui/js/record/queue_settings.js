// The settings of queues, as the engine writes them (`crates/qo-core/src/document.rs` and `queue_settings.rs`).

export const QUEUE_SETTINGS_PREFIX = 'meta/settings/queues/';
const TIMEOUT_DEFAULT_SECONDS = 300;
const RETRIES_DEFAULT = 3;

export const queueSettingsKey = (queue) => `${QUEUE_SETTINGS_PREFIX}${queue}.json`;
export const queueOfSettings = (key) => key.slice(QUEUE_SETTINGS_PREFIX.length, -'.json'.length);

/** The settings in a record; none if they were removed. */
export function readQueueSettings(text) {
  const { body } = JSON.parse(text);
  return body ?? {};
}

/** A request to submit a task, with the defaults of its queue for what it does not say. */
export function completed(request, settings) {
  return {
    ...request,
    timeout_seconds: request.timeout_seconds ?? settings.timeout_seconds ?? TIMEOUT_DEFAULT_SECONDS,
    max_retries: request.max_retries ?? settings.max_retries ?? RETRIES_DEFAULT,
    max_wait_ms: settings.max_wait_ms,
  };
}

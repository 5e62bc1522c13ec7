// Requests to the HTTP API of a server.

import { ACTOR, SourceError } from '../source.js';
import { StreamRefused } from './stream.js';

const TIMEOUT_MS = 30_000;

export class HttpClient {
  #token;
  #offset = 0;

  constructor({ url, token }, counter) {
    this.base = new URL(url).href.replace(/\/+$/, '');
    this.#token = token || undefined;
    this.counter = counter;
  }

  get token() {
    return this.#token;
  }

  /** The queue's time. */
  now() {
    return Date.now() + this.#offset;
  }

  close() {
    this.#token = undefined;
  }

  /** Sends a request and returns the body of the response. */
  async request(method, path, body, { signal } = {}) {
    let response;
    this.counter.add('http');
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    try {
      response = await fetch(this.base + path, {
        method, body, cache: 'no-store', credentials: 'omit', signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
        headers: this.#headers({ ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...(method === 'GET' ? {} : { 'qo-actor': ACTOR }) }),
      });
      const time = Date.parse(response.headers.get('qo-time'));
      if (Number.isFinite(time)) this.#offset = time - Date.now();
      const text = await response.text();
      if (response.ok) return text;
      throw errorFrom(response.status, text);
    } catch (error) {
      if (error instanceof SourceError) throw error;
      signal?.throwIfAborted();
      throw new SourceError('network', `no response from ${this.base}`, { cause: error, hint: 'Check the URL, that the server is running, and that it allows requests from this page.' });
    }
  }

  /** Listens to events until the stream ends. Tells when the server has begun to send them, and after each batch of them. */
  async events(signal, on) {
    const response = await fetch(`${this.base}/v1/events`, { headers: this.#headers({ accept: 'text/event-stream' }), cache: 'no-store', credentials: 'omit', signal });
    if ([401, 403, 404].includes(response.status)) throw new StreamRefused();
    if (!response.ok) return;
    on.open();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      if (/^data:/m.test(value)) on.event();
    }
  }

  #headers(more) {
    return this.#token ? { ...more, authorization: `Bearer ${this.#token}` } : more;
  }
}

/** Converts a problem document to an error. */
export function errorFrom(status, text) {
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch {
    // The response comes from a proxy.
  }
  const message = problem.detail ?? problem.title ?? `the server responded with ${status}`;
  const kinds = { 401: 'expired', 403: 'denied', 404: 'not_found', 409: problem.code === 'not_versioned' ? 'not_versioned' : 'conflict', 429: 'throttled', 503: 'unavailable' };
  const hint = status === 401 ? 'Enter a valid token.' : status === 403 ? 'Enter a token with the required scope.' : undefined;
  return new SourceError(kinds[status] ?? (status >= 500 ? 'unavailable' : 'bad_request'), message, { hint });
}

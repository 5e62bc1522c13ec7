// An S3 client with the operations that the dashboard needs: get, put, remove, list, versions.
//
// Requests to the page's own origin are signed with headers. A plain GET to another origin is signed in its URL instead: a request
// without custom headers needs no CORS preflight, which would double the loading time of every page.

import { SourceError } from '../source.js';
import { escape, signHeaders, signUrl } from './sign.js';
import { readError, readList, readVersions } from './xml.js';

const TIMEOUT_MS = 30_000;
const TRIES_MAX = 4;
const IN_FLIGHT_MAX = 24;
export const PAGE_MAX = 1000;

export class S3Client {
  #credentials;
  #waiting = [];
  #inFlight = 0;

  /**
   * @param {{endpoint: string, bucket: string, prefix: string, region: string, virtualHost?: boolean,
   *   credentials: {accessKeyId: string, secretAccessKey: string, sessionToken?: string}}} connection
   */
  constructor(connection, counter, clock) {
    const endpoint = new URL(connection.endpoint);
    if (connection.virtualHost) endpoint.hostname = `${connection.bucket}.${endpoint.hostname}`;
    this.base = `${endpoint.origin}${connection.virtualHost ? '' : `/${escape(connection.bucket)}`}`;
    this.sameOrigin = endpoint.origin === globalThis.location?.origin;
    this.prefix = connection.prefix ? `${connection.prefix.replace(/^\/+|\/+$/g, '')}/` : '';
    this.bucket = connection.bucket;
    this.region = connection.region || 'us-east-1';
    this.counter = counter;
    this.clock = clock;
    this.#credentials = connection.credentials;
  }

  /** Forgets the credentials. */
  close() {
    this.#credentials = undefined;
  }

  /**
   * Reads an object. With `etag`, returns undefined if the object is unchanged.
   * @returns {Promise<{text: string, etag: string} | undefined>}
   */
  async get(key, { etag, version } = {}) {
    const query = version ? `versionId=${escape(version)}` : '';
    const headers = etag ? { 'if-none-match': etag } : {};
    const response = await this.#retrying('get', { method: 'GET', key, query, headers });
    if (response.status === 304) {
      this.counter.addNotModified();
      return undefined;
    }
    const found = response.headers.get('etag');
    if (!found) throw hiddenEtag();
    return { text: await response.text(), etag: found };
  }

  /**
   * Writes an object without retrying. The caller handles a lost response.
   * @param {{ifMatch?: string, ifNoneMatch?: string}} condition
   */
  async put(key, body, { ifMatch, ifNoneMatch } = {}) {
    const headers = { 'content-type': body ? 'application/json' : 'application/octet-stream' };
    if (ifMatch) headers['if-match'] = ifMatch;
    if (ifNoneMatch) headers['if-none-match'] = ifNoneMatch;
    const response = await this.#send('put', { method: 'PUT', key, headers, body });
    return response.headers.get('etag') ?? undefined;
  }

  /** Writes an object unconditionally, with retries. */
  async putUnconditionally(key, body) {
    await this.#retrying('put', {
      method: 'PUT', key, body, headers: { 'content-type': body ? 'application/json' : 'application/octet-stream' },
    });
  }

  async remove(key) {
    await this.#retrying('delete', { method: 'DELETE', key });
  }

  /** One page of keys with a prefix, in order, starting after `after`. */
  async list(prefix, { after, max = PAGE_MAX, folders = false } = {}) {
    const query = [
      ['delimiter', folders ? '/' : undefined],
      ['list-type', '2'],
      ['max-keys', String(max)],
      ['prefix', this.prefix + prefix],
      ['start-after', after === undefined ? undefined : this.prefix + after],
    ];
    const response = await this.#retrying('list', { method: 'GET', query: queryText(query) });
    const page = readList(await response.text());
    const within = (key) => key.slice(this.prefix.length);
    return {
      ...page,
      entries: page.entries.map((entry) => ({ ...entry, key: within(entry.key) })),
      folders: page.folders.map(within),
    };
  }

  /** The newest versions of one object, newest first, up to a thousand. */
  async versions(key) {
    const full = this.prefix + key;
    const query = queryText([['max-keys', '1000'], ['prefix', full], ['versions', '']]);
    const response = await this.#retrying('list', { method: 'GET', query });
    const { versions, truncated } = readVersions(await response.text());
    return { versions: versions.filter((version) => version.key === full), truncated };
  }

  async #retrying(kind, request) {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#send(kind, request);
      } catch (error) {
        const again = ['throttled', 'unavailable', 'network'].includes(error.kind) && tries < TRIES_MAX;
        if (!again) throw error.kind === 'network' ? await this.#explain(error) : error;
        await pause(100 * 2 ** tries * (0.5 + Math.random()));
      }
    }
  }

  /** Sends a request once. Any status other than success and 304 is an error. */
  async #send(kind, request) {
    await this.#enter();
    let response;
    const sent = Date.now();
    try {
      this.counter.add(kind);
      response = await this.#fetch(request);
    } catch (error) {
      throw new SourceError('network', `no response from ${this.base}`, { cause: error });
    } finally {
      this.#leave();
    }
    this.clock.observe(sent, Date.now(), Date.parse(response.headers.get('date')));
    if (response.ok || response.status === 304) return response;
    throw await this.#errorFrom(response, request);
  }

  async #fetch({ method, key, query = '', headers = {}, body }) {
    const credentials = this.#credentials;
    if (!credentials) throw new Error('the client is closed');
    const path = key === undefined ? '/' : `/${(this.prefix + key).split('/').map(escape).join('/')}`;
    const url = new URL(this.base + path + (query ? `?${query}` : ''));
    const options = { method, body, cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(TIMEOUT_MS) };
    const signing = { method, url, credentials, region: this.region, now: this.clock.now() };
    const isPlain = method === 'GET' && Object.keys(headers).length === 0;
    if (!this.sameOrigin && isPlain) return fetch(await signUrl(signing), { ...options, mode: 'cors' });
    return fetch(url, { ...options, headers: await signHeaders({ ...signing, headers, body }) });
  }

  async #errorFrom(response, { key }) {
    const { code, message } = readError(await response.text().catch(() => ''));
    const what = key ? `${this.bucket}/${this.prefix}${key}` : `bucket ${this.bucket}`;
    const details = [response.status, code, message].filter(Boolean).join(' ');
    switch (response.status) {
      case 404:
        if (code === 'NoSuchBucket') return new SourceError('no_bucket', `bucket ${this.bucket} does not exist`);
        return new SourceError('not_found', `${what} does not exist`);
      case 304: case 412:
        return new SourceError('conflict', `${what} has changed`);
      case 409:
        return new SourceError('in_doubt', `conflicting write to ${what}`);
      case 429: case 503:
        return new SourceError('throttled', `the store throttles requests (${details})`);
      case 400: case 401: case 403:
        if (code === 'ExpiredToken' || code === 'TokenRefreshRequired') {
          return new SourceError('expired', 'the session has expired', { hint: 'Create a new link.', command: 'qo ui link' });
        }
        if (code === 'RequestTimeTooSkewed') {
          return new SourceError('denied', 'the clocks of this computer and the store differ too much to sign requests');
        }
        if (response.status === 400 && code !== 'InvalidToken') {
          return new SourceError('bad_request', `the store rejected the request (${details})`);
        }
        return new SourceError('denied', `the store denied access to ${what} (${details})`, {
          hint: 'Check the access key, the secret key, the session token and their permissions for this bucket.',
        });
      default:
        return response.status >= 500
          ? new SourceError('unavailable', `the store failed (${details})`)
          : new SourceError('unknown', `the store responded with ${details}`);
    }
  }

  /** Browsers do not report why a request failed. If the server responds at all, a CORS rule is missing; otherwise it is down. */
  async #explain(error) {
    if (this.sameOrigin) return error;
    try {
      await fetch(this.base, { mode: 'no-cors', cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(5_000) });
    } catch {
      return new SourceError('network', `no response from ${this.base}`, {
        cause: error,
        hint: 'Check the endpoint and your network connection.',
      });
    }
    return corsError(`bucket ${this.bucket} does not allow requests from this page`);
  }

  async #enter() {
    if (this.#inFlight >= IN_FLIGHT_MAX) await new Promise((enter) => this.#waiting.push(enter));
    this.#inFlight += 1;
  }

  #leave() {
    this.#inFlight -= 1;
    this.#waiting.shift()?.();
  }
}

function queryText(pairs) {
  return pairs.filter(([, value]) => value !== undefined).map(([name, value]) => `${name}=${escape(value)}`).join('&');
}

function hiddenEtag() {
  return corsError('the bucket does not expose the ETag header to this page');
}

function corsError(message) {
  const origin = globalThis.location?.origin;
  return new SourceError('cors', message, {
    hint: `The bucket needs a CORS rule that allows ${origin} and exposes ETag and Date. Set it with:`,
    command: `qo init --cors-origin ${origin}`,
  });
}

function pause(millis) {
  return new Promise((done) => setTimeout(done, millis));
}

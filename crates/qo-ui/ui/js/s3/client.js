// The bucket, in the words that the dashboard needs: get, put, remove, list, versions.
//
// Requests to the page's own origin are signed by headers. To another origin a plain GET is signed by its URL instead: a
// request without headers of its own is sent at once, where any other is preceded by a question of the browser's own, which
// would double the time of every page.

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
   *   credentials: {accessKeyId: string, secretAccessKey: string, sessionToken?: string}}} place
   */
  constructor(place, counter, clock) {
    const endpoint = new URL(place.endpoint);
    if (place.virtualHost) endpoint.hostname = `${place.bucket}.${endpoint.hostname}`;
    this.base = `${endpoint.origin}${place.virtualHost ? '' : `/${escape(place.bucket)}`}`;
    this.sameOrigin = endpoint.origin === globalThis.location?.origin;
    this.prefix = place.prefix ? `${place.prefix.replace(/^\/+|\/+$/g, '')}/` : '';
    this.bucket = place.bucket;
    this.region = place.region || 'us-east-1';
    this.counter = counter;
    this.clock = clock;
    this.#credentials = place.credentials;
  }

  /** Forgets the credentials. */
  close() {
    this.#credentials = undefined;
  }

  /**
   * Reads an object. With `etag`, gives nothing if the object still is what it names.
   * @returns {Promise<{text: string, etag: string} | undefined>}
   */
  async get(key, { etag, version } = {}) {
    const query = version ? `versionId=${escape(version)}` : '';
    const headers = etag ? { 'if-none-match': etag } : {};
    const answer = await this.#retrying('get', { method: 'GET', key, query, headers });
    if (answer.status === 304) {
      this.counter.addNotModified();
      return undefined;
    }
    const found = answer.headers.get('etag');
    if (!found) throw hiddenTag();
    return { text: await answer.text(), etag: found };
  }

  /**
   * One try of a write; whoever writes knows what to do when the answer is lost.
   * @param {{ifMatch?: string, ifNoneMatch?: string}} condition
   */
  async put(key, body, { ifMatch, ifNoneMatch } = {}) {
    const headers = { 'content-type': body ? 'application/json' : 'application/octet-stream' };
    if (ifMatch) headers['if-match'] = ifMatch;
    if (ifNoneMatch) headers['if-none-match'] = ifNoneMatch;
    const answer = await this.#send('put', { method: 'PUT', key, headers, body });
    return answer.headers.get('etag') ?? undefined;
  }

  /** Writes an object whatever is there, again if need be. */
  async putAnyway(key, body) {
    await this.#retrying('put', {
      method: 'PUT', key, body, headers: { 'content-type': body ? 'application/json' : 'application/octet-stream' },
    });
  }

  async remove(key) {
    await this.#retrying('delete', { method: 'DELETE', key });
  }

  /** One page of keys under a prefix, in order, from the first one after `after`. */
  async list(prefix, { after, max = PAGE_MAX, folders = false } = {}) {
    const query = [
      ['delimiter', folders ? '/' : undefined],
      ['list-type', '2'],
      ['max-keys', String(max)],
      ['prefix', this.prefix + prefix],
      ['start-after', after === undefined ? undefined : this.prefix + after],
    ];
    const answer = await this.#retrying('list', { method: 'GET', query: queryText(query) });
    const page = readList(await answer.text());
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
    const answer = await this.#retrying('list', { method: 'GET', query });
    const { versions, truncated } = readVersions(await answer.text());
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

  /** Sends a request once. Anything but success and 304 is an error of its own kind. */
  async #send(kind, request) {
    await this.#enter();
    let answer;
    const sent = Date.now();
    try {
      this.counter.add(kind);
      answer = await this.#fetch(request);
    } catch (error) {
      throw new SourceError('network', `no answer from ${this.base}`, { cause: error });
    } finally {
      this.#leave();
    }
    this.clock.observe(sent, Date.now(), Date.parse(answer.headers.get('date')));
    if (answer.ok || answer.status === 304) return answer;
    throw await this.#refusal(answer, request);
  }

  async #fetch({ method, key, query = '', headers = {}, body }) {
    const credentials = this.#credentials;
    if (!credentials) throw new Error('the source is closed');
    const path = key === undefined ? '/' : `/${(this.prefix + key).split('/').map(escape).join('/')}`;
    const url = new URL(this.base + path + (query ? `?${query}` : ''));
    const options = { method, body, cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(TIMEOUT_MS) };
    const signing = { method, url, credentials, region: this.region, now: this.clock.now() };
    const isPlain = method === 'GET' && Object.keys(headers).length === 0;
    if (!this.sameOrigin && isPlain) return fetch(await signUrl(signing), { ...options, mode: 'cors' });
    return fetch(url, { ...options, headers: await signHeaders({ ...signing, headers, body }) });
  }

  async #refusal(answer, { key }) {
    const { code, message } = readError(await answer.text().catch(() => ''));
    const what = key ? `${this.bucket}/${this.prefix}${key}` : `the bucket ${this.bucket}`;
    const details = [answer.status, code, message].filter(Boolean).join(' ');
    switch (answer.status) {
      case 404:
        if (code === 'NoSuchBucket') return new SourceError('no_bucket', `there is no bucket ${this.bucket}`);
        return new SourceError('not_found', `there is no ${what}`);
      case 304: case 412:
        return new SourceError('conflict', `${what} has changed`);
      case 409:
        return new SourceError('in_doubt', `another write to ${what} was under way`);
      case 429: case 503:
        return new SourceError('throttled', `the store asks for fewer requests (${details})`);
      case 400: case 401: case 403:
        if (code === 'ExpiredToken' || code === 'TokenRefreshRequired') {
          return new SourceError('expired', 'the session has ended', { hint: 'Open a new link.', command: 'qo ui link' });
        }
        if (code === 'RequestTimeTooSkewed') {
          return new SourceError('denied', 'this computer\'s clock and the store\'s differ too much for a signature');
        }
        if (answer.status === 400 && code !== 'InvalidToken') {
          return new SourceError('bad_request', `the store does not understand a request (${details})`);
        }
        return new SourceError('denied', `the store refuses access to ${what} (${details})`, {
          hint: 'Check the access key, the secret and the session token, and that they may do this in this bucket.',
        });
      default:
        return answer.status >= 500
          ? new SourceError('unavailable', `the store failed (${details})`)
          : new SourceError('unknown', `the store answered ${details}`);
    }
  }

  /** A browser does not say why a request failed. Whether the server answers at all tells a missing CORS rule from an outage. */
  async #explain(error) {
    if (this.sameOrigin) return error;
    try {
      await fetch(this.base, { mode: 'no-cors', cache: 'no-store', credentials: 'omit', signal: AbortSignal.timeout(5_000) });
    } catch {
      return new SourceError('network', `no answer from ${this.base}`, {
        cause: error,
        hint: 'Check the endpoint, and that this computer can reach it.',
      });
    }
    return corsError(`the bucket ${this.bucket} does not let this page call it`);
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

function hiddenTag() {
  return corsError('the bucket does not show this page the ETag of its objects');
}

function corsError(message) {
  const origin = globalThis.location?.origin;
  return new SourceError('cors', message, {
    hint: `The bucket needs a CORS rule that allows ${origin} and exposes ETag and Date. This sets it:`,
    command: `qo init --cors-origin ${origin}`,
  });
}

function pause(millis) {
  return new Promise((done) => setTimeout(done, millis));
}

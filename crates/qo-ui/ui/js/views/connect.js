// The form to connect to a bucket or a server. Its contents stay in the memory of this tab.

import { h } from '../dom.js';
import { problem } from '../widgets/basics.js';

/** Guesses the bucket from the page's URL: a page in a bucket's `ui/` belongs to that bucket. */
export function guessConnection(url = new URL(location.href)) {
  const before = /^(.*?)\/?ui\/(?:index\.html)?$/.exec(url.pathname)?.[1];
  if (before === undefined) return {};
  const parts = before.split('/').filter(Boolean).map(decodeURIComponent);
  const aws = /^(.+)\.s3[.-]([a-z0-9-]+)\.amazonaws\.com$/.exec(url.hostname);
  if (aws) {
    return { endpoint: `${url.protocol}//s3.${aws[2]}.amazonaws.com`, bucket: aws[1], region: aws[2], prefix: parts.join('/'), virtualHost: true };
  }
  const [bucket = '', ...prefix] = parts;
  return { endpoint: url.origin, bucket, prefix: prefix.join('/'), region: 'us-east-1' };
}

export class ConnectView {
  title = 'Connect';
  #mode;
  #busy = false;
  #values;

  constructor({ app, error, suggestion, wasReloaded = false }) {
    this.app = app;
    this.error = error;
    this.wasReloaded = wasReloaded;
    this.#values = { endpoint: '', bucket: '', prefix: '', region: 'us-east-1', ...guessConnection(), ...suggestion };
    this.#mode = suggestion?.kind === 'http' ? 'http' : 's3';
  }

  async load() {}

  render() {
    return h('main', { id: 'main', class: 'connect', tabindex: '-1' },
      h('h1', {}, 'Connect to a queue'),
      h('p', { class: 'lead' }, 'Your browser talks to the bucket or the qo server directly. The credentials stay in the memory of this tab and are gone when you close or reload it.'),
      this.error ? problem(this.error) : this.wasReloaded && h('p', { class: 'notice', role: 'status' }, 'The page was reloaded, so its credentials are gone. Enter them again to return to the same page.'),
      !globalThis.crypto?.subtle && problem({
        message: 'This page was not loaded over HTTPS or from localhost, so the browser cannot sign requests',
        hint: 'Open it over HTTPS, or forward a port to localhost.',
      }),
      h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Kind of source' }, this.#tab('s3', 'Bucket'), this.#tab('http', 'qo server')),
      this.#mode === 's3' ? this.#bucketForm() : this.#serverForm());
  }

  #tab(mode, label) {
    return h('button', {
      type: 'button', role: 'tab', 'aria-selected': String(this.#mode === mode), key: mode,
      on: { click: () => { this.#mode = mode; this.error = undefined; this.app.redraw(); } },
    }, label);
  }

  #bucketForm() {
    return h('form', { key: 's3', autocomplete: 'off', on: { submit: (event) => this.#submit(event) } },
      h('p', { class: 'hint' }, 'Use temporary credentials if possible. ', h('code', {}, 'qo ui link'), ' creates a link that fills in this form.'),
      h('div', { class: 'fields' },
        this.#field('endpoint', 'Endpoint', { type: 'url', required: true, placeholder: 'https://s3.eu-central-1.amazonaws.com' }),
        this.#field('bucket', 'Bucket', { required: true }),
        this.#field('prefix', 'Prefix', { placeholder: 'none' }),
        this.#field('region', 'Region', { placeholder: 'us-east-1' }),
        this.#field('accessKeyId', 'Access key', { required: true }),
        this.#field('secretAccessKey', 'Secret key', { type: 'password', required: true }),
        this.#field('sessionToken', 'Session token', { type: 'password', placeholder: 'optional' })),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'readOnly', checked: Boolean(this.#values.readOnly) }), 'Read-only: disable all actions'),
      h('footer', {}, h('button', { type: 'submit', class: 'primary', disabled: this.#busy }, this.#busy ? 'Connecting…' : 'Connect')));
  }

  #serverForm() {
    return h('form', { key: 'http', autocomplete: 'off', on: { submit: (event) => this.#submit(event) } },
      h('p', { class: 'hint' }, 'A token with the scope ', h('code', {}, 'read'), ' can view tasks, ', h('code', {}, 'admin'), ' can change them. A server on this computer may need no token.'),
      h('div', { class: 'fields' },
        this.#field('url', 'Server', { type: 'url', required: true, placeholder: 'https://qo.example.org' }),
        this.#field('token', 'Token', { type: 'password', placeholder: this.#values.needsToken ? 'this server needs one' : 'optional', required: Boolean(this.#values.needsToken), autofocus: true })),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'readOnly', checked: Boolean(this.#values.readOnly) }), 'Read-only: disable all actions'),
      h('footer', {}, h('button', { type: 'submit', class: 'primary', disabled: this.#busy }, this.#busy ? 'Connecting…' : 'Connect')));
  }

  #field(name, label, attributes = {}) {
    const { type = 'text', ...more } = attributes;
    return h('label', { class: 'field', key: name }, h('span', {}, label),
      h('input', { name, type, value: this.#values[name] ?? '', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', ...more }));
  }

  async #submit(event) {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    this.#values = { ...this.#values, ...values, readOnly: values.readOnly === 'on' };
    this.#busy = true;
    this.error = undefined;
    this.app.redraw();
    const connection = this.#mode === 's3' ? bucketConnection(this.#values) : { kind: 'http', url: this.#values.url, token: this.#values.token, readOnly: this.#values.readOnly };
    this.error = await this.app.connect(connection);
    this.#busy = false;
    if (this.error) {
      this.app.redraw();
      document.querySelector('.problem')?.scrollIntoView({ block: 'nearest' });
    }
  }
}

function bucketConnection(values) {
  const { endpoint, bucket, prefix, region, accessKeyId, secretAccessKey, sessionToken, readOnly, virtualHost } = values;
  return {
    kind: 's3',
    endpoint: endpoint.trim(), bucket: bucket.trim(), prefix: prefix.trim(), region: region.trim(), virtualHost, readOnly,
    credentials: { accessKeyId: accessKeyId.trim(), secretAccessKey: secretAccessKey.trim(), sessionToken: sessionToken.trim() || undefined },
  };
}

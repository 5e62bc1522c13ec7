// Where the tasks come from: a bucket, or a server. What is typed here stays in this tab's memory and goes with it.

import { h } from '../dom.js';
import { problem } from '../widgets/basics.js';

/** What the page's own address tells: a page that lies in a bucket's `ui/` belongs to that bucket. */
export function guessPlace(url = new URL(location.href)) {
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

  constructor({ app, error, suggestion }) {
    this.app = app;
    this.error = error;
    this.#values = { endpoint: '', bucket: '', prefix: '', region: 'us-east-1', ...guessPlace(), ...suggestion };
    this.#mode = suggestion?.kind === 'http' ? 'http' : 's3';
  }

  async load() {}

  render() {
    return h('main', { id: 'main', class: 'connect', tabindex: '-1' },
      h('h1', {}, 'Connect to a queue'),
      h('p', { class: 'lead' }, 'This page has no server of its own. It asks the bucket, or a qo server, straight from this browser. What you type stays in this tab\'s memory and is gone when you close it.'),
      this.error && problem(this.error),
      !globalThis.crypto?.subtle && problem({
        message: 'This page was not loaded over HTTPS or from this computer, so the browser refuses to sign requests',
        hint: 'Open it over HTTPS, or through a forwarded port on localhost.',
      }),
      h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Kind of source' }, this.#tab('s3', 'A bucket'), this.#tab('http', 'A qo server')),
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
      h('p', { class: 'hint' }, 'Short-lived credentials are best. ', h('code', {}, 'qo ui link'), ' makes a link that fills this in.'),
      h('div', { class: 'fields' },
        this.#field('endpoint', 'Endpoint', { type: 'url', required: true, placeholder: 'https://s3.eu-central-1.amazonaws.com' }),
        this.#field('bucket', 'Bucket', { required: true }),
        this.#field('prefix', 'Prefix', { placeholder: 'none' }),
        this.#field('region', 'Region', { placeholder: 'us-east-1' }),
        this.#field('accessKeyId', 'Access key', { required: true }),
        this.#field('secretAccessKey', 'Secret key', { type: 'password', required: true }),
        this.#field('sessionToken', 'Session token', { type: 'password', placeholder: 'if there is one' })),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'readOnly', checked: Boolean(this.#values.readOnly) }), 'Only look: hide and refuse every action'),
      h('footer', {}, h('button', { type: 'submit', class: 'primary', disabled: this.#busy }, this.#busy ? 'Connecting…' : 'Connect')));
  }

  #serverForm() {
    return h('form', { key: 'http', autocomplete: 'off', on: { submit: (event) => this.#submit(event) } },
      h('p', { class: 'hint' }, 'A token with the scope ', h('code', {}, 'read'), ' can look; ', h('code', {}, 'admin'), ' can act. A server on this computer may need none.'),
      h('div', { class: 'fields' },
        this.#field('url', 'Server', { type: 'url', required: true, placeholder: 'https://qo.example.org' }),
        this.#field('token', 'Token', { type: 'password', placeholder: 'if the server wants one' })),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'readOnly', checked: Boolean(this.#values.readOnly) }), 'Only look: hide and refuse every action'),
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
    const place = this.#mode === 's3' ? placeOf(this.#values) : { kind: 'http', url: this.#values.url, token: this.#values.token, readOnly: this.#values.readOnly };
    this.error = await this.app.connect(place);
    this.#busy = false;
    if (this.error) {
      this.app.redraw();
      document.querySelector('.problem')?.scrollIntoView({ block: 'nearest' });
    }
  }
}

function placeOf(values) {
  const { endpoint, bucket, prefix, region, accessKeyId, secretAccessKey, sessionToken, readOnly, virtualHost } = values;
  return {
    kind: 's3',
    endpoint: endpoint.trim(), bucket: bucket.trim(), prefix: prefix.trim(), region: region.trim(), virtualHost, readOnly,
    credentials: { accessKeyId: accessKeyId.trim(), secretAccessKey: secretAccessKey.trim(), sessionToken: sessionToken.trim() || undefined },
  };
}
